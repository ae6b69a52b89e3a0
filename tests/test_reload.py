"""Policy and facts that change while the server runs: what is taken over and when, and what is kept."""

import asyncio
import logging
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.tables import policy_of
from tests.test_observe import value
from tests.test_review import JOB, review
from tests.test_serve import SECONDS, Process, started
from webhook import observe, policyfile
from webhook.core.policy import Policy
from webhook.core.ruleset import Facts
from webhook.metrics import Metrics
from webhook.review import decide
from webhook.rules import RULES
from webhook.standing import Standing
from webhook.tls import Serving, throw_away
from webhook.watched import Watched

HEAD = {"apiVersion": "drainproof.dev/v1"}
BROKEN = b"apiVersion: drainproof.dev/v1\nkind: Policy\nmode: watch\nrules: {restart-policy: {level: loud}}\n"


def document(kind: str = "Policy", **sections: Any) -> bytes:
    """The content of a file."""
    return orjson.dumps({**HEAD, "kind": kind, **sections})


def facts(version: str = "1.11.0", **node_pools: str) -> bytes:
    return document("Facts", karpenter={"version": version}, nodepools=node_pools)


class Mount:
    """A ConfigMap as a kubelet mounts it: the files are links into `..data`, which is a link that is replaced."""

    def __init__(self, directory: Path, name: str, content: bytes) -> None:
        directory.mkdir()
        self.directory = directory
        self.file = directory / name
        self.versions = 0
        self.write(content)
        self.file.symlink_to(Path("..data") / name)

    def write(self, content: bytes) -> None:
        """Another version of the ConfigMap, which takes the place of the one before at once."""
        before = self.directory / "..data"
        old = before.readlink() if before.is_symlink() else None
        self.versions += 1
        new = self.directory / f"..2026_{self.versions}"
        new.mkdir()
        (new / self.file.name).write_bytes(content)
        (self.directory / "..data_tmp").symlink_to(new.name)
        (self.directory / "..data_tmp").rename(before)
        if old:
            shutil.rmtree(self.directory / old)


def watched(path: Path) -> Watched[Policy]:
    return Watched(path, partial(policyfile.stated, rules=RULES))


def mode(file: Watched[Policy]) -> str:
    assert file.value
    return file.value.mode.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_bytes(document())
    return path


@pytest.fixture
def file(path: Path) -> Watched[Policy]:
    file = watched(path)
    assert file.reload() == "swapped"
    return file


def test_another_content_is_taken_over_at_the_second_look_and_the_same_one_is_not(
    file: Watched[Policy], path: Path
) -> None:
    path.write_bytes(document(mode="monitor"))
    assert [file.reload() for _ in range(4)] == ["", "swapped", "", ""]
    assert (mode(file), file.generation) == ("monitor", 2)
    path.write_bytes(path.read_bytes())
    path.touch()
    assert [file.reload() for _ in range(3)] == [""] * 3
    assert file.generation == 2


def test_what_is_half_written_at_one_look_is_neither_taken_over_nor_refused(file: Watched[Policy], path: Path) -> None:
    whole = b"apiVersion: drainproof.dev/v1\nkind: Policy\nmode: monitor\nowners: [CronJob]\n"
    seen = []
    for part in (b"", whole[:40], whole[:58], whole, whole):
        path.write_bytes(part)
        seen.append(file.reload())
    assert seen == ["", "", "", "", "swapped"]
    assert (file.generation, file.problems) == (2, ())


def test_the_swap_of_a_link_far_above_the_file_is_noticed_by_the_content(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "mount", "policy.yaml", document())
    file = watched(mount.file)
    assert file.reload() == "swapped"
    mount.write(document())
    assert [file.reload(), file.reload()] == ["", ""], "another folder with the same content is nothing new"
    mount.write(document(mode="monitor"))
    assert [file.reload(), file.reload()] == ["", "swapped"]
    assert mode(file) == "monitor"


@pytest.mark.parametrize(
    ("content", "problems"),
    [(BROKEN, 2), (b"", 1), (b"mode: [", 1), (b"\xff\xfe", 1), (facts(), 2), (b"a: 1\n---\nb: 2\n", 1)],
)
def test_a_content_that_is_wrong_keeps_the_last_good_one_and_is_told_once(
    file: Watched[Policy], path: Path, content: bytes, problems: int
) -> None:
    good = file.value
    path.write_bytes(content)
    assert [file.reload() for _ in range(4)] == ["", "broken", "", ""]
    assert (file.value, file.generation, len(file.problems)) == (good, 1, problems)
    assert file.remark().startswith(f"the file cannot be used: {path}")
    assert (f"; and {problems - 1} more" in file.remark()) is (problems > 1)
    path.write_bytes(document())
    assert [file.reload() for _ in range(3)] == ["", "mended", ""]
    assert (file.value, file.generation, file.remark()) == (good, 1, "")


def test_a_file_that_is_gone_or_cannot_be_read_keeps_the_last_good_one_until_it_is_back(
    file: Watched[Policy], path: Path
) -> None:
    path.unlink()
    assert [file.reload() for _ in range(3)] == ["", "broken", ""]
    path.mkdir()
    assert [file.reload() for _ in range(3)] == ["", "broken", ""]
    assert "Is a directory" in file.remark()
    path.rmdir()
    path.write_bytes(document(mode="monitor"))
    assert [file.reload() for _ in range(2)] == ["", "swapped"]
    assert (mode(file), file.generation, file.problems) == ("monitor", 2, ())


def test_one_wrong_content_after_another_is_told_each_time(file: Watched[Policy], path: Path) -> None:
    for content in (BROKEN, b"[]", BROKEN):
        path.write_bytes(content)
        assert [file.reload(), file.reload()] == ["", "broken"]
    assert file.generation == 1


def test_a_file_that_may_come_later_is_no_problem_until_it_was_there_once(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    file = Watched(path, policyfile.facts, optional=True)
    assert [file.reload(), file.reload(), file.remark()] == ["", "", ""]
    path.write_bytes(b"kind: Facts")
    assert [file.reload(), file.reload()] == ["", "broken"]
    path.unlink()
    assert [file.reload(), file.reload(), file.remark()] == ["", "", ""]
    path.write_bytes(facts(batch="30m"))
    assert [file.reload(), file.reload()] == ["", "swapped"]
    assert file.value == Facts((1, 11, 0), (("batch", 1800),))
    path.unlink()
    assert [file.reload(), file.reload()] == ["", "broken"]
    assert file.value == Facts((1, 11, 0), (("batch", 1800),))


# What a server stands on.


@contextmanager
def standing(
    directory: Path, policy: Policy | Watched[Policy], known: Watched[Facts] | None = None
) -> Iterator[tuple[Standing, Metrics]]:
    (directory / "pair").mkdir()
    metrics = observe.metrics()
    yield Standing(Serving(throw_away(directory / "pair")), policy, known, metrics), metrics


def looked(one: Standing) -> Policy:
    """The policy in force after two looks."""
    for _ in range(2):
        asyncio.run(one.look())
    assert one.state.policy
    return one.state.policy


def test_a_change_is_logged_once_counted_and_shown(
    file: Watched[Policy], path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    with standing(tmp_path, file) as (one, metrics):
        first = one.state.policy
        assert one.remarks()["policy"] == "ok, generation 1"
        path.write_bytes(BROKEN)
        assert looked(one) is first
        looked(one)
        (record,) = caplog.records
        assert (record.message, record.levelname) == ("policy not taken over", "ERROR")
        told = record.__dict__["fields"]
        assert [problem.partition(": ")[2].partition(": ")[0] for problem in told["problems"]] == [
            "rules.restart-policy.level",
            "mode",
        ]
        assert one.remarks()["policy"].startswith(
            f"generation 1 is in force; the file cannot be used: {path}:4: rules.restart-policy.level: "
        )
        assert not any(one.state.problems().values()), "it stays ready"
        path.write_bytes(document(mode="monitor"))
        before = time.time()
        assert looked(one).mode.value == "monitor"
        assert one.remarks()["policy"] == "ok, generation 2"
        assert caplog.records[1].message == "policy taken over"
        assert len(caplog.records) == 2
    outcomes = [value(metrics, "drainproof_policy_reloads_total", outcome=name) for name in ("loaded", "refused")]
    assert outcomes == [1, 1]
    assert value(metrics, "drainproof_policy_generation") == 2
    assert before <= (value(metrics, "drainproof_policy_loaded_timestamp_seconds") or 0) <= time.time()


def test_without_a_file_the_default_policy_is_generation_1_and_stays(tmp_path: Path) -> None:
    default = policy_of()
    with standing(tmp_path, default) as (one, metrics):
        assert looked(one) is default
        assert one.remarks() == {"policy": "ok, the default policy", "certificate": "ok"}
        assert value(metrics, "drainproof_policy_generation") == 1
        assert value(metrics, "drainproof_policy_reloads_total", outcome="loaded") == 0


@pytest.mark.parametrize("first", ["facts", "policy"])
def test_facts_count_in_a_new_policy_and_new_facts_in_the_policy_that_there_is(
    file: Watched[Policy], path: Path, tmp_path: Path, first: str
) -> None:
    known = tmp_path / "facts.yaml"
    with standing(tmp_path, file, Watched(known, policyfile.facts, optional=True)) as (one, metrics):
        assert one.remarks()["facts"] == "ok, none yet"
        steps = [(known, facts(batch="30m")), (path, document(platform={"nodepools": "auto"}))]
        for changed, content in steps if first == "facts" else reversed(steps):
            changed.write_bytes(content)
            context = looked(one).ruleset.context
        assert (context.karpenter, [place.grants for place in context.places]) == ((1, 11, 0), [1800])
        assert one.remarks()["facts"] == "ok, generation 1"
        known.write_bytes(facts("1.12.1", batch="1h"))
        context = looked(one).ruleset.context
        assert (context.karpenter, [place.grants for place in context.places]) == ((1, 12, 1), [3600])
        path.write_bytes(document(karpenter={"version": "1.13.0"}, platform={"nodepools": {"own": "10m"}}))
        context = looked(one).ruleset.context
        assert (context.karpenter, [place.grants for place in context.places]) == ((1, 13, 0), [600])
        assert value(metrics, "drainproof_facts_generation") == 2
        assert value(metrics, "drainproof_policy_generation") == 3


def test_facts_that_are_wrong_stop_nothing_and_are_told(
    file: Watched[Policy], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = tmp_path / "facts.yaml"
    known.write_bytes(facts("new"))
    with standing(tmp_path, file, Watched(known, policyfile.facts, optional=True)) as (one, metrics):
        assert [record.message for record in caplog.records] == ["facts not taken over"]
        assert value(metrics, "drainproof_facts_reloads_total", outcome="refused") == 1
        assert one.state.policy == file.value
        assert one.remarks()["facts"].startswith(f"none is in force; the file cannot be used: {known}")
        known.write_bytes(facts())
        assert looked(one).ruleset.context.karpenter == (1, 11, 0)
        known.write_bytes(b"")
        assert looked(one).ruleset.context.karpenter == (1, 11, 0)
        assert one.remarks()["facts"].startswith("generation 1 is in force; the file cannot be used: ")
        assert not any(one.state.problems().values())


def test_a_fault_of_ours_does_not_end_the_looking(
    file: Watched[Policy], path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises() -> None:
        monkeypatch.undo()
        raise KeyError("a bug")

    async def changed(one: Standing) -> None:
        keeping_up = asyncio.create_task(one.keep_up(0.02))
        while value(metrics, "drainproof_policy_generation") == 1:
            await asyncio.sleep(0.01)
        keeping_up.cancel()

    path.write_bytes(document(mode="monitor"))
    with standing(tmp_path, file) as (one, metrics):
        monkeypatch.setattr(file, "reload", raises)
        asyncio.run(asyncio.wait_for(changed(one), SECONDS))
    assert [record.message for record in caplog.records] == ["files not looked at"]
    assert caplog.records[0].exc_info


# The real process.


def test_a_running_process_takes_over_a_policy_and_facts_within_the_time_given(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "mount", "policy.yaml", document())
    known = tmp_path / "facts.yaml"
    with started(tmp_path, "--policy", str(mount.file), "--facts", str(known)) as process:
        assert process.got("/readyz?verbose")[1].splitlines() == [
            "policy: ok, generation 1",
            "certificate: ok",
            "draining: ok",
            "facts: ok, none yet",
        ]
        mount.write(document(mode="monitor"))
        known.write_bytes(facts())
        begun = time.monotonic()
        assert process.waited("policy taken over")["generation"] == 2
        assert process.waited("facts taken over")["generation"] == 1
        assert time.monotonic() - begun < 4
        assert "patch" not in process.got("/mutate", orjson.dumps(review()))[1]
        mount.write(b"")
        assert process.waited("policy not taken over")["problems"]
        status, text = process.got("/readyz?verbose")
        assert status == 200
        assert f"policy: generation 2 is in force; the file cannot be used: {mount.file}: the document: " in text
        assert "drainproof_policy_generation 2.0" in process.got("/metrics")[1]


def test_a_process_starts_with_facts_that_are_wrong_and_says_so(tmp_path: Path) -> None:
    known = tmp_path / "facts.yaml"
    known.write_bytes(b"kind: Fact")
    with started(tmp_path, "--facts", str(known)) as process:
        assert len(process.waited("facts not taken over")["problems"]) == 2
        assert process.status("/readyz") == 200


ONE: dict[str, Any] = {
    "rules": {"grace-budget": {"level": "deny", "margin": "5s"}, "restart-policy": {"on-failure": "convert"}}
}
OTHER: dict[str, Any] = {
    "rules": {"grace-budget": {"level": "warn", "margin": "3s"}, "restart-policy": {"on-failure": "keep"}},
    "exempt": [{"namespaces": ["batch-*"], "reason": "moved elsewhere"}],
}
TIGHT: Any = {
    **JOB,
    "spec": {
        "template": {
            "metadata": {"annotations": {"drainproof.dev/max-task-duration": "28s"}},
            "spec": {**JOB["spec"]["template"]["spec"], "terminationGracePeriodSeconds": 20},
        }
    },
}
CONNECTIONS = 8
FLIPS = 100


def questions() -> dict[tuple[str, bytes], set[bytes]]:
    """Each path and body that is asked, and the answers of the two policies to it."""
    found = {}
    for number, namespace in enumerate(("reports", "batch-1")):
        job = {**TIGHT, "metadata": {"name": "nightly", "namespace": namespace}}
        body = orjson.dumps(review(uid=f"u-{number}", namespace=namespace, object=job))
        for deed in ("mutate", "validate"):
            answers = {decide(body, policy_of(**sections), deed)[2] for sections in (ONE, OTHER)}
            found[f"/{deed}", body] = answers
    return found


class Load:
    """Clients that ask without a pause over connections that they keep, each one question after another."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.questions = questions()
        self.answers: dict[tuple[str, bytes], dict[bytes, int]] = {question: {} for question in self.questions}
        self.latest: dict[tuple[str, bytes], bytes] = {}
        self.asked = 0
        self.over = False

    async def run(self, mount: Mount) -> float:
        """Asks until the policy was changed FLIPS times, each as soon as the one before counts; the seconds it took."""
        begun = time.monotonic()
        clients = [asyncio.create_task(self.client()) for _ in range(CONNECTIONS)]
        question = next(iter(self.questions))
        for flip in range(FLIPS):
            sections = ONE if flip % 2 else OTHER
            mount.write(document(**sections))
            wanted = decide(question[1], policy_of(**sections), "mutate")[2]
            until = begun + (flip + 1) * SECONDS
            while self.latest.get(question) != wanted and time.monotonic() < until:
                await asyncio.sleep(0.002)
        self.over = True
        await asyncio.gather(*clients)
        return time.monotonic() - begun

    async def client(self) -> None:
        context = ssl.create_default_context(cafile=self.process.ca)
        reader, writer = await asyncio.open_connection("localhost", self.process.port, ssl=context)
        while not self.over:
            for path, body in self.questions:
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                self.asked += 1
                answer = await received(reader)
                self.latest[path, body] = answer
                counts = self.answers[path, body]
                counts[answer] = counts.get(answer, 0) + 1
        writer.close()
        await writer.wait_closed()


async def received(reader: asyncio.StreamReader) -> bytes:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)).lower()
    assert head.startswith(b"http/1.1 200 ")
    assert b"connection: close" not in head
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


def test_under_load_every_answer_is_wholly_of_one_policy_while_the_file_goes_back_and_forth(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "mount", "policy.yaml", document(**ONE))
    with started(tmp_path, "--policy", str(mount.file), "--reload-seconds", "0.04") as process:
        load = Load(process)
        assert all(len(answers) == 2 for answers in load.questions.values()), "the two policies differ in each"
        seconds = asyncio.run(load.run(mount))
        metrics = dict(line.rsplit(" ", 1) for line in process.got("/metrics")[1].splitlines() if line[0] != "#")
    answered = sum(sum(counts.values()) for counts in load.answers.values())
    loaded = float(metrics['drainproof_policy_reloads_total{outcome="loaded"}'])
    print(f"{answered} answers, {answered / seconds:.0f} a second, {loaded:.0f} policies loaded")
    assert answered == load.asked
    assert {question: set(counts) for question, counts in load.answers.items()} == load.questions
    assert loaded == FLIPS
    assert float(metrics['drainproof_policy_reloads_total{outcome="refused"}']) == 0
    assert len([entry for entry in process.lines() if entry["message"] == "review decided"]) == answered
    assert answered > 10 * FLIPS
