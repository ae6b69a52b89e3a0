"""Real programs are stopped as a kubelet would, in short times, and none of them is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.probe import EXITS, contract, probe, says
from webhook.probing import Event, Plan, Seen, StoppedError, run

AFTER = 0.3  # seconds in which a shell has certainly set its traps
WORK = "sleep 61 & wait"
EXITS_0 = f"trap 'exit 0' TERM; {WORK}"
EXITS_143 = f"trap 'exit 143' TERM; {WORK}"
IGNORES = "trap '' TERM; while :; do sleep 0.1; done"
SLOW = f"trap 'sleep 0.5; exit 143' TERM; {WORK}"
DECLARE = "declare drainproof.dev/exit-contract: nonzero-when-stopped"
COMMAND = [sys.executable, "-W", "error", "-m", "webhook", "probe"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every process of a test works in; when the test is over, none does any more."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert inside(tmp_path) == []


def inside(folder: Path) -> list[int]:
    """The processes, this one excepted, that work in a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == folder and int(link.parent.name) != os.getpid():
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found


def stopped(script: str, grace: float = 5.0, pre_stop: str = "", least: float = 2.0) -> tuple[Seen, list[str]]:
    """What a shell script did when it was stopped, and what is said of it."""
    plan = Plan(("sh", "-c", script), AFTER, grace, ("sh", "-c", pre_stop) if pre_stop else (), least)
    seen = run(plan)
    return seen, says(plan, seen)


def invoked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=20)


def test_a_program_that_exits_0_when_stopped_breaks_the_contract() -> None:
    seen, lines = stopped(EXITS_0)
    assert (seen.stage, seen.exit_code, seen.signal, seen.handler) == ("SIGTERM", 0, None, True)
    assert EXITS[contract(seen)] == 1
    assert lines[0].startswith("exits 0 when stopped: the Job would be Complete with its work undone")


def test_a_program_that_exits_143_keeps_the_contract() -> None:
    seen, lines = stopped(EXITS_143)
    assert (seen.stage, seen.exit_code, seen.signal, seen.handler) == ("SIGTERM", 143, None, True)
    assert EXITS[contract(seen)] == 0
    assert lines[0] == f"exits 143 when stopped: {DECLARE}"


def test_a_program_that_ignores_sigterm_gets_sigkill_when_the_grace_period_is_used_up() -> None:
    seen, lines = stopped(IGNORES, grace=1.0, least=0.5)
    assert (seen.stage, seen.exit_code, seen.signal, seen.handler) == ("SIGKILL", 137, "SIGKILL", False)
    assert seen.took is not None
    assert 1.0 <= seen.took < 1.8
    assert EXITS[contract(seen)] == 0
    assert lines[0].startswith("ignores SIGTERM and needs SIGKILL after 1 s: exit code 137")


def test_a_program_that_catches_sigterm_and_goes_on_is_not_said_to_ignore_it() -> None:
    _, lines = stopped("trap : TERM; while :; do sleep 0.1; done", grace=1.0, least=0.5)
    assert lines[0].startswith("catches SIGTERM, goes on and needs SIGKILL after 1 s: exit code 137")


def test_a_program_without_a_trap_is_ended_by_the_signal_and_the_verdict_tells_of_pid_1() -> None:
    seen, lines = stopped("exec sleep 61")
    assert (seen.stage, seen.exit_code, seen.signal, seen.handler) == ("SIGTERM", 143, "SIGTERM", False)
    assert EXITS[contract(seen)] == 0
    assert lines[0] == f"is ended by SIGTERM when stopped, exit code 143: {DECLARE}"
    assert lines[1].startswith("as PID 1 of a container it has to catch SIGTERM")
    assert "after 5 s (exit code 137)" in lines[1]
    assert len(lines) == 2


def test_a_program_that_tidies_up_and_ends_itself_by_the_signal_is_told_that_pid_1_cannot() -> None:
    _, lines = stopped(f"trap 'trap - TERM; kill $$' TERM; {WORK}")
    assert lines[1].startswith("as PID 1 of a container it cannot end itself by SIGTERM")
    assert "took 0." in lines[2]


def test_the_time_that_a_program_takes_becomes_a_declaration_and_a_grace_period() -> None:
    seen, lines = stopped(SLOW, pre_stop="sleep 1; true")
    assert seen.took is not None
    assert 0.5 <= seen.took < 1.0
    assert seen.allowed == 4.0, "the whole second of the hook is taken from 5"
    assert lines[1].startswith("took 0.")
    assert lines[1].endswith(
        "s after SIGTERM: declare drainproof.dev/max-task-duration: at least 1s "
        "(the smallest terminationGracePeriodSeconds that covers it: 3)"
    )


def test_a_hook_whose_length_cannot_be_read_off_is_to_be_declared_too() -> None:
    _, lines = stopped(EXITS_143, pre_stop="for n in 1 2; do sleep 0.1; done")
    assert "max-task-duration: at least 1s and drainproof.dev/pre-stop-duration: at least 1s" in lines[1]
    assert lines[1].endswith("covers it: 3)")


def test_a_hook_that_eats_the_grace_period_leaves_2_seconds() -> None:
    seen, lines = stopped(IGNORES, grace=1.0, pre_stop=WORK)
    assert seen.pre_stop is not None
    assert (seen.pre_stop.ended, seen.pre_stop.exit_code) == (False, None)
    assert 1.0 <= seen.pre_stop.seconds < 1.8
    assert seen.took is not None
    assert 2.0 <= seen.took < 2.8
    assert [event.what.split(":")[0] for event in seen.timeline] == [
        "start",
        "preStop",
        "preStop is not waited for any longer",
        "SIGTERM; SIGKILL in 2 s",
        "SIGKILL",
        "ended by SIGKILL (exit code 137)",
    ]
    assert "preStop takes longer than the grace period" in lines[1]


def test_a_hook_that_cannot_run_is_passed_over() -> None:
    seen = run(Plan(("sleep", "61"), 0.1, 5.0, ("no-such-hook",)))
    assert (seen.stage, seen.allowed) == ("SIGTERM", 5.0)
    assert any("preStop cannot run, which a kubelet passes over" in event.what for event in seen.timeline)


def test_a_program_that_its_hook_stops_gets_no_sigterm(place: Path) -> None:
    script = "while [ ! -e stop ]; do sleep 0.05; done; exit 3"
    seen, lines = stopped(script, pre_stop=f"touch {place}/stop; sleep 61")
    assert (seen.stage, seen.exit_code, seen.took) == ("preStop", 3, None)
    assert lines == [f"exits 3 when stopped: {DECLARE}"]


def test_of_a_program_that_ends_by_itself_nothing_is_learned() -> None:
    seen, lines = stopped("exit 7")
    assert (seen.stage, seen.exit_code) == ("running", 7)
    assert EXITS[contract(seen)] == 2
    assert "with exit code 7, before it is stopped: nothing is learned" in lines[0]


def test_a_program_can_end_by_a_signal_without_a_name() -> None:
    seen, lines = stopped(f"trap 'kill -40 $$' TERM; {WORK}")
    assert (seen.exit_code, seen.signal) == (168, "signal 40")
    assert lines[0] == f"is ended by signal 40 when stopped, exit code 168: {DECLARE}"


def test_what_outlives_the_main_process_is_told_and_killed(place: Path) -> None:
    script = "trap '' TERM; sleep 61 & setsid sleep 61 & trap 'exit 143' TERM; wait"
    told: list[int] = []

    def count(event: Event) -> None:
        if event.what.startswith("SIGTERM"):
            told.append(len(inside(place)))

    plan = Plan(("sh", "-c", script), AFTER)
    seen = run(plan, count)
    assert told == [3], "the shell, its child, and the one in a session of its own"
    assert inside(place) == []
    assert seen.left == 1
    assert "leaves 1 process running" in says(plan, seen)[-1]


def test_a_reader_that_has_seen_enough_leaves_no_program_behind(place: Path) -> None:
    def refuse(_: Event) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run(Plan(("sleep", "61")), refuse)
    assert inside(place) == []


def test_a_signal_to_the_probe_raises_and_the_former_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(StoppedError) as caught:
        run(Plan(("sleep", "61")), lambda _: os.kill(os.getpid(), signal.SIGHUP))
    assert caught.value.number == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_signal_that_the_probe_was_started_without_is_not_withheld_from_the_program() -> None:
    ignored = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        seen = run(Plan(("sleep", "61"), 0.1))
    finally:
        signal.signal(signal.SIGTERM, ignored)
    assert (seen.stage, seen.signal) == ("SIGTERM", "SIGTERM")


def test_the_command_prints_a_timeline_and_a_verdict_and_keeps_the_programs_output_apart() -> None:
    done = invoked("--after", "400ms", "--", "sh", "-c", f"echo working; {EXITS_0}")
    assert done.returncode == 1
    assert done.stderr == "working\n"
    start, sigterm, end, blank, verdict, *_ = done.stdout.splitlines()
    assert start.startswith("    0.00 s  start: sh -c ")
    assert sigterm.endswith(" s  SIGTERM; SIGKILL in 30 s")
    assert end.endswith(" s  exit code 0")
    assert blank == ""
    assert verdict.startswith("exits 0 when stopped: ")


def test_json_holds_the_same_facts_and_nothing_of_the_program() -> None:
    done = invoked(
        "--after=400ms", "--grace=5", "--pre-stop", "sleep 0.1", "-o", "json", "sh", "-c", f"ls; {EXITS_143}"
    )
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["contract"], told["stage"], told["exit_code"], told["allowed"]) == ("kept", "SIGTERM", 143, 5.0)
    assert told["command"][:2] == ["sh", "-c"], "options after the command's name are its own"
    assert told["pre_stop"]["exit_code"] == 0
    assert told["says"][0] == f"exits 143 when stopped: {DECLARE}"
    assert [event["what"].split(":")[0] for event in told["timeline"]] == [
        "start",
        "preStop",
        "preStop ends with exit code 0",
        "SIGTERM; SIGKILL in 5 s",
        "exit code 143",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_the_probe_and_what_it_runs(place: Path, number: int, code: int) -> None:
    script = "trap '' INT TERM; setsid sleep 61 & touch ready; while :; do sleep 0.1; done"
    with subprocess.Popen([*COMMAND, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
        until = time.monotonic() + 10
        while not (place / "ready").exists() and time.monotonic() < until:
            time.sleep(0.02)
        popen.send_signal(number)
        out, errors = popen.communicate(timeout=10)
    assert popen.returncode == code
    assert errors == b""
    assert out.count(b"\n") == 1, "the start alone"
    assert inside(place) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--", "no-such-program"], "Error: no-such-program cannot be run: there is no such program"),
        (["--", "./plain"], "Error: ./plain cannot be run: it is no executable file"),
        (["--", "./broken"], "Error: ./broken cannot be run: exec format error"),
        (["--after", "soon", "true"], '"soon" is no duration; write one such as 25s or 1m30s'),
        (["--grace", "-1s", "true"], '"-1s" is no duration'),
        (["--pre-stop", "'", "true"], "is no command: no closing quotation"),
        (["--pre-stop", " ", "true"], "there is no command in it"),
        ([], "Missing argument '-- COMMAND ARGS...'"),
    ],
)
def test_what_cannot_be_run_gets_one_plain_sentence_and_2(place: Path, arguments: list[str], text: str) -> None:
    (place / "plain").write_text("true\n")
    (place / "broken").write_bytes(b"\0\1")
    (place / "broken").chmod(0o755)
    result = CliRunner().invoke(probe, arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert result.stdout == ""
    if arguments[:1] == ["--"]:
        assert result.stderr.count("\n") == 1
