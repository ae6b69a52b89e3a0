"""Lines of the container runtime and of programs become what happened, and a gap in the record ends all waiting."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import record
from tests.lab.history import Act, Word
from tests.lab.record import Record, RecordError

OFFSET = 1_700_000_000.0  # what the wall clock is ahead of the machine's; 1767225600 is 2026-01-01T00:00:00Z
ZERO = 1_767_225_600 - OFFSET
WALL = 1_767_225_602


def line(topic: str, clock: str = "00:00:00.25", **event: object) -> str:
    return f"2026-01-01 {clock} +0000 UTC k8s.io {topic} {json.dumps(event)}\n"


@pytest.mark.parametrize(
    ("told", "act"),
    [
        (line("/tasks/start", container_id="a", pid=1), Act(ZERO + 0.25, "a")),
        (line("/tasks/start", "00:00:01", container_id="a", pid=1), Act(ZERO + 1, "a")),
        (line("/tasks/exec-started", container_id="a", exec_id="hook", pid=2), Act(ZERO + 0.25, "hook")),
        (
            line(
                "/tasks/exit",
                container_id="a",
                id="a",
                exit_status=137,
                exited_at={"seconds": 1767225602, "nanos": 5e8},
            ),
            Act(ZERO + 2.5, "a", 137),
        ),
        (line("/tasks/exit", container_id="a", id="hook", exited_at={"seconds": WALL}), Act(ZERO + 2, "hook", 0)),
    ],
)
def test_what_the_runtime_tells_has_the_time_that_it_tells(told: str, act: Act) -> None:
    kept = Record(OFFSET)
    record._take_act(kept, told)
    (found,) = kept.acts["a"]
    assert (found.process, found.code) == (act.process, act.code)
    assert found.at == pytest.approx(act.at, abs=1e-5)


def test_other_events_of_the_runtime_are_nothing_to_it() -> None:
    kept = Record(OFFSET)
    record._take_act(kept, line("/snapshot/prepare", key="a"))
    assert not kept.acts


def test_what_programs_say_is_read_as_it_is_written_also_after_the_log_is_gone(tmp_path: Path) -> None:
    kept, ending = Record(), threading.Event()
    path = tmp_path / "lab_pod_uid-1" / "main" / "0.log"
    path.parent.mkdir(parents=True)
    listening = threading.Thread(target=record._listen, args=(kept, tmp_path, ending))
    listening.start()
    with path.open("w") as log:
        log.write("2026-01-01T00:00:00Z stdout F 12.50 begins\n2026-01-01T00:00:00Z stderr F 1.0 not said\n2026")
        log.flush()
        kept.until(lambda: kept.words.get("uid-1"), "a word", 10)
        path.unlink()
        log.write("-01-01T00:00:01Z stdout F 13.75 SIGTERM\n2026-01-01T00:00:00Z stdout F no time\n")
        log.flush()
        kept.until(lambda: len(kept.words["uid-1"]) > 1, "another word", 10)
    ending.set()
    listening.join()
    assert kept.words == {"uid-1": [Word(12.5, "main", 0, "begins"), Word(13.75, "main", 0, "SIGTERM")]}
    assert kept.gaps == []


def test_waiting_ends_with_what_was_waited_for() -> None:
    kept = Record()
    threading.Timer(0.2, kept.acts["a"].append, [Act(1, "a")]).start()
    assert kept.until(lambda: list(kept.acts["a"]), "an act", 10) == [Act(1, "a")]


def test_waiting_ends_in_an_error_when_it_is_too_long_and_for_a_gap() -> None:
    kept = Record()
    with pytest.raises(RecordError, match="a Pod: it did not come within 0 s"):
        kept.until(lambda: None, "a Pod", 0.1)
    kept.gaps.append("the watch of pods ended")
    began = time.monotonic()
    with pytest.raises(RecordError, match="the record has a gap: the watch of pods ended"):
        kept.until(lambda: None, "a Pod", 60)
    assert time.monotonic() - began < 30


def test_a_folder_that_goes_while_logs_are_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_folder: Path, _pattern: str) -> Iterator[Path]:
        yield tmp_path / "read"
        raise FileNotFoundError

    monkeypatch.setattr(Path, "glob", gone)
    assert record._logs(tmp_path) == []
