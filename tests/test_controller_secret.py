"""The Secrets and caBundles: what is read, what is written, and that nothing else changes."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonpatch
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.test_controller_authority import OLD, OLD_LEAF, PLAN, START, authority, leaf
from webhook.certificate import key_pem, pem
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.authority import Seen, Step, step
from webhook.controller.injection import Injection, Service, configurations
from webhook.controller.metrics import Complaints, metrics
from webhook.controller.rotation import Rotation
from webhook.controller.secret import Secrets, StoredError, read_authority, read_leaf, secret
from webhook.controller.state import State

SERVING, AUTHORITY = secret("here", "drainproof-tls"), secret("here", "drainproof-ca")
MUTATING, VALIDATING = configurations(["mine"], ["mine"])
SERVICES = (Service("here", "drainproof"), Service("here", "drainproof-controller"))


class Memory(Api):
    """An API server that keeps objects, counts their versions, and refuses what `refusals` name."""

    def __init__(self) -> None:
        self.objects: dict[Thing, dict[str, Any]] = {}
        self.refusals: dict[tuple[str, Thing], int] = {}
        self.calls: list[tuple[str, Thing]] = []
        self.version = 0

    def keep(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        found: dict[str, Any] = json.loads(json.dumps(body))
        found.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        self.objects[thing] = found
        return found

    def _call(
        self,
        method: str,
        verb: str,
        thing: Thing,
        body: Any = None,
        form: str = "",
        query: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> dict[str, Any]:
        del query, seconds
        self.calls.append((verb, thing))
        if status := self.refusals.get((verb, thing)):
            raise ApiError(verb, thing, status, "refused")
        if verb == "list":
            return {"items": [one for kept, one in self.objects.items() if kept.resource == thing.resource]}
        found = self.objects.get(thing)
        if found is None and not (method == "PUT" or form == "apply"):
            raise ApiError(verb, thing, 404, "not found")
        if verb == "get":
            return json.loads(json.dumps(found))  # type: ignore[no-any-return]
        changed = self._changed(found or {}, body, form)
        if found and changed["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise ApiError(verb, thing, 409, "conflict")
        return self.keep(thing, changed)

    @staticmethod
    def _changed(found: dict[str, Any], body: Any, form: str) -> dict[str, Any]:
        if form == "json":
            changed: dict[str, Any] = jsonpatch.apply_patch(found, body)
            return changed
        if form == "merge":
            data = {**found.get("data", {}), **body["data"]}
            return {**found, "metadata": {**found["metadata"], **body["metadata"]}, "data": data}
        return dict(body)


def stored(api: Memory) -> Secrets:
    return Secrets(api, SERVING, AUTHORITY, "me", now=lambda: START)


def filled(api: Memory) -> Secrets:
    secrets = stored(api)
    secrets.write(Step("new-ca", "", authority=OLD), secrets.read())
    secrets.write(Step("new-leaf", "", leaf=OLD_LEAF), secrets.read())
    return secrets


def test_what_is_written_is_read_again_and_each_secret_holds_only_its_own_key() -> None:
    api = Memory()
    state = filled(api).read().state
    assert state.authority
    assert state.leaf
    assert (state.authority.certificate, state.authority.trusted) == (OLD.certificate, OLD.trusted)
    assert (state.leaf.certificate, state.leaf.announced) == (OLD_LEAF.certificate, OLD.trusted)
    assert state.known == OLD.trusted
    assert step(state, START, Seen(), PLAN) is None
    assert api.objects[SERVING]["type"] == "kubernetes.io/tls"
    assert key_pem(OLD.key) not in base64.b64decode(api.objects[SERVING]["data"]["tls.key"])
    assert "PRIVATE" not in repr(state)


def test_a_secret_that_changed_since_it_was_read_is_not_overwritten() -> None:
    api = Memory()
    secrets = filled(api)
    before = secrets.read()
    api.keep(SERVING, api.objects[SERVING])
    with pytest.raises(ApiError) as caught:
        secrets.write(Step("new-leaf", "", leaf=OLD_LEAF), before)
    assert caught.value.status == 409


def test_what_others_added_to_a_secret_stays() -> None:
    api = Memory()
    secrets = filled(api)
    api.objects[SERVING]["metadata"]["labels"]["theirs"] = "x"
    api.objects[SERVING]["data"]["more"] = "eA=="
    secrets.write(Step("new-leaf", "", leaf=leaf(OLD)), secrets.read())
    assert api.objects[SERVING]["metadata"]["labels"]["theirs"] == "x"
    assert api.objects[SERVING]["data"]["more"] == "eA=="


RSA = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
CERTIFICATE, KEY = pem([OLD_LEAF.certificate]), key_pem(OLD_LEAF.key)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "tls.crt is missing"),
        ({"tls.crt": CERTIFICATE}, "tls.key is missing"),
        ({"tls.crt": CERTIFICATE[:200], "tls.key": KEY}, "tls.crt cannot be read"),
        ({"tls.crt": b"\xff\x00", "tls.key": KEY}, "tls.crt cannot be read"),
        ({"tls.crt": CERTIFICATE, "tls.key": KEY[:100]}, "tls.key cannot be read"),
        ({"tls.crt": CERTIFICATE, "tls.key": RSA}, "tls.key is no key of an elliptic curve"),
        ({"tls.crt": CERTIFICATE, "tls.key": key_pem(OLD.key)}, "tls.key does not belong to tls.crt"),
    ],
)
def test_what_cannot_be_used_says_why(content: dict[str, bytes], text: str) -> None:
    for read in (read_leaf, read_authority):
        with pytest.raises(StoredError, match=text):
            read(content)


def test_a_serving_certificate_is_no_ca_and_a_broken_list_of_cas_only_spoils_the_ca() -> None:
    with pytest.raises(StoredError, match="is no CA"):
        read_authority({"tls.crt": CERTIFICATE, "tls.key": KEY})
    pair = {"tls.crt": pem([OLD.certificate]), "tls.key": key_pem(OLD.key)}
    with pytest.raises(StoredError, match=r"ca\.crt is missing"):
        read_authority(pair)
    assert read_leaf({"tls.crt": CERTIFICATE, "tls.key": KEY, "ca.crt": b"-"}).announced == ()
    assert read_authority({**pair, "ca.crt": CERTIFICATE}).trusted == OLD.trusted


def test_a_broken_secret_is_told_with_its_name_and_its_cas_are_still_known() -> None:
    api = Memory()
    secrets = filled(api)
    api.objects[AUTHORITY]["data"]["tls.key"] = "eA=="
    api.objects[SERVING]["data"] = None
    found = secrets.read()
    assert found.state == State(None, None, OLD.trusted)
    assert found.problems == (
        "secrets here/drainproof-ca: tls.key cannot be read",
        "secrets here/drainproof-tls: tls.crt is missing",
    )


def webhooks(*bundles: bytes | None, service: str = "drainproof") -> dict[str, Any]:
    called = {"service": {"namespace": "here", "name": service, "path": "/mutate"}}
    given = [{} if one is None else {"caBundle": base64.b64encode(one).decode()} for one in bundles]
    return {"webhooks": [{"name": f"w{i}.test", "clientConfig": {**called, **one}} for i, one in enumerate(given)]}


def injecting(api: Memory, leads: bool = True) -> Injection:
    counted = metrics()
    trusted = filled(api).trusted
    return Injection(api, (MUTATING, VALIDATING), SERVICES, trusted, lambda: leads, counted, Complaints(counted))


def bundles(api: Memory, thing: Thing) -> list[bytes]:
    clients = [one.get("clientConfig", {}) for one in api.objects[thing]["webhooks"]]
    return [base64.b64decode(client.get("caBundle", "")) for client in clients]


WRONG = {
    "none": None,
    "empty": b"",
    "blank": b"\n",
    "junk": b"junk",
    "another's": pem(authority().trusted),
    "twice": pem([*OLD.trusted] * 2),
}


@pytest.mark.parametrize("bundle", WRONG.values(), ids=WRONG)
def test_a_ca_bundle_that_is_not_what_it_should_be_is_set_and_then_left_alone(bundle: bytes | None) -> None:
    api = Memory()
    api.keep(MUTATING, webhooks(bundle, pem(OLD.trusted)))
    part = injecting(api)
    part.once()
    assert bundles(api, MUTATING) == [pem(OLD.trusted)] * 2
    api.calls.clear()
    part.once()
    assert {verb for verb, _ in api.calls} == {"get"}


def test_entries_that_call_either_of_our_services_are_filled() -> None:
    api = Memory()
    theirs = webhooks(None, service="drainproof-controllers")["webhooks"]
    ours = [*webhooks(None)["webhooks"], *webhooks(None, service="drainproof-controller")["webhooks"]]
    api.keep(VALIDATING, {"webhooks": [*theirs, *ours]})
    injecting(api).once()
    assert bundles(api, VALIDATING) == [b"", pem(OLD.trusted), pem(OLD.trusted)]


def test_a_bundle_that_is_no_base64_is_set() -> None:
    api = Memory()
    broken = webhooks(None)
    broken["webhooks"][0]["clientConfig"]["caBundle"] = "é"
    api.keep(VALIDATING, broken)
    injecting(api).once()
    assert bundles(api, VALIDATING) == [pem(OLD.trusted)]


def test_entries_of_another_service_or_by_url_are_left_as_they_are() -> None:
    api = Memory()
    theirs = webhooks(b"theirs", None, service="other")["webhooks"]
    theirs += [{"name": "url.test", "clientConfig": {"url": "https://x.test/mutate"}}, {"name": "none.test"}]
    api.keep(MUTATING, {"webhooks": [*theirs, *webhooks(None)["webhooks"]], "other": 1})
    injecting(api).once()
    found = api.objects[MUTATING]
    assert found["webhooks"][:-1] == theirs
    assert found["other"] == 1
    assert bundles(api, MUTATING)[-1] == pem(OLD.trusted)


def test_a_configuration_that_cannot_be_changed_does_not_keep_from_the_other() -> None:
    api = Memory()
    for thing in (MUTATING, VALIDATING):
        api.keep(thing, webhooks(None))
    api.refusals["patch", MUTATING] = 403
    part = injecting(api)
    with pytest.raises(ApiError, match="patch mutatingwebhookconfigurations mine: 403: refused"):
        part.once()
    assert bundles(api, VALIDATING) == [pem(OLD.trusted)]
    api.refusals["get", VALIDATING] = 500
    with pytest.raises(ApiError, match="validating"):
        part.once()
    assert part.metrics.errors.labels("patch", MUTATING.resource, "403")._value.get() == 1


def test_who_does_not_lead_and_who_has_no_ca_changes_nothing() -> None:
    api = Memory()
    api.keep(MUTATING, webhooks(None))
    injecting(api, leads=False).once()
    assert bundles(api, MUTATING) == [b""]
    part = injecting(api)
    del api.objects[AUTHORITY]
    part.once()
    assert bundles(api, MUTATING) == [b""]


def rotating(api: Memory, now: list[datetime]) -> Rotation:
    counted = metrics()
    secrets = Secrets(api, SERVING, AUTHORITY, "me", now=lambda: now[0])
    rotation = Rotation(
        api, secrets, (MUTATING, VALIDATING), SERVICES, PLAN, 10.0, lambda: True, counted, Complaints(counted)
    )
    rotation.now = lambda: now[0]
    rotation.clock = lambda: now[0].timestamp()
    return rotation


def test_from_nothing_and_through_a_rotation_even_where_neither_webhooks_nor_replicas_can_be_read() -> None:
    api, now = Memory(), [START]
    api.keep(MUTATING, webhooks(None))
    rotation = rotating(api, now)
    slices = Thing("/apis/discovery.k8s.io/v1", "endpointslices", namespace="here")
    api.refusals |= {("list", slices): 403, ("get", VALIDATING): 403}
    assert [rotation.once() for _ in range(3)] == [True, True, False]
    first = api.objects[SERVING]["data"]["tls.crt"]
    now[0] += timedelta(hours=20)
    assert rotation.once()  # the serving certificate has expired, and is replaced first
    assert [rotation.once() for _ in range(3)] == [True, True, False]  # a CA is made and announced, and waits
    second = api.objects[SERVING]["data"]["tls.crt"]
    assert second != first
    del api.refusals["get", VALIDATING]
    injecting_by = Injection(
        api, (MUTATING,), SERVICES, rotation.secrets.trusted, lambda: True, rotation.metrics, rotation.complaints
    )
    injecting_by.once()
    assert not rotation.once()
    now[0] += timedelta(seconds=9)
    assert not rotation.once()
    now[0] += timedelta(seconds=1)
    assert rotation.once()
    assert api.objects[SERVING]["data"]["tls.crt"] != second
    now[0] += timedelta(minutes=59)
    assert not rotation.once()
    now[0] += timedelta(minutes=1)
    assert [rotation.once() for _ in range(3)] == [True, True, False]
    state = rotation.secrets.read().state
    assert state.authority
    assert state.authority.older == ()
    assert rotation.metrics.rotations.labels("old-ca-dropped", "done")._value.get() == 1


def test_an_old_ca_stays_until_replicas_behind_both_services_serve_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked for are the addresses behind each Service; those of the controller are the replica that does not show."""
    api, now = Memory(), [START]
    rotation = rotating(api, now)
    [rotation.once() for _ in range(3)]
    now[0] += timedelta(hours=20)
    while rotation.once():
        pass
    seen: dict[str, Any] = {}

    def addresses(_api: Api, namespace: str, service: str) -> dict[str, set[tuple[str, int]]]:
        return {f"{service}-pod": {(f"{service}.{namespace}", 8443)}}

    def served(replicas: Mapping[str, Any], name: str) -> tuple[tuple[Any, ...], int]:
        seen.update({**replicas, "name": name})
        return (), 1

    monkeypatch.setattr("webhook.controller.replicas.addresses", addresses)
    monkeypatch.setattr("webhook.controller.replicas.served", served)
    rotation.once()
    assert seen == {
        "drainproof-pod": {("drainproof.here", 8443)},
        "drainproof-controller-pod": {("drainproof-controller.here", 8443)},
        "name": PLAN.names[0],
    }


def test_a_step_that_cannot_be_stored_is_counted() -> None:
    api = Memory()
    rotation = rotating(api, [datetime.now(UTC)])
    api.refusals["create", AUTHORITY] = 403
    with pytest.raises(ApiError, match="403"):
        rotation.once()
    assert rotation.metrics.rotations.labels("new-ca", "failed")._value.get() == 1
    assert api.objects == {}


def test_who_lost_the_lease_meanwhile_stores_nothing() -> None:
    api = Memory()
    rotation = rotating(api, [START])
    rotation.leads = lambda: False
    assert not rotation.once()
    assert api.objects == {}
