"""A webhook that is gone, hangs or is sent rubbish: Jobs are created all the same, and it answers again."""

import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.cluster import deployment, process
from tests.cluster.answer import Answer, create
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment, Endpoint
from tests.tables import CASES
from webhook import tls
from webhook.intake import BODY_BYTES, BODY_SECONDS

NAMESPACE: Final = "outage"
CALL_SECONDS: Final = 3  # timeoutSeconds of the shipped configurations
WRITTEN: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": NAMESPACE},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "OnFailure",
                "containers": [{"name": "worker", "image": "example.test/worker:1"}],
            }
        }
    },
}


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


@dataclass(frozen=True)
class Site:
    """A port and a certificate that outlast the process which serves there."""

    port: int
    pair: tls.Pair
    directory: Path

    @property
    def endpoint(self) -> Endpoint:
        assert self.pair.ca is not None
        return Endpoint(f"https://localhost:{self.port}", self.pair.ca)

    @contextmanager
    def serving(self) -> Iterator[process.Process]:
        """Our webhook at this site; on entering it listens, on leaving it has ended."""
        words = [*("--certificate", str(self.pair.certificate)), *("--key", str(self.pair.key))]
        words += ["--host", "127.0.0.1", "--port", str(self.port), "--drain-seconds", "0"]
        command = [sys.executable, "-m", "webhook", "serve", *words]
        environment = {**os.environ, "PYTHONPATH": str(deployment.ROOT)}
        started = process.start("drainproof", command, self.directory / "webhook.log", environment)
        try:
            process.wait_ready([started], lambda: status(self.endpoint, "GET", "/readyz") == 200)
            yield started
        finally:
            process.stop(started)


def status(endpoint: Endpoint, method: str, path: str) -> int | None:
    """The HTTP status of a request without a body; None where nobody answers."""
    try:
        return asked(endpoint, method, path)[0]
    except OSError:
        return None


def asked(endpoint: Endpoint, method: str, path: str, body: bytes | None = None) -> tuple[int, str, dict[str, str]]:
    """The status, the text and the headers (names in small letters) that a request of its own connection gets."""
    with connected(endpoint) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[http.client.HTTPSConnection]:
    """A connection that takes the endpoint's certificate only from its CA; closed on leaving."""
    address = urlsplit(endpoint.url)
    assert address.hostname is not None
    context = ssl.create_default_context(cafile=str(endpoint.ca))
    with closing(http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=context)) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def namespace(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", NAMESPACE)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(free_port(), tls.throw_away(tmp_path), tmp_path)


def job(name: str) -> dict[str, Any]:
    return {**WRITTEN, "metadata": {"namespace": NAMESPACE, "name": name}}


def timed(plane: ControlPlane, name: str) -> tuple[Answer, float]:
    """What comes of creating a Job, and how many seconds it took."""
    started = time.monotonic()
    answer = create(plane, job(name), dry_run=False)
    return answer, time.monotonic() - started


def is_mended(answer: Answer) -> bool:
    """Whether a Job was admitted as we make it, or as it is written (and nothing in between)."""
    assert answer.admitted is not None, answer.error
    spec = answer.admitted["spec"]
    found = ("podFailurePolicy" in spec, spec["template"]["spec"]["restartPolicy"], spec["podReplacementPolicy"])
    assert found in ((True, "Never", "Failed"), (False, "OnFailure", "TerminatingOrFailed"))
    return found[0]


def configurations(site: Site, failure_policy: str) -> list[dict[str, Any]]:
    documents = deployment.configurations(site.endpoint)
    for webhook in (webhook for document in documents for webhook in document["webhooks"]):
        webhook["failurePolicy"] = failure_policy
    return documents


def test_the_shipped_configurations_let_objects_through_when_the_webhook_is_gone(site: Site) -> None:
    documents = deployment.configurations(site.endpoint)
    webhooks = [webhook for document in documents for webhook in document["webhooks"]]
    assert {(webhook["failurePolicy"], webhook["timeoutSeconds"]) for webhook in webhooks} == {("Ignore", CALL_SECONDS)}


def test_jobs_are_created_as_written_while_the_webhook_is_gone_and_mended_once_it_is_back(
    site: Site, control_plane: ControlPlane
) -> None:
    documents = deployment.configurations(site.endpoint)
    with ExitStack() as stack:
        with site.serving():
            stack.enter_context(deployment.registered(control_plane, documents, deployment.mends_and_judges))
        answer, seconds = timed(control_plane, "gone")
        assert not is_mended(answer)
        assert answer.warnings == []
        assert seconds < CALL_SECONDS - 1
        with site.serving():
            answer, seconds = timed(control_plane, "back")
            assert is_mended(answer)
            assert seconds < CALL_SECONDS - 1


def test_a_webhook_that_hangs_delays_a_job_by_its_two_calls_at_most(site: Site, control_plane: ControlPlane) -> None:
    with (
        site.serving() as webhook,
        deployment.registered(control_plane, deployment.configurations(site.endpoint), deployment.mends_and_judges),
    ):
        webhook.popen.send_signal(signal.SIGSTOP)
        try:
            answer, seconds = timed(control_plane, "hung")
        finally:
            webhook.popen.send_signal(signal.SIGCONT)
        assert not is_mended(answer)
        assert 2 * CALL_SECONDS <= seconds < 2 * CALL_SECONDS + 2
        assert is_mended(timed(control_plane, "awake")[0])


def test_with_failure_policy_fail_jobs_are_refused_while_the_webhook_is_gone(
    site: Site, control_plane: ControlPlane
) -> None:
    def is_refusing(plane: ControlPlane) -> bool:
        return "failed calling webhook" in create(plane, job("canary")).error

    with deployment.registered(control_plane, configurations(site, "Fail"), is_refusing):
        answer, seconds = timed(control_plane, "refused")
        assert answer.admitted is None
        assert 'failed calling webhook "jobs.mutate.drainproof.dev"' in answer.error
        assert seconds < CALL_SECONDS - 1
        assert "NotFound" in control_plane.kubectl("get", "job", "refused", "-n", NAMESPACE, check=False).stderr
        with site.serving():
            assert is_mended(timed(control_plane, "served")[0])
    deployment.wait_until_alone(control_plane)


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Our webhook, for requests that no API server sends."""
    with deployment.serving(tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


GOOD: Final = (CASES / "reviews" / "053-onfailure-resume-file-in-emptydir.0.mutate.json").read_bytes()


def altered(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The good review with a change."""
    review = json.loads(GOOD)
    change(review)
    return json.dumps(review).encode()


NO_REVIEW: Final = {
    "nothing": (b"", "The body is empty; an AdmissionReview was expected."),
    "blanks": (b" \n", "The body is empty; an AdmissionReview was expected."),
    "no JSON": (b"apiVersion: v1", "The body is not JSON: "),
    "JSON that breaks off": (GOOD[:-1], "The body is not JSON: "),
    "a list": (b"[]", "The body is JSON but not a map; an AdmissionReview was expected."),
    "deep JSON": (b"[" * 100_000, "The body is not JSON: "),
    "bytes that are no text": (b"\xff\xfe\x00", "The body is not JSON: "),
    "another apiVersion": (
        altered(lambda review: review.update(apiVersion="admission.k8s.io/v1beta1")),
        'The apiVersion "admission.k8s.io/v1beta1" is not known; admission.k8s.io/v1 was expected.',
    ),
    "another kind": (
        altered(lambda review: review.update(kind="SubjectAccessReview")),
        'The kind "SubjectAccessReview" is not known; AdmissionReview was expected.',
    ),
    "no request": (altered(lambda review: review.pop("request")), "The review has no request."),
    "no uid": (altered(lambda review: review["request"].pop("uid")), "The request has no uid."),
    "an uid that is a number": (
        altered(lambda review: review["request"].update(uid=1)),
        "The uid of the request is not a string.",
    ),
    "another operation": (
        altered(lambda review: review["request"].update(operation="PATCH")),
        'The operation "PATCH" is not one of CREATE, UPDATE, DELETE, CONNECT.',
    ),
    "an object that is a text": (
        altered(lambda review: review["request"].update(object="text")),
        "The object of the request is neither a map nor null.",
    ),
}


def is_answered(connection: http.client.HTTPSConnection) -> bool:
    """Whether a good review gets its answer on this connection."""
    connection.request("POST", "/mutate", GOOD, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    response = json.loads(answer.read())["response"]
    uid: str = json.loads(GOOD)["request"]["uid"]
    return answer.status == 200 and response["uid"] == uid and response["allowed"] is True


def is_serving(webhook: Deployment) -> bool:
    """Whether a good review gets its answer on a connection of its own."""
    with connected(webhook) as connection:
        return is_answered(connection)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("name", NO_REVIEW)
def test_what_is_no_review_gets_a_sentence_and_the_next_review_on_the_connection_an_answer(
    name: str, path: str, webhook: Deployment
) -> None:
    body, sentence = NO_REVIEW[name]
    with connected(webhook) as connection:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 400
        assert text.startswith(sentence)
        assert text.endswith(".\n")
        assert text.count("\n") == 1
        assert is_answered(connection)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/mutate", 405),
        ("PUT", "/validate", 405),
        ("POST", "/", 404),
        ("POST", "/mutate/", 404),
        ("POST", "/unknown", 404),
    ],
)
def test_a_wrong_method_and_an_unknown_path_are_told_apart(
    method: str, path: str, expected: int, webhook: Deployment
) -> None:
    code, text, headers = asked(webhook, method, path, GOOD)
    assert code == expected
    assert text.startswith({405: "This method is not allowed here; use POST", 404: "There is nothing here"}[code])
    assert headers.get("allow") == ("POST" if code == 405 else None)
    assert is_serving(webhook)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "in chunks"])
def test_a_body_of_8_mib_is_refused_with_its_limit(chunked: bool, webhook: Deployment) -> None:
    body = bytes(8 << 20)
    pieces = (body[start : start + (1 << 20)] for start in range(0, len(body), 1 << 20))
    with connected(webhook) as connection:
        connection.request("POST", "/mutate", pieces if chunked else body)
        answer = connection.getresponse()
        assert (answer.status, answer.read().decode()) == (413, f"The body is longer than {BODY_BYTES} bytes.\n")
        assert answer.getheader("connection") == "close"
    assert is_serving(webhook)


def send_half(connection: http.client.HTTPSConnection) -> None:
    """Announces the good review and sends the first half of it."""
    connection.putrequest("POST", "/mutate")
    connection.putheader("Content-Length", str(len(GOOD)))
    connection.endheaders(GOOD[: len(GOOD) // 2])


def test_half_a_body_is_waited_for_only_so_long_while_others_are_answered(webhook: Deployment) -> None:
    with connected(webhook) as connection:
        started = time.monotonic()
        send_half(connection)
        assert is_serving(webhook)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert BODY_SECONDS - 1 <= time.monotonic() - started < BODY_SECONDS + 2
        assert (answer.status, text) == (408, "The body did not arrive within 10 seconds.\n")
        assert answer.getheader("connection") == "close"
    assert is_serving(webhook)


def test_a_client_that_goes_away_in_the_middle_disturbs_nobody(webhook: Deployment) -> None:
    with connected(webhook) as connection:
        send_half(connection)
    assert is_serving(webhook)


def test_plain_http_gets_no_answer_and_disturbs_nobody(webhook: Deployment) -> None:
    with socket.create_connection(("127.0.0.1", int(urlsplit(webhook.url).port or 0)), timeout=10) as plain:
        plain.sendall(b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert b"HTTP/" not in plain.recv(1 << 10)
    assert is_serving(webhook)


def test_the_log_has_one_line_for_each_request_that_was_not_decided(webhook: Deployment) -> None:
    before = undecided(webhook)
    for body, _ in NO_REVIEW.values():
        asked(webhook, "POST", "/mutate", body)
    assert undecided(webhook)[len(before) :] == [("not-a-review", "warning")] * len(NO_REVIEW)


def undecided(webhook: Deployment) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in webhook.log.read_text().splitlines() if line.startswith("{")]
    return [(line["reason"], line["level"]) for line in lines if line["message"] == "review not decided"]
