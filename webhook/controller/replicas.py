"""What the replicas of the webhook serve: a TLS handshake with each address behind its Service."""

import socket
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from cryptography import x509
from cryptography.x509 import Certificate

from webhook.controller.api import Api, Thing

SECONDS: Final = 2.0  # for one connection, and again for its handshake
PORT_NAME: Final = "https"
_PREFIX: Final = "/apis/discovery.k8s.io/v1"

Address = tuple[str, int]


def addresses(api: Api, namespace: str, service: str) -> dict[str, set[Address]]:
    """The addresses of each replica; one on a dual-stack network has several. Raises ApiError.

    Replicas that are not ready count too: they may become so.
    """
    slices = Thing(_PREFIX, "endpointslices", namespace=namespace)
    return grouped(api.items(slices, f"kubernetes.io/service-name={service}"))


def grouped(slices: Iterable[Mapping[str, Any]]) -> dict[str, set[Address]]:
    """The addresses in EndpointSlices by replica: the Pod that they lead to, or an address that leads to no Pod."""
    found: dict[str, set[Address]] = {}
    for one in slices:
        ports = [port for port in one.get("ports") or [] if port.get("port")]
        port = next((port for port in ports if port.get("name") == PORT_NAME), ports[0] if ports else None)
        for endpoint in one.get("endpoints") or []:
            for address in endpoint.get("addresses") or []:
                replica = str((endpoint.get("targetRef") or {}).get("uid") or address)
                found.setdefault(replica, set()).update([(address, int(port["port"]))] if port else [])
    return found


def served(replicas: Mapping[str, Iterable[Address]], name: str) -> tuple[tuple[Certificate, ...], int]:
    """The distinct certificates that replicas serve a client that asks for `name`, and how many showed none."""
    if not replicas:
        return (), 0
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="replica") as pool:
        shown = list(pool.map(lambda one: _shown(replicas[one], name), replicas))
    return tuple(dict.fromkeys(one for one in shown if one)), shown.count(None)


def _shown(addresses: Iterable[Address], name: str) -> Certificate | None:
    for address in sorted(addresses):
        try:
            return _handshake(address, name)
        except (OSError, ValueError):  # ssl.SSLError is an OSError
            continue
    return None


def _handshake(address: Address, name: str) -> Certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is looked at, nothing is told to whoever shows it
    with (
        socket.create_connection(address, timeout=SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
