"""The serving certificate over real handshakes: versions, replacing it while connections go on, client certificates."""

import asyncio
import shutil
import socket
import ssl
import stat
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from webhook.tls import CertificateError, Pair, Serving, throw_away

SECONDS = 10.0


@contextmanager
def echo(context: ssl.SSLContext) -> Iterator[int]:
    """A TLS server that sends back each line, in a thread of its own; the port."""
    started: list[int] = []
    ready, stop = threading.Event(), []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # handshakes that are to fail
        stop.append(lambda: loop.call_soon_threadsafe(done.set))
        started.append(server.sockets[0].getsockname()[1])
        ready.set()
        await done.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(SECONDS)
    try:
        yield started[0]
    finally:
        stop[0]()
        thread.join(SECONDS)
        assert not thread.is_alive()


def client(pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pair.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@contextmanager
def connected(port: int, context: ssl.SSLContext, name: str = "localhost") -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        yield secure


def said_back(connection: ssl.SSLSocket) -> bytes:
    connection.sendall(b"hello\n")
    return connection.recv(100)


def is_ended(connection: ssl.SSLSocket) -> bool:
    try:
        return said_back(connection) == b""
    except OSError:
        return True


def serial(connection: ssl.SSLSocket) -> int:
    content = connection.getpeercert(binary_form=True)
    assert content is not None
    return x509.load_der_x509_certificate(content).serial_number


def leaf(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def replaced(pair: Pair, by: Pair) -> Callable[[], None]:
    """A deed that puts `by` in the place of `pair`."""

    def put() -> None:
        shutil.copy(by.certificate, pair.certificate)
        shutil.copy(by.key, pair.key)

    return put


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return made(tmp_path, "first")


@pytest.fixture
def other(tmp_path: Path) -> Pair:
    return made(tmp_path, "second")


def made(directory: Path, name: str) -> Pair:
    (directory / name).mkdir()
    return throw_away(directory / name)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_the_throw_away_certificate_is_good_for_every_way_to_say_localhost(pair: Pair, name: str) -> None:
    with echo(Serving(pair).context) as port, connected(port, client(pair), name) as connection:
        assert said_back(connection) == b"hello\n"


def test_the_throw_away_certificate_is_good_for_openssl_and_only_as_a_server(pair: Pair) -> None:
    assert pair.ca
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", str(pair.ca)]
    for purpose, well in (("sslserver", True), ("sslclient", False)):
        done = subprocess.run(
            [*verify, "-purpose", purpose, str(pair.certificate)], capture_output=True, timeout=SECONDS
        )
        assert (done.returncode == 0) is well


def test_the_throw_away_files_are_for_their_owner_only_and_last_a_day(pair: Pair) -> None:
    assert pair.ca
    for path in (pair.certificate, pair.key, pair.ca):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 23.9 * 3600 < Serving(pair).expires - time.time() <= 24 * 3600


def test_tls_1_1_is_refused_and_for_no_other_reason_than_its_version(pair: Pair) -> None:
    context, old = Serving(pair).context, client(pair)
    for side in (context, old):
        side.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL's own floor would hide ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with echo(context) as port, pytest.raises(ssl.SSLError), connected(port, old):
            pass
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        with echo(context) as port, connected(port, old) as connection:
            assert connection.version() == "TLSv1.1"


def test_tls_1_2_is_taken(pair: Pair) -> None:
    context = client(pair)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with echo(Serving(pair).context) as port, connected(port, context) as connection:
        assert connection.version() == "TLSv1.2"
        assert said_back(connection) == b"hello\n"


def test_a_new_pair_is_served_to_new_connections_while_old_ones_go_on(pair: Pair, other: Pair) -> None:
    serving, old = Serving(pair), leaf(pair).serial_number
    with echo(serving.context) as port, connected(port, client(pair)) as before:
        assert serial(before) == old
        replaced(pair, other)()
        assert serving.reload() == "swapped"
        assert serving.reload() == ""
        with connected(port, client(other)) as after:
            assert serial(after) == leaf(other).serial_number != old
            assert said_back(after) == b"hello\n"
        assert said_back(before) == b"hello\n"
    assert serving.problem() == ""
    assert serving.expires == leaf(other).not_valid_after_utc.timestamp()


def test_a_client_that_names_no_server_gets_the_new_certificate_too(pair: Pair, other: Pair) -> None:
    serving = Serving(pair)
    replaced(pair, other)()
    serving.reload()
    context = client(other)
    context.check_hostname = False
    with (
        echo(serving.context) as port,
        socket.create_connection(("127.0.0.1", port), SECONDS) as plain,
        context.wrap_socket(plain) as connection,
    ):
        assert serial(connection) == leaf(other).serial_number


def test_a_half_written_pair_keeps_the_old_one_and_is_told_once(pair: Pair, other: Pair) -> None:
    serving, old = Serving(pair), leaf(pair).serial_number
    ca = client(pair)
    with echo(serving.context) as port:
        shutil.copy(other.certificate, pair.certificate)  # the key is still the old one's
        assert serving.reload() == "broken"
        assert serving.reload() == ""
        assert serving.problem() == ""
        assert "cannot be used" in serving.remark()
        with connected(port, ca) as connection:
            assert serial(connection) == old
        shutil.copy(other.key, pair.key)
        assert serving.reload() == "swapped"
        assert serving.remark() == ""
        with connected(port, client(other)) as connection:
            assert serial(connection) == leaf(other).serial_number


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", None]
)
def test_a_certificate_that_is_no_longer_one_keeps_the_old_one_until_it_is_back(
    pair: Pair, content: bytes | None
) -> None:
    serving, before = Serving(pair), pair.certificate.read_bytes()
    if content is None:
        pair.certificate.unlink()
    else:
        pair.certificate.write_bytes(content)
    assert [serving.reload(), serving.reload()] == ["broken", ""]
    assert serving.remark()
    assert serving.problem() == ""
    pair.certificate.write_bytes(before)
    assert [serving.reload(), serving.reload()] == ["mended", ""]
    assert serving.remark() == ""


def test_a_pair_that_cannot_be_served_is_refused_at_the_start(pair: Pair, other: Pair, tmp_path: Path) -> None:
    for bad in (Pair(pair.certificate, other.key), Pair(tmp_path / "none", pair.key), Pair(pair.key, pair.key)):
        with pytest.raises(CertificateError, match="cannot be"):
            Serving(bad)


def test_a_certificate_that_has_expired_is_a_problem(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving(pair)
    monkeypatch.setattr("webhook.tls.time.time", lambda: serving.expires + 1)
    assert serving.problem() == "it has expired"


def test_a_certificate_that_has_expired_does_not_take_the_place_of_one_that_has_not(
    pair: Pair, other: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.tls._LIFE", timedelta(hours=2))
    (pair.certificate.parent / "short").mkdir()
    short = throw_away(pair.certificate.parent / "short")
    serving = Serving(pair)
    replaced(pair, short)()
    monkeypatch.setattr("webhook.tls.time.time", lambda: serving.expires - 3600)
    assert [serving.reload(), serving.reload()] == ["broken", ""]
    assert "has expired" in serving.remark()
    assert serving.problem() == ""
    replaced(pair, other)()
    assert serving.reload() == "swapped"
    assert serving.remark() == ""


def test_where_the_one_served_has_expired_too_the_one_on_disk_is_taken_over(
    pair: Pair, other: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = Serving(pair)
    monkeypatch.setattr("webhook.tls.time.time", lambda: serving.expires + 60)
    replaced(pair, other)()
    assert serving.reload() == "swapped"
    assert serving.problem() == "it has expired"


@pytest.mark.parametrize("replace", [False, True])
def test_a_client_may_show_no_certificate_but_none_of_another_ca(
    pair: Pair, other: Pair, clients: Pair, tmp_path: Path, replace: bool
) -> None:
    assert clients.ca
    serving, ca = Serving(pair, clients.ca), pair
    if replace:
        clients = client_pair(tmp_path, "newer")
        assert clients.ca
        shutil.copy(clients.ca, tmp_path / "client-ca")
        replaced(pair, other)()
        assert serving.reload() == "swapped"
        ca = other
    foreign = client_pair(tmp_path, "foreign")
    with echo(serving.context) as port:
        for shown, comes_in in ((clients, True), (None, True), (foreign, False), (pair, False)):
            context = client(ca)
            if shown:
                context.load_cert_chain(shown.certificate, shown.key)
            with connected(port, context) as connection:  # in TLS 1.3 a client learns of it only with its first read
                assert is_ended(connection) is not comes_in


@pytest.fixture
def clients(tmp_path: Path) -> Pair:
    return client_pair(tmp_path, "client")


def client_pair(directory: Path, name: str) -> Pair:
    """A client certificate and its CA, made with openssl: ours are for servers only."""
    ca, ca_key, key, certificate = (directory / f"{name}-{what}" for what in ("ca", "ca-key", "key", "crt"))
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 1"
    commands = [
        f"{new} -subj /CN={name}s -keyout {ca_key} -out {ca}",
        f"{new} -subj /CN=apiserver -addext extendedKeyUsage=clientAuth -addext basicConstraints=critical,CA:FALSE"
        f" -CA {ca} -CAkey {ca_key} -keyout {key} -out {certificate}",
    ]
    for command in commands:
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, timeout=SECONDS)
    return Pair(certificate, key, ca)
