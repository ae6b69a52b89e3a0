"""Helm, for the tests of the chart: found on this machine, or built once into the user's cache.

Its version stands in helm/go.mod, apart from the programs of a cluster, whose libraries it would raise.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.cluster import programs
from tests.cluster.programs import ProgramError

MODULE: Final = Path(__file__).with_name("helm")
PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
LIBRARY: Final = "helm.sh/helm/v3"
REPORT_SECONDS: Final = 15


def find() -> Path:
    """Helm of the pinned version on PATH or in the cache; else it is built, which is told on stderr.

    Raises ProgramError.
    """
    on_path = shutil.which("helm")
    if on_path and _version(Path(on_path)) == pinned():
        return Path(on_path)
    built = _folder() / "helm"
    if _version(built) == pinned():
        return built
    _folder().mkdir(parents=True, exist_ok=True)
    with (_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run that builds leaves it built
        if _version(built) != pinned():
            _build(built)
    return built


def pinned() -> str:
    """The version of Helm in its go.mod, as v1.2.3."""
    match = re.search(rf"^\s*{re.escape(LIBRARY)} (v\S+)", (MODULE / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ProgramError(f"{MODULE / 'go.mod'} does not require {LIBRARY}")
    return match[1]


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "drainproof" / "programs" / f"helm-{pinned()}"


def _version(path: Path) -> str | None:
    if not os.access(path, os.X_OK):
        return None
    try:
        said = subprocess.run([path, "version", "--short"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v\d+\.\d+\.\d+", said.stdout)
    return match[0] if match else None


def _build(path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramError("Helm has to be built, and there is no `go` on PATH: install Go, or Helm " + pinned())
    major, minor = programs.pinned("kubectl").lstrip("v").split(".")[:2]
    values = {f"{LIBRARY}/internal/version.version": pinned()}
    # Without these it takes the cluster that it renders for to be Kubernetes 1.20.
    for package in ("pkg/lint/rules", "pkg/chartutil"):
        values |= {f"{LIBRARY}/{package}.k8sVersionMajor": major, f"{LIBRARY}/{package}.k8sVersionMinor": minor}
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])
    scratch = path.with_name(f".helm-{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-ldflags", flags, "-o", str(scratch), PACKAGE]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    began = time.monotonic()
    _say(f"{pinned()}: building (once; about two minutes when Go's own cache is cold)")
    with subprocess.Popen(command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True) as build:
        try:
            said = _said(build, began)
        except BaseException:
            build.kill()
            raise
    if build.returncode:
        raise ProgramError(f"building Helm failed (exit code {build.returncode}): {said[-2000:]}")
    scratch.replace(path)
    _say(f"{pinned()}: built in {time.monotonic() - began:.0f} s")


def _said(build: "subprocess.Popen[str]", began: float) -> str:
    while True:
        try:
            return build.communicate(timeout=REPORT_SECONDS)[1]
        except subprocess.TimeoutExpired:
            _say(f"building, {time.monotonic() - began:.0f} s")


def _say(text: str) -> None:
    print(f"[helm] {text}", file=sys.stderr, flush=True)
