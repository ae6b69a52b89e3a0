"""The serving certificate, which can be replaced while connections go on, and a throw-away one for trials."""

import hashlib
import os
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from webhook import certificate
from webhook.watched import Change

_LIFE: Final = timedelta(hours=24)


class CertificateError(ValueError):
    """A certificate or key that cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Where a certificate and its key lie, and the CA that signed it where that is ours."""

    certificate: Path
    key: Path
    ca: Path | None = None


class Serving:
    """The certificate served. `context` is for a server to keep; every handshake gets what is then the newest.

    With `client_ca`, a certificate that a client shows must be signed by one of the CAs in that file, or the handshake
    fails. A client may show none: kubelets and Prometheus have none to show, so who needs one is decided by request.

    Files that cannot be used are no reason to stop serving what still works: every replica reads the same files, and
    readiness that followed a typo in them would take all of them away at once. Raises CertificateError.
    """

    def __init__(self, pair: Pair, client_ca: Path | None = None) -> None:
        self._files = (pair.certificate, pair.key, *([client_ca] if client_ca else []))
        self._served = _load(self._files)
        self._seen = self._served.digest
        self._broken = ""
        self.context = self._served.context
        self.context.sni_callback = self._hand_out  # also called for a client that names no server

    @property
    def expires(self) -> float:
        """When the certificate served expires, in seconds since 1970."""
        return self._served.expires

    def problem(self) -> str:
        """What is wrong with the certificate served; empty while it is in force, whatever is on disk by now."""
        return "it has expired" if self.expires <= time.time() else ""

    def remark(self) -> str:
        """Why the files on disk cannot take the place of what is served; empty where they are what is served."""
        return f"the files on disk cannot be used: {self._broken}" if self._broken else ""

    def reload(self) -> Change:
        """Looks at the content of the files and takes over what is new; what cannot be used changes nothing served.

        Says what came of it once for each content: a pair that stays broken is `broken` only the first time.
        """
        try:
            seen = _digest(self._files)
            if seen == self._seen:
                return ""
            served = self._served if seen == self._served.digest else self._loaded()
        except CertificateError as error:
            seen, known = str(error), self._seen
            self._broken = str(error)
            self._seen = seen
            return "" if seen == known else "broken"
        change: Change = "mended" if served is self._served else "swapped"
        self._served, self._seen, self._broken = served, served.digest, ""
        return change

    def _loaded(self) -> "_Loaded":
        loaded = _load(self._files)
        if loaded.expires <= time.time() < self.expires:
            raise CertificateError(f"{self._files[0]} has expired, and the certificate served has not")
        return loaded

    def _hand_out(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._served.context


def throw_away(directory: Path) -> Pair:
    """A CA and a certificate for localhost that it signed, written to `directory` and valid for 24 hours."""
    now = datetime.now(UTC)
    authority, authority_key = certificate.new_authority(now, _LIFE, "drainproof throw-away CA")
    leaf, key = certificate.new_leaf(authority, authority_key, ("localhost", "127.0.0.1", "::1"), now, _LIFE)
    return Pair(
        certificate=_written(directory / "tls.crt", certificate.pem([leaf])),
        key=_written(directory / "tls.key", certificate.key_pem(key)),
        ca=_written(directory / "ca.crt", certificate.pem([authority])),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    digest: str
    expires: float


def _load(files: tuple[Path, ...]) -> _Loaded:
    """A context made completely before anyone sees it: a failed load into a live one breaks its handshakes."""
    chain, key, *client_ca = files
    digest = _digest(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET  # a resumed session would outlive the certificate it began with
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    try:
        expires = x509.load_pem_x509_certificates(chain.read_bytes())[0].not_valid_after_utc.timestamp()
        context.load_cert_chain(chain, key, password=b"")  # never ask for one at a terminal
        if client_ca:
            context.load_verify_locations(client_ca[0])
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"{', '.join(map(str, files))} cannot be used together: {error}") from error
    if _digest(files) != digest:
        raise CertificateError("the files changed while they were read")
    return _Loaded(context, digest, expires)


def _digest(files: tuple[Path, ...]) -> str:
    try:
        return " ".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    except OSError as error:
        raise CertificateError(f"{error.filename} cannot be read: {error.strerror}") from error


def _written(path: Path, content: bytes) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path
