"""Where several processes run the tests, what needs the machine for itself stays in one of them."""

import re
import subprocess
import sys
from pathlib import Path

FILES = ("lab/test_picture.py", "lab/test_history.py", "test_patch.py", "test_duration.py")
WORDS = ("-n", "2", "--dist=loadgroup", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider")


def test_the_tests_of_one_group_run_in_one_process() -> None:
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", *WORDS, *(str(folder / name) for name in FILES)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder.parent).stdout
    found = set(re.findall(r"^\[(gw\d)\].* PASSED .*@(\S+) $", said, re.MULTILINE))
    groups = [group for _, group in found]
    assert sorted(groups) == ["machine", "test_duration.py", "test_patch.py"], said[-2000:]
