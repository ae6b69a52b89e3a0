"""What a machine lacks for a node is said in one sentence, before anything is changed on it."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from tests.node import image, network, requirements, ring, snapshot


def test_the_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "PLUGINS", (tmp_path,))
    monkeypatch.setattr(requirements, "BUSYBOXES", (tmp_path / "busybox",))
    with pytest.raises(requirements.RequirementError) as raised, ring.running(tmp_path):
        pass
    assert str(raised.value) == (
        "the node needs what is not on this machine: apt-get install --no-install-recommends "
        "iproute2 iptables runc util-linux mount containernetworking-plugins busybox-static"
    )


def test_a_program_that_wants_a_loader_is_not_static() -> None:
    assert not image.is_static(Path("/bin/sh"))
    assert not image.is_static(Path(__file__))


@pytest.mark.usefixtures("able")
def test_a_machine_that_uses_the_addresses_of_services_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(network, "_routes", lambda: [{"dst": "10.0.0.0/8"}])
    before = snapshot.take()
    with (
        pytest.raises(network.NetworkError, match=r"has a route for 10\.0\.0\.0/24, which the ring needs"),
        ring.running(tmp_path),
    ):
        pass
    assert snapshot.left(before, seconds=0) == []


def test_the_addresses_of_pods_are_those_that_no_route_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_routes", lambda: [{"dst": "198.18.0.0/16"}, {"dst": "198.19.0.7"}])
    assert network.free_range().subnet_of(IPv4Network("198.19.0.0/16"))


def test_of_the_rules_only_those_of_kube_proxy_are_removed() -> None:
    saved = """
*nat
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:MINE - [0:0]
-A OUTPUT -j MINE
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SERVICES
COMMIT
*filter
:MINE - [0:0]
COMMIT
"""
    assert network._removal(saved).splitlines() == [
        "*nat",
        ":KUBE-SERVICES - [0:0]",
        '-D OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        "-X KUBE-SERVICES",
        "COMMIT",
    ]
