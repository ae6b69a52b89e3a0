"""What hostile and broken clients may try, over sockets, against a process that serves as it does in a cluster.

Whatever they send, it decides no review that was not asked for by the rules of HTTP, answers others meanwhile, and
logs nothing as a fault of ours.
"""

import contextlib
import os
import re
import signal
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest

from tests.test_review import review
from tests.test_serve import BODY, SECONDS, Process, started
from tests.test_server import padded
from tests.test_tls import client_pair
from webhook import intake
from webhook.tls import Pair

HOST: Final = b"host: drainproof\r\n"
LAST: Final = b"connection: close\r\n"
HEALTHZ: Final = b"GET /healthz HTTP/1.1\r\n" + HOST + LAST + b"\r\n"
LIMIT: Final = 512 << 10  # KiB of memory that a Pod of ours may use
ALERT, HANDSHAKE = b"\x15", b"\x16"  # types of a TLS record (RFC 5246, 6.2.1)
PATIENCE: Final = 60.0  # seconds, for what ends by itself after ten

Answers = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One server for all of them, which is well in the end."""
    with started(tmp_path_factory.mktemp("attacked")) as one:
        yield one
        well(one)


@pytest.fixture(autouse=True)
def _answers_others(process: Process) -> Iterator[None]:
    yield
    assert process.got("/healthz") == (200, "ok\n")
    assert process.got("/mutate", BODY)[0] == 200


def well(process: Process) -> None:
    """Asserts that it runs, is within its memory, and has found no fault of ours."""
    assert process.popen.poll() is None
    assert most_memory(process) < LIMIT
    assert not [entry for entry in process.lines() if entry["level"] == "error" or "trace" in entry]


def most_memory(process: Process) -> int:
    """The most memory that it ever had, in KiB."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.popen.pid}/status").read_text())
    assert match
    return int(match[1])


@contextlib.contextmanager
def secure(process: Process, shown: Pair | None = None, **options: int) -> Iterator[ssl.SSLSocket]:
    """A connection over TLS; `options` are set on its socket."""
    context = ssl.create_default_context(cafile=process.ca)
    if shown:
        context.load_cert_chain(shown.certificate, shown.key)
    with socket.socket() as plain:
        plain.settimeout(SECONDS)
        for name, value in options.items():
            plain.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        plain.connect(("127.0.0.1", process.port))
        with context.wrap_socket(plain, server_hostname="localhost") as one:
            yield one


def rest(one: socket.socket) -> bytes:
    """What still comes until the server ends the connection, in whatever way."""
    found = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        while part := one.recv(1 << 16):
            found += part
    return found


def told(process: Process, *parts: bytes) -> Answers:
    """All answers to bytes on a connection of their own, which the server ends."""
    with secure(process) as one:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            for part in parts:
                one.sendall(part)
        return answers(rest(one))


def pushed(process: Process, first: bytes, more: bytes, times: int) -> int:
    """How many times, at most `times`, the server lets a client send `more` that never reads."""
    count = 0
    with secure(process) as one, contextlib.suppress(ssl.SSLError, ConnectionError):
        one.sendall(first)
        while count < times:
            one.sendall(more)
            count += 1
    return count


def answers(text: bytes) -> Answers:
    """Status and body of each answer in what came."""
    found = []
    while text:
        head, _, text = text.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert status, head[:200]
        length = re.search(rb"(?i)^content-length: (\d+)\r?$", head, re.MULTILINE)
        assert length, head
        size = int(length[1])
        found.append((int(status[1]), text[:size]))
        text = text[size:]
    return found


def post(path: bytes = b"/mutate", body: bytes = BODY, more: bytes = b"") -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + length + more + b"\r\n" + body


def asking(uid: str) -> bytes:
    return orjson.dumps(review(uid=uid))


SMUGGLED: Final = post(body=asking("smuggled"), more=LAST)


def decided(process: Process, uid: str) -> bool:
    """Whether a review with this uid has been decided."""
    return uid in {entry.get("uid") for entry in process.lines()}


# Without TLS, with an old one, with a certificate of somebody else.


@pytest.mark.parametrize("sent", [post(body=asking("plain")), HEALTHZ, b"\x00" * 999, b"SSH-2.0-x\r\n"])
def test_without_tls_nothing_is_answered(process: Process, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", process.port), SECONDS) as plain:
        plain.sendall(sent)
        assert b"HTTP/" not in rest(plain)
    assert not decided(process, "plain")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_an_old_tls_is_refused_by_the_server_and_not_by_the_client(process: Process, version: ssl.TLSVersion) -> None:
    assert version_asked(hello(process, version)) == version
    with socket.create_connection(("127.0.0.1", process.port), SECONDS) as plain:
        plain.sendall(hello(process, version))
        assert rest(plain)[:1] in (b"", ALERT)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_newer_tls_is_not_refused(process: Process, version: ssl.TLSVersion) -> None:
    with socket.create_connection(("127.0.0.1", process.port), SECONDS) as plain:
        plain.sendall(hello(process, version))
        assert plain.recv(1) == HANDSHAKE


def hello(process: Process, version: ssl.TLSVersion) -> bytes:
    """The first message of a client that speaks only one version."""
    context = ssl.create_default_context(cafile=process.ca)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else OpenSSL would not even ask for an old one
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.maximum_version = context.minimum_version = version
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def version_asked(message: bytes) -> int:
    """The version in a ClientHello (RFC 5246, 7.4.1.2), after the headers of record and handshake."""
    return int.from_bytes(message[9:11])


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_where_client_certificates_are_asked_for_a_foreign_one_gets_nowhere(
    tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    known, foreign = client_pair(tmp_path, "known"), client_pair(tmp_path, "foreign")
    with started(tmp_path, "--client-ca", str(known.ca)) as process:
        server_pair = Pair(process.ca.with_name("tls.crt"), process.ca.with_name("tls.key"))
        for number, shown in enumerate((foreign, server_pair)):
            assert shown_to(process, shown, newest, f"u-{number}") == []
            assert not decided(process, f"u-{number}")
        assert [status for status, _ in shown_to(process, None, newest, "u-none")] == [403]
        assert not decided(process, "u-none")
        assert [status for status, _ in shown_to(process, known, newest, "u-known")] == [200]
        assert decided(process, "u-known")
        well(process)


def shown_to(process: Process, shown: Pair | None, newest: ssl.TLSVersion, uid: str) -> Answers:
    """The answers to a review from a client that shows a certificate, or none."""
    context = ssl.create_default_context(cafile=process.ca)
    context.maximum_version = newest
    if shown:
        context.load_cert_chain(shown.certificate, shown.key)
    with socket.create_connection(("127.0.0.1", process.port), SECONDS) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as one:
                one.sendall(post(body=asking(uid), more=LAST))
                return answers(rest(one))
        except (ssl.SSLError, ConnectionError):
            return []


# Paths and methods.


@pytest.mark.parametrize(
    "target",
    [
        b"/mutate/../metrics",
        b"/mutate/%2e%2e/metrics",
        b"/%2e%2e/metrics",
        b"/mutate%2f..%2fmetrics",
        b"/mutate/..%252fmetrics",
        b"/mutate\\..\\metrics",
        b"/./metrics",
        b"//metrics",
        b"/metrics/",
        b"/metrics%00",
        b"/metrics%0a",
        b"/metrics;a=b",
        b"/METRICS",
        b"/../../../../etc/passwd",
        b"/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        b"/%ff%fe",
        b"/%zz",
        b"http://169.254.169.254/latest/meta-data",
        b"http://drainproof//metrics",
        b"*",
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"OPTIONS"])
def test_a_path_means_what_it_says_and_leads_nowhere_else(process: Process, method: bytes, target: bytes) -> None:
    ((status, body),) = told(process, method + b" " + target + b" HTTP/1.1\r\n" + HOST + LAST + b"\r\n")
    assert status == 404 or (status == 400 and target == b"*")
    assert b"drainproof_" not in body
    assert b"root:" not in body


@pytest.mark.parametrize("target", [b"//mutate", b"/mutate/../mutate", b"/%2e/mutate", b"/mutate/", b"/mutate%00"])
def test_a_review_has_to_be_sent_to_the_very_path(process: Process, target: bytes) -> None:
    assert [status for status, _ in told(process, post(target, asking("elsewhere"), LAST))] == [404]
    assert not decided(process, "elsewhere")


@pytest.mark.parametrize(
    "line",
    [
        b"GET /met\0rics HTTP/1.1",
        b"GET /\0 HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET ../../etc/passwd HTTP/1.1",
        b"GET  HTTP/1.1",
        b"GET /healthz HTTP/3.7",
        b"GET /healthz HTTP/1.1 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"post /healthz HTTP/1.1",
        b"GET /healthz HTTP/1.1\r\nx: a\0b",
        b"GET /healthz HTTP/1.1\r\nx y: 1",
        b"GET /healthz HTTP/1.1\r\nx: 1\r\n folded",
        b"GET /healthz HTTP/1.1\r\nx: 1\rcontent-length: 5",
        b"GET /healthz HTTP/1.1\nx: 1",
        b"\0GET /healthz HTTP/1.1",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_ended(process: Process, line: bytes) -> None:
    assert [status for status, _ in told(process, line + b"\r\n" + HOST + b"\r\n" + HEALTHZ)] == [400]


@pytest.mark.parametrize("scheme", [b"http", b"https"])
def test_a_whole_url_is_answered_by_us_and_never_fetched(process: Process, scheme: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        url = scheme + b"://127.0.0.1:%d" % elsewhere.getsockname()[1]
        assert told(process, b"GET " + url + b"/healthz HTTP/1.1\r\n" + HOST + LAST + b"\r\n") == [(200, b"ok\n")]
        (answer,) = told(process, post(url + b"/mutate", asking("absolute"), LAST))
        assert answer[0] == 200
        ((status, _),) = told(process, b"CONNECT " + url[len(scheme) + 3 :] + b" HTTP/1.1\r\n" + HOST + LAST + b"\r\n")
        assert status in (400, 404, 405)
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


@pytest.mark.parametrize("path", [b"/mutate", b"/validate", b"/guard", b"/healthz", b"/readyz", b"/metrics"])
def test_only_the_method_of_a_path_does_anything(process: Process, path: bytes) -> None:
    right = (b"GET", b"HEAD") if path in (b"/healthz", b"/readyz", b"/metrics") else (b"POST",)
    secret = b"x-http-method-override: POST\r\nauthorization: Bearer secret\r\n"
    asked = post(path, asking("wrong"), LAST + secret).removeprefix(b"POST")
    for method in {b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PROPFIND"}.difference(right):
        ((status, body),) = told(process, method + asked)
        assert status == 405
        assert b"secret" not in body
    assert [status for status, _ in told(process, b"BREW" + asked)] == [400]
    assert not decided(process, "wrong")


def test_an_upgrade_is_not_made(process: Process) -> None:
    for name in (b"websocket", b"h2c", b"TLS/1.0"):
        wish = b"connection: upgrade, close\r\nupgrade: " + name + b"\r\nsec-websocket-key: eA==\r\n"
        asked = b"GET /healthz HTTP/1.1\r\n" + HOST + wish + b"sec-websocket-version: 13\r\n\r\n"
        assert told(process, asked) == [(200, b"ok\n")]


# Where one request ends and the next begins.


@pytest.mark.parametrize(
    "coding",
    [
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: Chunked",
        b"transfer-encoding:\tchunked",
        b"transfer-encoding : chunked",
        b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding: identity, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"transfer-encoding:\r\n chunked",
        b"transfer-encoding: \x0bchunked",
        b'transfer-encoding: "chunked"',
        b"x: 1\r\n transfer-encoding: chunked",
        b"x: 1\rtransfer-encoding: chunked",
        b"x: 1\ntransfer-encoding: chunked",
        b"\0transfer-encoding: chunked",
    ],
)
@pytest.mark.parametrize("first", ["length", "coding"])
def test_a_body_with_both_a_length_and_a_coding_is_refused_with_all_that_follows(
    process: Process, coding: bytes, first: str
) -> None:
    body = b"0\r\n\r\n" + SMUGGLED  # by its coding it ends where the other begins
    length = b"content-length: %d" % len(body)
    headers = [length, coding] if first == "length" else [coding, length]
    asked = b"POST /mutate HTTP/1.1\r\n" + HOST + b"\r\n".join([*headers, b"", body])
    assert [status for status, _ in told(process, asked)] == [400]
    assert not decided(process, "smuggled")


def test_a_body_whose_length_ends_within_its_chunks_is_refused_too(process: Process) -> None:
    chunk = b"%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n"
    short = b"content-length: %d\r\n" % (chunk.index(b"\r\n") + 2)  # by its length it ends before the other
    for headers in (short + b"transfer-encoding: chunked\r\n", b"transfer-encoding: chunked\r\n" + short):
        asked = b"POST /mutate HTTP/1.1\r\n" + HOST + headers + b"\r\n" + chunk
        assert [status for status, _ in told(process, asked)] == [400]
    assert not decided(process, "smuggled")


@pytest.mark.parametrize(
    "length",
    [b"4, 4", b"+4", b"-4", b"0x4", b"4 4", b"4\r\ncontent-length: 5", b"4\r\ncontent-length: 4", b"", b"9" * 30],
)
def test_a_length_that_is_not_one_number_is_refused_with_all_that_follows(process: Process, length: bytes) -> None:
    asked = b"POST /mutate HTTP/1.1\r\n" + HOST + b"content-length: " + length + b"\r\n\r\nabcd" + SMUGGLED
    assert [status for status, _ in told(process, asked)] == [400]
    assert not decided(process, "smuggled")


@pytest.mark.parametrize(
    "chunks",
    [
        b"0x4\r\nabcd\r\n0\r\n\r\n",
        b"-4\r\nabcd\r\n0\r\n\r\n",
        b"+4\r\nabcd\r\n0\r\n\r\n",
        b"4 \r\nabcd\r\n0\r\n\r\n",
        b"4\nabcd\n0\n\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"5\r\nabcd\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nabcd\r\n0\r\n\r\n",
        b"\r\nabcd\r\n0\r\n\r\n",
        b"4\r\nabcd\r\n0\r\ncontent-length: 9\r\n\r\n",
    ],
)
def test_chunks_that_are_not_well_formed_are_refused_with_all_that_follows(process: Process, chunks: bytes) -> None:
    asked = b"POST /mutate HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n" + chunks + SMUGGLED
    assert [status for status, _ in told(process, asked)] == [400]
    assert not decided(process, "smuggled")


def test_requests_sent_ahead_are_answered_in_their_order(process: Process) -> None:
    uids = [f"ahead-{number}" for number in range(8)]
    large = [b" " * (number % 2 * 200_000) + asking(uid) for number, uid in enumerate(uids)]
    asked = [post(b"/mutate" if number % 3 else b"/validate", body) for number, body in enumerate(large)]
    found = told(process, b"".join(asked) + HEALTHZ)
    assert [status for status, _ in found] == [200] * 9
    assert [orjson.loads(body)["response"]["uid"] for _, body in found[:-1]] == uids


def test_a_long_body_does_not_count_as_headers_of_the_request_that_begins_behind_it(process: Process) -> None:
    for _ in range(5):
        with secure(process) as one:  # while the first is looked at, the end of the second comes in one piece with it
            first, second = (post(body=b" " * size + BODY) for size in (5 << 20, 300_000))
            one.sendall(first + second + HEALTHZ[:20])
            time.sleep(0.2)
            one.sendall(HEALTHZ[20:])
            assert [status for status, _ in answers(rest(one))] == [200] * 3


def test_what_follows_a_request_that_is_refused_is_not_looked_at(process: Process) -> None:
    for bad in (post(body=padded(8 << 20)), b"GET /met\0rics HTTP/1.1\r\n\r\n", post(more=b"content-length: 1\r\n")):
        assert len(told(process, bad + SMUGGLED)) == 1
    assert not decided(process, "smuggled")


def test_a_client_that_asks_without_end_and_reads_nothing_is_cut_off(process: Process) -> None:
    asked = (b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n") * 2000
    before = most_memory(process)
    assert pushed(process, b"", asked, 1000) < 1000
    assert most_memory(process) - before < 32 << 10


# Too much, or too slowly.


def test_many_bodies_without_end_at_once_stay_within_the_memory_of_a_pod(process: Process) -> None:
    head = b"POST /mutate HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"

    def send() -> None:
        if pushed(process, head, chunk, 4096) == 4096:
            broken.append("4 GiB were read")

    broken: list[str] = []
    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not broken
    assert most_memory(process) < LIMIT


def test_a_body_that_is_too_long_is_refused_however_it_is_sent(process: Process) -> None:
    body = padded(8 << 20)
    chunked = [b"%x\r\n" % len(part) + part + b"\r\n" for part in (body[: 5 << 20], body[5 << 20 :])]
    head = b"POST /mutate HTTP/1.1\r\n" + HOST
    for asked in (post(body=body), head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(chunked) + b"0\r\n\r\n"):
        ((status, text),) = told(process, asked)
        assert (status, text) == (413, f"The body is longer than {intake.BODY_BYTES} bytes.\n".encode())


SLOW: Final = {
    "headers that stop": (b"POST /mutate HTT", b"", 0),
    "headers that drip": (b"POST /mutate HTTP/1.1\r\nx: ", b"y", 0),
    "header after header": (b"POST /mutate HTTP/1.1\r\n", b"x: y\r\n", 0),
    "a body that does not begin": (post(body=b"x" * 999)[:-999], b"", 408),
    "a body that stops": (post()[:-1], b"", 408),
    "a body that drips": (post(body=b" " * 9999)[:-9999], b" ", 408),
    "an announced body of 1 GB": (
        b"POST /mutate HTTP/1.1\r\n" + HOST + b"content-length: 1000000000\r\n\r\n",
        b"x",
        408,
    ),
    "chunks that drip": (
        b"POST /mutate HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
        408,
    ),
    "a chunk's size without end": (
        b"POST /mutate HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n",
        b"0",
        408,
    ),
    "100-continue without a body": (post(body=b"x" * 99, more=b"expect: 100-continue\r\n")[:-99], b"", 408),
}


def test_whoever_is_slow_is_not_waited_for_and_holds_up_nobody(process: Process) -> None:
    def drip(name: str) -> None:
        first, drop, _ = SLOW[name]
        with secure(process) as one:
            one.sendall(first)
            one.settimeout(0.3)
            text, began = b"", time.monotonic()
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                while time.monotonic() - began < PATIENCE:
                    try:
                        if not (part := one.recv(1 << 16)):
                            break
                        text += part
                    except TimeoutError:
                        one.sendall(drop)
            ended[name] = (answers(text.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")), time.monotonic() - began)

    ended: dict[str, tuple[Answers, float]] = {}
    threads = [threading.Thread(target=drip, args=(name,)) for name in SLOW for _ in range(3)]
    for thread in threads:
        thread.start()
    took = []
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert process.got("/mutate", BODY)[0] == 200
        took.append(time.monotonic() - began)
        time.sleep(0.2)
    assert max(took) < 5
    assert {name: [status for status, _ in found] for name, (found, _) in ended.items()} == {
        name: [status] if status else [] for name, (_, _, status) in SLOW.items()
    }
    assert all(5 < seconds < PATIENCE for _, seconds in ended.values())


def settled(process: Process) -> int:
    """How many connections there are once those of earlier requests are gone."""
    found = -1
    while found != (found := connections(process)):
        time.sleep(0.3)
    return found


def test_a_client_that_does_not_take_its_answers_is_let_go(tmp_path: Path) -> None:
    with started(tmp_path, TAKE_SECONDS=0.3, WAITING=10**6) as process:
        process.got("/healthz")
        before = settled(process)
        with secure(process, SO_RCVBUF=4096) as one:
            assert connections(process) == before + 1
            until = time.monotonic() + PATIENCE
            while connections(process) > before:
                assert time.monotonic() < until
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    one.sendall((b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n") * 10)
                time.sleep(0.02)
        well(process)


def connections(process: Process) -> int:
    """Its open files, of which each connection is one."""
    return len(os.listdir(f"/proc/{process.popen.pid}/fd"))


def test_a_client_that_does_not_take_its_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    without = {"TAKE_SECONDS": 3600.0, "WAITING": 10**6}  # else it would have been let go before
    with started(tmp_path, "--drain-seconds", "0", **without) as process, secure(process) as one:
        one.sendall((b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n") * 5000)
        process.got("/healthz")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(PATIENCE) == 0
    assert process.lines()[-1]["message"] == "stopped"
