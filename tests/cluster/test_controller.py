"""The controller against a real API server: certificates made, replaced under load and lost, and who leads."""

import base64
import functools
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from ruamel.yaml import YAML

from tests.cluster import process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import CANARY, CONFIGURATIONS, ROOT
from webhook import certificate
from webhook.controller.api import Api, ApiError, Thing, connect
from webhook.controller.injection import configurations

COMMAND: Final = "from webhook.controller.run import controller; controller(prog_name='drainproof controller')"
RECOVERY: Final = 30.0  # seconds, what is promised
SECRETS: Final = ("drainproof-tls", "drainproof-ca")
QUICK: Final = ("--poll-seconds", "0.5", "--settle-seconds", "1", "--lease-seconds", "3")
NAMES: Final = iter(range(1000))


def waited(what: str, holds: Callable[[], Any], seconds: float = RECOVERY) -> Any:
    """What `holds` gives, as soon as that is true."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return found


@dataclass
class Controller:
    """A controller process and its log."""

    process: process.Process

    def lines(self, message: str = "", **fields: Any) -> list[dict[str, Any]]:
        """Its log lines with a message and fields."""
        lines = [json.loads(line) for line in self.process.log.read_text().splitlines() if line.endswith("}")]
        return [one for one in lines if message in one["message"] and all(one.get(f) == v for f, v in fields.items())]

    def waited(self, message: str, seconds: float = RECOVERY, **fields: Any) -> dict[str, Any]:
        """The first log line with a message and fields, as soon as it is there."""
        found = waited(f"{message} {fields}", lambda: self.lines(message, **fields), seconds)
        return dict(found[0])

    @property
    def port(self) -> int:
        return int(self.waited("controller started")["port"])

    def got(self, path: str) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


@dataclass
class Site:
    """A namespace with our Service and webhook configurations of its own, called by a port of this machine."""

    plane: ControlPlane
    folder: Path
    namespace: str
    port: int
    stack: ExitStack = field(repr=False)

    @functools.cached_property
    def api(self) -> Api:
        return connect(self.plane.kubeconfig)

    def kubectl(self, *words: str, **more: Any) -> str:
        return self.plane.kubectl("-n", self.namespace, *words, **more).stdout

    def secret(self, name: str) -> dict[str, bytes]:
        """The content of a Secret; empty where there is none."""
        text = self.kubectl("get", "secret", name, "--ignore-not-found", "-o", "json")
        return {key: base64.b64decode(one) for key, one in (json.loads(text)["data"] if text else {}).items()}

    def leaf(self) -> x509.Certificate | None:
        """The serving certificate stored, where it can be read and its key fits."""
        try:
            content = self.secret("drainproof-tls")
            (self.folder / "leaf.pem").write_bytes(content["tls.crt"] + content["tls.key"])
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.folder / "leaf.pem")
            return x509.load_pem_x509_certificate(content["tls.crt"])
        except (KeyError, ValueError, ssl.SSLError):
            return None

    def configuration(self, kind: str = "mutating") -> dict[str, Any]:
        return self.plane.get(f"{kind}webhookconfiguration", self.namespace)

    def bundles(self) -> list[bytes]:
        """Every caBundle of our configurations."""
        things = configurations([self.namespace], [self.namespace])
        found = [webhook for thing in things for webhook in (self.api.get(thing) or {})["webhooks"]]
        return [base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in found]

    def trusted(self) -> bool:
        """Whether every caBundle verifies the serving certificate stored."""
        leaf = self.leaf()
        return leaf is not None and all(verifies(bundle, leaf) for bundle in self.bundles())

    def controller(self, *flags: str, kubeconfig: Path | None = None, name: str = "controller") -> Controller:
        """A controller of this site."""
        words = ("--namespace", self.namespace, "--mutating", self.namespace, "--validating", self.namespace)
        ways = ("--kubeconfig", str(kubeconfig or self.plane.kubeconfig), "--host", "127.0.0.1", "--port", "0")
        command = [sys.executable, "-W", "error", "-c", COMMAND, *words, *ways, *QUICK, *flags]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = process.start(name, command, self.folder / f"{name}.log", environment)
        self.stack.callback(process.stop, started)
        return Controller(started)


def verifies(bundle: bytes, leaf: x509.Certificate) -> bool:
    return bool(bundle) and any(certificate.signed(leaf, ca) for ca in x509.load_pem_x509_certificates(bundle))


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    namespace = f"controller-{next(NAMES)}"
    with socket.socket() as free, ExitStack() as stack:
        free.bind(("127.0.0.1", 0))
        made = Site(control_plane, tmp_path, namespace, free.getsockname()[1], stack)
        free.close()
        control_plane.kubectl("create", "namespace", namespace)
        stack.callback(control_plane.kubectl, "delete", "namespace", namespace, "--wait=false")
        # The API server calls an ExternalName by that name, and asks for the certificate of <service>.<namespace>.svc.
        service = {"type": "ExternalName", "externalName": "localhost"}
        control_plane.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": meta("drainproof", namespace), "spec": service}
        )
        for document in documents(made):
            control_plane.create(document)
            stack.callback(control_plane.kubectl, "delete", document["kind"], namespace)
        yield made


def meta(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace}


def documents(site: Site) -> list[dict[str, Any]]:
    """The shipped configurations, for one namespace, and refusing what the webhook cannot be asked about."""
    found: list[dict[str, Any]] = [YAML(typ="safe").load(one) for one in sorted(CONFIGURATIONS.glob("*ating.yaml"))]
    for document in found:
        document["metadata"]["name"] = site.namespace
        for webhook in document["webhooks"]:
            called = {**webhook["clientConfig"]["service"], "namespace": site.namespace, "port": site.port}
            webhook["clientConfig"] = {"service": called}
            webhook["failurePolicy"] = "Fail"
            webhook["timeoutSeconds"] = 10
            webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}
    return found


def synced(site: Site, folder: Path) -> bool:
    """Writes the Secret to a folder as a kubelet does: all files at once, by a link that is swapped."""
    content = site.secret("drainproof-tls")
    current = folder / "..data"
    if not content or (current.exists() and (current / "tls.crt").read_bytes() == content["tls.crt"]):
        return bool(content)
    fresh = folder / f"..{time.monotonic_ns()}"
    fresh.mkdir(parents=True)
    for name, text in content.items():
        (fresh / name).write_bytes(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    (folder / "..new").symlink_to(fresh.name)
    (folder / "..new").rename(current)
    return True


@contextmanager
def repeated(action: Callable[[], object], pause: float) -> Iterator[list[BaseException]]:
    """Does something again and again in a thread; gives what it raised."""
    stop, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        while not stop.wait(pause):
            try:
                action()
            except Exception as error:
                raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        stop.set()
        thread.join()


@contextmanager
def serving(site: Site) -> Iterator[Path]:
    """`drainproof serve` on a copy of the Secret that follows it; the folder of the copy."""
    folder = site.folder / "mount"
    waited("a Secret", lambda: synced(site, folder))
    files = ("--certificate", str(folder / "tls.crt"), "--key", str(folder / "tls.key"))
    where = ("--host", "0.0.0.0", "--port", str(site.port), "--drain-seconds", "0", "--reload-seconds", "0.2")
    command = [sys.executable, "-m", "webhook", "serve", *files, *where]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = process.start("webhook", command, site.folder / "webhook.log", environment)
    try:
        process.wait_ready([started], lambda: '"serving"' in started.log.read_text())
        with repeated(lambda: (synced(site, folder), probed(site)), 0.3) as raised:
            yield folder
            assert probed(site)
        assert not raised
    finally:
        process.stop(started)


def probed(site: Site) -> bool:
    """Whether the replica is ready, asked as a kubelet does every few seconds; it looks at its files then."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", site.port), timeout=5) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in connection.recv(100)


def endpoint(site: Site) -> bool:
    """Tells the API server where the replica is; whether this machine has an address that may be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            address = probe.getsockname()[0]
        except OSError:
            return False
    if address.startswith("127."):
        return False
    metadata = {**meta("replica", site.namespace), "labels": {"kubernetes.io/service-name": "drainproof"}}
    kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": metadata}
    ports = [{"name": "https", "port": site.port, "protocol": "TCP"}]
    site.plane.create({**kind, "endpoints": [{"addresses": [address]}], "ports": ports})
    return True


@dataclass
class Admissions:
    """Real admissions, one after the other, each of which must come back mended."""

    site: Site
    count: int = 0

    def __post_init__(self) -> None:
        self.thing = Thing("/apis/batch/v1", "jobs", namespace=self.site.namespace)
        self.job = {**CANARY, "metadata": {"generateName": "canary-"}}

    def ask(self) -> None:
        stored = self.site.api._call("POST", "create", self.thing, self.job, query={"dryRun": "All"})
        assert "podFailurePolicy" in stored["spec"], stored["spec"]
        self.count += 1

    def works(self) -> bool:
        try:
            self.ask()
        except ApiError:
            return False
        return True


def handshake(site: Site) -> None:
    """A new connection to the replica that trusts what is published, as an API server makes it."""
    bundle = site.bundles()[0]
    context = ssl.create_default_context(cadata=bundle.decode())
    with (
        socket.create_connection(("127.0.0.1", site.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=f"drainproof.{site.namespace}.svc"),
    ):
        pass


def test_certificates_come_from_nothing_and_admission_goes_on_while_leaf_and_ca_are_replaced(site: Site) -> None:
    controller = site.controller("--leaf-life", "12s", "--ca-life", "36s", "--grace-seconds", "60")
    waited("a certificate that is trusted", site.trusted)
    known = endpoint(site)
    with serving(site):
        admissions = Admissions(site)
        waited("admission", admissions.works)
        with repeated(admissions.ask, 0.01) as failed, repeated(lambda: handshake(site), 0.1) as untrusted:
            controller.waited("certificates changed", 60, step="new-ca", reason="two thirds of the CA's life are over")
            if known:
                reason = "every replica serves a certificate of the new CA"
                controller.waited("certificates changed", step="old-ca-dropped", reason=reason)
            before = admissions.count
            waited("more admissions", lambda: admissions.count > before + 20)
    assert failed == []
    assert untrusted == []
    steps = [one["step"] for one in controller.lines("certificates changed")]
    assert steps[:2] == ["new-ca", "new-leaf"]
    assert steps.count("new-leaf") >= 3
    if known:
        assert len(x509.load_pem_x509_certificates(site.bundles()[0])) == 1
    assert admissions.count > 100
    status, metrics = controller.got("/metrics")
    assert status == 200
    assert 'drainproof_controller_rotations_total{outcome="done",step="new-ca"} 2.0' in metrics
    assert "drainproof_controller_leader 1.0" in metrics
    assert controller.got("/healthz") == (200, "ok\n")
    assert controller.got("/readyz") == (200, "ok\n")


def test_a_ca_bundle_that_is_stripped_comes_back(site: Site) -> None:
    controller = site.controller()
    waited("a certificate that is trusted", site.trusted)
    stripped = documents(site)
    before = len(controller.lines("caBundle set"))
    for document in stripped:
        site.kubectl("replace", "-f", "-", input=json.dumps(document))
    # It may be back already, so it is the log that says that it was away.
    waited("a line for each", lambda: len(controller.lines("caBundle set")) >= before + len(stripped), 5)
    assert site.trusted()
    for line in controller.lines("caBundle set")[before:]:
        assert (line["reason"], line["level"]) == ("it was empty", "warning")


def broken(content: Mapping[str, bytes]) -> dict[str, bytes]:
    return {"tls.crt": content["tls.crt"][: len(content["tls.crt"]) // 2]}


def of_another_key(_: Mapping[str, bytes]) -> dict[str, bytes]:
    return {"tls.key": certificate.key_pem(certificate.new_authority(datetime.now(UTC), timedelta(hours=1))[1])}


def past(content: Mapping[str, bytes]) -> dict[str, bytes]:
    """A pair of the CA's kind that ended an hour ago."""
    then = datetime.now(UTC) - timedelta(hours=2)
    ca, key = certificate.new_authority(then, timedelta(hours=1))
    if certificate.is_authority(x509.load_pem_x509_certificate(content["tls.crt"])):
        return {"tls.crt": certificate.pem([ca]), "tls.key": certificate.key_pem(key), "ca.crt": certificate.pem([ca])}
    leaf, leaf_key = certificate.new_leaf(ca, key, ["old.test"], then, timedelta(hours=1))
    return {"tls.crt": certificate.pem([leaf]), "tls.key": certificate.key_pem(leaf_key)}


def replaced(content: Mapping[str, bytes]) -> dict[str, bytes]:
    """Another pair that is good in itself."""
    ca, key = certificate.new_authority(datetime.now(UTC), timedelta(hours=48))
    if certificate.is_authority(x509.load_pem_x509_certificate(content["tls.crt"])):
        return {"tls.crt": certificate.pem([ca]), "tls.key": certificate.key_pem(key), "ca.crt": certificate.pem([ca])}
    leaf, leaf_key = certificate.new_leaf(ca, key, ["old.test"], datetime.now(UTC), timedelta(hours=24))
    return {"tls.crt": certificate.pem([leaf]), "tls.key": certificate.key_pem(leaf_key)}


@pytest.mark.parametrize("change", [None, broken, of_another_key, past, replaced])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_lost_or_spoiled_is_made_anew_while_admission_goes_on(
    site: Site, name: str, change: Callable[[Mapping[str, bytes]], dict[str, bytes]] | None
) -> None:
    controller = site.controller()
    waited("a certificate that is trusted", site.trusted)
    with serving(site):
        admissions = Admissions(site)
        waited("admission", admissions.works)
        before = site.secret(name)
        with repeated(admissions.ask, 0.05) as failed, repeated(lambda: handshake(site), 0.05) as untrusted:
            if change is None:
                site.kubectl("delete", "secret", name)
            else:
                data = {key: base64.b64encode(text).decode() for key, text in change(before).items()}
                site.kubectl("patch", "secret", name, "-p", json.dumps({"data": data}))
            waited("another certificate", lambda: site.secret(name).get("tls.crt") not in (None, before["tls.crt"]))
            waited("a certificate that is trusted", site.trusted)
            time.sleep(2)
        handshake(site)
    if (name, change) != ("drainproof-tls", replaced):  # a good pair of nobody we trust is served until we replace it
        assert failed == []
        assert untrusted == []
    said = controller.lines("certificates changed")[2:]
    first = "new-leaf" if name == "drainproof-tls" else "old-ca-kept" if change is replaced else "new-ca"
    assert said[0]["step"] == first
    if change in (broken, of_another_key):
        assert any(name in one["reason"] for one in controller.lines("certificates cannot be used"))


def test_both_secrets_can_be_lost_at_once(site: Site) -> None:
    site.controller()
    waited("a certificate that is trusted", site.trusted)
    with serving(site):
        admissions = Admissions(site)
        waited("admission", admissions.works)
        with repeated(admissions.ask, 0.05) as failed, repeated(lambda: handshake(site), 0.05) as untrusted:
            site.kubectl("delete", "secret", *SECRETS)
            waited("a certificate that is trusted", site.trusted)
            time.sleep(2)
    assert failed == []
    assert untrusted == []


def test_of_two_controllers_one_leads_and_the_other_takes_over_when_it_is_gone(site: Site) -> None:
    first = site.controller(name="first")
    first.waited("leading")
    second = site.controller(name="second")
    waited("a certificate that is trusted", site.trusted)
    waited("the second one", lambda: second.got("/readyz")[0] == 200)
    assert "drainproof_controller_leader 0.0" in second.got("/metrics")[1]
    assert "drainproof_controller_certificate_expiry_timestamp_seconds{" not in second.got("/metrics")[1]
    assert not second.lines("leading")
    os.kill(first.process.popen.pid, signal.SIGKILL)
    second.waited("leading", 10)
    site.kubectl("delete", "secret", "drainproof-tls")
    waited("a certificate that is trusted", site.trusted)
    third = site.controller(name="third")
    third.waited("controller started")
    began = time.monotonic()
    second.process.popen.send_signal(signal.SIGTERM)
    assert second.process.popen.wait(5) == 0
    assert second.waited("lease given up")
    third.waited("leading", 2)
    assert time.monotonic() - began < 5


def test_what_is_not_ours_is_not_touched(site: Site) -> None:
    documents_of_others = documents(site)
    names = [f"{site.namespace}-other", site.namespace]
    documents_of_others[0]["metadata"]["name"] = names[0]  # of another name, though it calls our Service
    stranger = documents(site)[0]["webhooks"][0] | {"name": "stranger.example.test"}
    stranger["clientConfig"] = {"service": {**stranger["clientConfig"]["service"], "name": "stranger"}}
    by_url = stranger | {"name": "url.example.test", "clientConfig": {"url": f"https://localhost:{site.port}/mutate"}}
    mixed = documents(site)[0]
    mixed["webhooks"] += [stranger, by_url]
    site.plane.create(documents_of_others[0])
    site.stack.callback(site.plane.kubectl, "delete", "mutatingwebhookconfiguration", names[0])
    site.kubectl("replace", "-f", "-", input=json.dumps(mixed))
    before = site.kubectl("get", "mutatingwebhookconfiguration", names[0], "-o", "json", "--show-managed-fields")
    ours = site.configuration()
    site.controller()
    waited("a caBundle", lambda: site.configuration()["webhooks"][0]["clientConfig"].get("caBundle"))
    time.sleep(2)
    assert (
        site.kubectl("get", "mutatingwebhookconfiguration", names[0], "-o", "json", "--show-managed-fields") == before
    )
    after = site.configuration()
    assert after["webhooks"][-2:] == ours["webhooks"][-2:]
    for webhook in after["webhooks"]:
        webhook["clientConfig"].pop("caBundle", None)
    assert after["webhooks"] == ours["webhooks"]


def rules() -> list[dict[str, Any]]:
    """The Roles and ClusterRoles that are shipped."""
    found = YAML(typ="safe").load_all(CONFIGURATIONS / "rights.yaml")
    return [one for one in found if one["kind"] in ("Role", "ClusterRole")]


# Those of the other parts are tried in test_watch.py and test_discovery.py.
VERBS: Final = [
    (resource, verb)
    for role in rules()
    for rule in role["rules"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
    if role["metadata"]["name"] == "drainproof-certificates" or resource == "leases"
]


def account(site: Site, without: tuple[str, str] | None = None) -> Path:
    """A kubeconfig of a ServiceAccount with the rights that are shipped, or all but one of them."""
    site.plane.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("controller", site.namespace)})
    for role in rules():
        name = f"{site.namespace}-{role['metadata']['name']}"
        cluster = role["kind"] == "ClusterRole"
        given = [
            {**rule, "resources": [resource], "verbs": [verb for verb in rule["verbs"] if (resource, verb) != without]}
            | ({"resourceNames": [site.namespace]} if rule.get("resourceNames") == ["drainproof"] else {})
            for rule in role["rules"]
            for resource in rule["resources"]
        ]
        given = [rule for rule in given if rule["verbs"]]
        metadata = {"name": name} | ({} if cluster else {"namespace": site.namespace})
        site.plane.create({**role, "metadata": metadata, "rules": given})
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        subject = {"kind": "ServiceAccount", "name": "controller", "namespace": site.namespace}
        binding = {"apiVersion": f"{group['apiGroup']}/v1", "kind": f"{role['kind']}Binding", "metadata": metadata}
        site.plane.create({**binding, "roleRef": {**group, "kind": role["kind"], "name": name}, "subjects": [subject]})
        if cluster:
            site.stack.callback(site.plane.kubectl, "delete", "clusterrole,clusterrolebinding", name)
    settings = json.loads(site.plane.kubeconfig.read_text())
    settings["users"] = [{"name": "test", "user": {"token": site.kubectl("create", "token", "controller").strip()}}]
    path = site.folder / "account.kubeconfig"
    path.write_text(json.dumps(settings))
    return path


def test_the_rights_that_are_shipped_are_enough(site: Site) -> None:
    controller = site.controller(kubeconfig=account(site))
    waited("a certificate that is trusted", site.trusted)
    site.kubectl("delete", "secret", "drainproof-tls")
    waited("a certificate that is trusted", site.trusted)
    patch = {"data": {"tls.crt": "eA=="}}
    for name in SECRETS:
        site.kubectl("patch", "secret", name, "-p", json.dumps(patch))
        waited("a certificate that is trusted", site.trusted)
    site.kubectl("delete", "lease", "drainproof-controller")
    waited("a Lease", lambda: site.kubectl("get", "lease", "drainproof-controller", "--ignore-not-found"))
    assert not controller.lines("call to the API server failed", status=403)
    assert not [one for one in controller.lines() if "trace" in one or one.get("logger")]


@pytest.mark.parametrize(("resource", "verb"), VERBS)
def test_each_right_that_is_missing_is_one_clear_error(site: Site, resource: str, verb: str) -> None:
    if resource == "secrets" and verb == "patch":  # so that it is no longer a matter of making it
        before = site.controller(name="before")
        waited("a certificate that is trusted", site.trusted)
        process.stop(before.process)
        site.kubectl("patch", "secret", "drainproof-tls", "-p", json.dumps({"data": {"tls.crt": "eA=="}}))
    controller = site.controller(kubeconfig=account(site, (resource, verb)))
    line = controller.waited("call to the API server failed", status=403, resource=resource)
    assert f'cannot {verb} resource "{resource}"' in line["reason"]
    assert line["level"] == "error"
    time.sleep(2)
    wrong = controller.lines("call to the API server failed")
    assert {(one["resource"], one["name"]) for one in wrong} == {(one["resource"], one["name"]) for one in wrong[:1]}
    assert len(wrong) == 1
    assert not [one for one in controller.lines() if "trace" in one or one.get("logger")]
