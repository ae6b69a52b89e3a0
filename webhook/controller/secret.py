"""Where certificates are kept: a Secret that the webhook mounts, and one with the CA's key that it never sees."""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import Certificate

from webhook.certificate import Key, is_authority, key_pem, pem
from webhook.controller.api import Api, Thing
from webhook.controller.authority import Step, trusted
from webhook.controller.state import Authority, Leaf, State

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
CAS: Final = "ca.crt"
TYPE: Final = "kubernetes.io/tls"
LABELS: Final = {"app.kubernetes.io/name": "drainproof", "app.kubernetes.io/managed-by": "drainproof-controller"}


class StoredError(ValueError):
    """What is stored cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored, what of it cannot be used and why, and the resource versions of what was read."""

    state: State
    problems: tuple[str, ...]
    versions: Mapping[Thing, str]


@dataclass(frozen=True, slots=True)
class Secrets:
    """Both Secrets. `manager` is a name of this process: of two that make a Secret at once, the second fails."""

    api: Api
    serving: Thing
    authority: Thing
    manager: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def read(self) -> Stored:
        """What is stored now. Raises ApiError."""
        objects = {thing: self.api.get(thing) for thing in (self.authority, self.serving)}
        problems: list[str] = []
        data: dict[Thing, dict[str, bytes]] = {}
        for thing, one in objects.items():
            data[thing] = _data(one)
            if one is None:
                problems.append(f"{thing} does not exist")
        known = tuple(dict.fromkeys(one for thing in data for one in _cas(data[thing])))
        authority, leaf = None, None
        try:
            authority = read_authority(data[self.authority]) if objects[self.authority] else None
        except StoredError as error:
            problems.append(f"{self.authority}: {error}")
        try:
            leaf = read_leaf(data[self.serving]) if objects[self.serving] else None
        except StoredError as error:
            problems.append(f"{self.serving}: {error}")
        versions = {thing: str(one["metadata"]["resourceVersion"]) for thing, one in objects.items() if one}
        return Stored(State(authority, leaf, known), tuple(problems), versions)

    def trusted(self, published: Iterable[Certificate]) -> tuple[Certificate, ...]:
        """What has to be in every caBundle; nothing where no CA is stored that can be used. Raises ApiError."""
        state = self.read().state
        return trusted(state, self.now(), published) if state.authority else ()

    def write(self, step: Step, stored: Stored) -> None:
        """Stores what a step says, if nobody changed the Secret since it was read. Raises ApiError."""
        if step.authority:
            one = step.authority
            self._write(self.authority, stored, pem([one.certificate]), key_pem(one.key), pem(one.trusted))
        if step.leaf:
            leaf = step.leaf
            self._write(self.serving, stored, pem([leaf.certificate]), key_pem(leaf.key), pem(leaf.announced))

    def _write(self, thing: Thing, stored: Stored, certificate: bytes, key: bytes, cas: bytes) -> None:
        content = {CERTIFICATE: certificate, KEY: key, CAS: cas}
        data = {name: base64.b64encode(text).decode() for name, text in content.items()}
        version = stored.versions.get(thing)
        if version:
            self.api.merge(thing, {"metadata": {"resourceVersion": version}, "data": data})
            return
        metadata = {"name": thing.name, "namespace": thing.namespace, "labels": LABELS}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": data}
        self.api.make(thing, made, self.manager)


def secret(namespace: str, name: str) -> Thing:
    """A Secret's place in the API."""
    return Thing("/api/v1", "secrets", name, namespace)


def read_authority(data: Mapping[str, bytes]) -> Authority:
    """The CA of a Secret. Raises StoredError."""
    certificate, key = _pair(data)
    if not is_authority(certificate):
        raise StoredError(f"{CERTIFICATE} is no CA")
    others = _certificates(data, CAS)
    return Authority(certificate, key, tuple(dict.fromkeys((certificate, *filter(is_authority, others)))))


def read_leaf(data: Mapping[str, bytes]) -> Leaf:
    """The serving certificate of a Secret. Raises StoredError; a broken ca.crt is only written anew."""
    certificate, key = _pair(data)
    return Leaf(certificate, key, _cas({CAS: data.get(CAS, b"")}))


def _pair(data: Mapping[str, bytes]) -> tuple[Certificate, Key]:
    certificate = _certificates(data, CERTIFICATE)[0]
    if not data.get(KEY):
        raise StoredError(f"{KEY} is missing")
    try:
        key = serialization.load_pem_private_key(data[KEY], password=None)
    except (ValueError, TypeError, x509.InvalidVersion) as error:
        raise StoredError(f"{KEY} cannot be read") from error
    if not isinstance(key, Key):
        raise StoredError(f"{KEY} is no key of an elliptic curve")
    if key.public_key() != certificate.public_key():
        raise StoredError(f"{KEY} does not belong to {CERTIFICATE}")
    return certificate, key


def _certificates(data: Mapping[str, bytes], name: str) -> list[Certificate]:
    if not data.get(name):
        raise StoredError(f"{name} is missing")
    try:
        found = x509.load_pem_x509_certificates(data[name])
        for one in found:  # these are read only when asked for, and must not fail later
            _ = (one.public_key(), one.extensions, one.subject, one.not_valid_after_utc)
    except Exception as error:  # the library raises what it likes for what it cannot read
        raise StoredError(f"{name} cannot be read") from error
    return found


def _cas(data: Mapping[str, bytes]) -> tuple[Certificate, ...]:
    """Every CA that can be read, also beside what cannot."""
    return readable(data.get(name, b"") for name in (CERTIFICATE, CAS))


def readable(texts: Iterable[bytes]) -> tuple[Certificate, ...]:
    """The CAs in PEM texts, without the texts that cannot be read."""
    found: list[Certificate] = []
    for text in texts:
        try:
            found += _certificates({"text": text}, "text")
        except StoredError:
            continue
    return tuple(dict.fromkeys(filter(is_authority, found)))


def _data(found: Mapping[str, Any] | None) -> dict[str, bytes]:
    data = (found or {}).get("data") or {}
    decoded: dict[str, bytes] = {}
    for name, text in data.items():
        try:
            decoded[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return decoded
