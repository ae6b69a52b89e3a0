"""A preStop command is known to sleep, or it is unknown."""

import math
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.duration import SECOND
from webhook.core.shell import certain_sleep

KNOWN = [
    (["sleep", "5"], 5),
    (["/bin/sleep", "5"], 5),
    (["/usr/bin/sleep", "1m", "30"], 90),
    (["sleep", "1.5"], 1.5),
    (["sleep", ".5s"], 0.5),
    (["sleep", "1h"], 3600),
    (["sleep", "1d"], 86400),
    (["sleep", "0"], 0),
    (["sleep", "infinity"], math.inf),
    (["sleep", "5", "inf"], math.inf),
    (["sh", "-c", "sleep 5"], 5),
    (["/bin/bash", "-c", "sleep 5; nginx -s quit"], 5),
    (["/bin/sh", "-c", "nginx -s quit; sleep 5"], 5),
    (["sh", "-c", "sleep 1 && sleep 2\nsleep 3"], 6),
    (["sh", "-c", "  sleep   5  ;"], 5),
    (["sh", "-c", "\n# wait for the endpoints to go\nsleep 5 # and no longer\n"], 5),
    (["sh", "-c", "echo a#b; sleep 2"], 2),
    (["sh", "-c", "echo 'a; sleep 9'; sleep 1"], 1),
    (["sh", "-c", 'echo "a && sleep 9"; sleep 1'], 1),
    (["sh", "-c", 'sleep "5"'], 5),
    (["sh", "-c", "sle'ep' 5"], 5),
    (["sh", "-c", "curl -s localhost/stop > /dev/null 2>&1; sleep 5"], 5),
    (["sh", "-c", "cat < /etc/hostname; sleep 5"], 5),
    (["sh", "-c", "sleep 5; exit 0"], 5),
    (["sh", "-c", "sleep 5; exit 0; sleep 9"], 5),
    (["sh", "-c", "exec sleep 5"], 5),
    (["sh", "-c", "exec sleep 5; sleep 9"], 5),
    (["sh", "-c", "sleep 5; exec nginx -s quit"], 5),
    (["sh", "-c", "/bin/sleep 5"], 5),
    (["sh", "-c", "sleep infinity"], math.inf),
]
UNKNOWN = [
    [],
    ["/shutdown.sh"],
    ["sleep"],
    ["sleep", "5", "&&", "nginx", "-s", "quit"],
    ["sleep", "--help"],
    ["sleep", "5x"],
    ["sleep", "-5"],
    ["sleep", "1e3"],
    ["sleep", "."],
    ["sleep", 5],
    [None],
    ["sh"],
    ["sh", "-c"],
    ["sh", "-ec", "sleep 5"],
    ["sh", "-c", "sleep 5", "sh"],
    ["python3", "-c", "sleep 5"],
    ["sh", "-c", ""],
    ["sh", "-c", "nginx -s quit"],
    ["sh", "-c", "sleep"],
    ["sh", "-c", "sleep five"],
    ["sh", "-c", 'sleep ""'],
    ["sh", "-c", "sleep 5 &"],
    ["sh", "-c", "sleep 5 & wait"],
    ["sh", "-c", "sleep 5 &> /dev/null; sleep 1"],
    ["sh", "-c", "sleep 5 | cat"],
    ["sh", "-c", "sleep 5 || true"],
    ["sh", "-c", "true || sleep 5"],
    ["sh", "-c", "if true; then sleep 5; fi"],
    ["sh", "-c", "while pgrep nginx; do sleep 1; done"],
    ["sh", "-c", "for i in 1 2; do sleep 1; done"],
    ["sh", "-c", "case a in a) sleep 5 ;; esac"],
    ["sh", "-c", "f() { sleep 5; }; f"],
    ["sh", "-c", "{ sleep 5; }"],
    ["sh", "-c", "(sleep 5)"],
    ["sh", "-c", "! sleep 5"],
    ["sh", "-c", "time sleep 5"],
    ["sh", "-c", "sleep $DELAY"],
    ["sh", "-c", 'sleep "$DELAY"'],
    ["sh", "-c", "sleep $((5))"],
    ["sh", "-c", "sleep `cat delay`"],
    ["sh", "-c", "DELAY=5 sleep 5"],
    ["sh", "-c", "exit 0; sleep 5"],
    ["sh", "-c", "exec nginx; sleep 5"],
    ["sh", "-c", "set -e; false; sleep 5"],
    ["sh", "-c", "trap 'exit' TERM; sleep 5"],
    ["sh", "-c", "echo \\; sleep 5"],
    ["sh", "-c", "cat <<END\nsleep 5\nEND\n"],
    ["sh", "-c", "sleep 5 'unended"],
    ["sh", "-c", "exec; sleep"],
]


@pytest.mark.parametrize(("command", "seconds"), KNOWN, ids=[str(command) for command, _ in KNOWN])
def test_a_plain_sleep_is_known(command: list[object], seconds: float) -> None:
    assert certain_sleep(command) == seconds * SECOND


@pytest.mark.parametrize("command", UNKNOWN, ids=[str(command) for command in UNKNOWN])
def test_anything_else_is_unknown(command: list[object]) -> None:
    assert certain_sleep(command) is None


@given(st.lists(st.text(max_size=40) | st.none() | st.integers(), max_size=4))
def test_any_command_is_known_or_unknown(command: list[object]) -> None:
    certain_sleep(command)


@given(st.text(alphabet="sleep 0123;&|\n\t'\"#$()<>=exit", max_size=60))
def test_any_script_is_known_or_unknown(script: str) -> None:
    length = certain_sleep(["sh", "-c", script])
    assert length is None or length >= 0


SHORT = [
    (["sleep", "0.2"], 0.2),
    (["sh", "-c", "sleep 0.1; echo 'x; sleep 9' > /dev/null; sleep 0.1"], 0.2),
    (["sh", "-c", "# no\nsleep .1 && sleep .1 # yes"], 0.2),
    (["sh", "-c", "exec sleep 0.2"], 0.2),
    (["sh", "-c", "sleep 0.2; exit 0; sleep 9"], 0.2),
]


@pytest.mark.parametrize(("command", "seconds"), SHORT, ids=[str(command) for command, _ in SHORT])
def test_a_real_shell_sleeps_at_least_as_long_as_is_said(command: list[str], seconds: float) -> None:
    assert certain_sleep(command) == seconds * SECOND
    start = time.monotonic()
    subprocess.run(command, check=True, timeout=5)
    assert time.monotonic() - start >= seconds
