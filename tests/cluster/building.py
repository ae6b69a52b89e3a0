"""Programs of others, built from a go.mod of ours once into the user's cache; what takes long is told on stderr."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import process

REPORT_SECONDS = 15


class ProgramError(Exception):
    """A program that can neither be found nor built; the text says what to do."""


def cache() -> Path:
    """The folder in which each set of programs has one of its own."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "drainproof" / "programs"


def required(folder: Path, module: str) -> str:
    """The version of `module` in the go.mod of `folder`, as v1.2.3. Raises ProgramError."""
    text = (folder / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise ProgramError(f"{folder / 'go.mod'} does not require {module}")
    return match[1]


def build(
    name: str,
    version: str,
    package: str,
    output: Path,
    *,
    folder: Path,
    tags: str = "",
    variables: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Build program `name` from `package` as the go.mod of `folder` says. Raises ProgramError.

    `variables` are strings to set in the program, `env` is for Go. `output` is in a folder that goes when all is
    done: Go's log and work folder are put there too.
    """
    values = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in (variables or {}).items())])
    flags = ["-mod=readonly", "-buildvcs=false", *(["-tags", tags] if tags else []), "-ldflags", values]
    command = [shutil.which("go") or "go", "build", *flags, "-o", str(output), package]
    # A go.work of the developer's, in a folder above, must not decide what is built.
    # Go leaves its work folder behind when it is ended: with the output it goes with the scratch folder.
    settings = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTMPDIR": str(output.parent), **(env or {})}
    began = time.monotonic()
    started = process.start("go build", command, output.parent / "log", settings, cwd=folder)
    try:
        say(f"{name} {version}: building (once; minutes when Go's own cache is cold)")
        wait(lambda: started.popen.poll() is not None, f"{name} {version}: building")
        if started.popen.returncode:
            raise ProgramError(
                f"building {name} failed (exit code {started.popen.returncode}); {process.tail(started)}\n"
                f"Go fetches modules from its proxy unless they are in its cache: is there a network?"
            )
    finally:
        process.stop(started)
    say(f"{name} {version}: built in {time.monotonic() - began:.0f} s")


def source(module: str, *, folder: Path, env: Mapping[str, str] | None = None) -> Path:
    """Where Go keeps the files of `module`, at the version in the go.mod of `folder`. Raises ProgramError."""
    command = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]
    settings = {**os.environ, "GOWORK": "off", **(env or {})}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=300)
    if done.returncode or not done.stdout.strip():
        raise ProgramError(f"Go does not say where {module} is: {done.stderr.strip()}")
    return Path(done.stdout.strip())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel drops with the process; waiting for it is told on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        wait(lambda: _try_lock(lock.fileno()), "another run is building: waiting")
        # Only a builder that was killed leaves its scratch folder; nobody else builds while the lock is held.
        for left in folder.glob(".*-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait(done: Callable[[], bool], what: str) -> None:
    """Return once `done()` holds; say `what` and the seconds so far from time to time."""
    began = time.monotonic()
    told = began
    while not done():
        time.sleep(0.1)
        now = time.monotonic()
        if now - told >= REPORT_SECONDS:
            say(f"{what}, {now - began:.0f} s")
            told = now


def say(text: str) -> None:
    """Tell a line of progress."""
    # Whole lines on stderr: the same on a terminal and in a CI log.
    print(f"[programs] {text}", file=sys.stderr, flush=True)


def told(search: Callable[[], None]) -> int:
    """The exit code of a command that finds or builds programs: 1, and why, where one cannot be had."""
    try:
        search()
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell reports for SIGINT
    return 0
