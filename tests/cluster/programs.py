"""The programs of a Kubernetes cluster: found on this machine, or built once into the user's cache.

The versions stand in the go.mod files and nowhere else. `python -m tests.cluster.programs` shows what is used for
a control plane; the programs of a node are had only where somebody asks for them.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import process

MODULE = Path(__file__).with_name("programs")
# containerd would raise the versions of the libraries from which the API server is built.
CONTAINERD_MODULE = Path(__file__).parents[1] / "node" / "programs"
KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
CONTAINERD = "github.com/containerd/containerd/v2"
PACKAGES: Mapping[str, str] = {
    "etcd": ETCD,
    "kubectl": f"{KUBERNETES}/cmd/kubectl",
    "kube-apiserver": f"{KUBERNETES}/cmd/kube-apiserver",
    "kube-controller-manager": f"{KUBERNETES}/cmd/kube-controller-manager",
}
NODE_PACKAGES: Mapping[str, str] = {
    "kube-scheduler": f"{KUBERNETES}/cmd/kube-scheduler",
    "kube-proxy": f"{KUBERNETES}/cmd/kube-proxy",
    "kubelet": f"{KUBERNETES}/cmd/kubelet",
    "containerd": f"{CONTAINERD}/cmd/containerd",
    "containerd-shim-runc-v2": f"{CONTAINERD}/cmd/containerd-shim-runc-v2",
    "ctr": f"{CONTAINERD}/cmd/ctr",
}
CONTAINERD_TAGS = "no_btrfs,no_zfs,no_devmapper"  # snapshotters that need C libraries or a kernel with more in it
QUESTIONS: Mapping[str, Sequence[str]] = {"kubectl": ("version", "--client"), "containerd-shim-runc-v2": ("-v",)}
OLDEST_ETCD = (3, 5)
REPORT_SECONDS = 15
NUMBER = re.compile(r"v?(\d+\.\d+\.\d+\S*)")


class ProgramError(Exception):
    """A program that can neither be found nor built; the text says what to do."""


@dataclass(frozen=True)
class Program:
    """A program to run: its `version` as v1.2.3, and the `place` that gave it, in words."""

    name: str
    path: Path
    version: str
    place: str


def find(packages: Mapping[str, str] = PACKAGES) -> dict[str, Program]:
    """Every program of `packages` by name; what is found nowhere is built first, which is told on stderr.

    Looked for in the folder KUBEBUILDER_ASSETS (any version: the developer chose it), on PATH (the pinned
    minor of Kubernetes or containerd, an etcd 3.5 or later) and in the cache (the pinned version). Raises
    ProgramError.
    """
    found = {name: _locate(name) for name in packages}
    if all(found.values()):
        return {name: program for name, program in found.items() if program}
    _check_go(packages)
    with _locked(cache()):
        return {name: program or _cached(name) or _build(name) for name, program in found.items()}


def pinned(name: str) -> str:
    """The version of program `name` in its go.mod, as v1.2.3."""
    package, folder = _package(name), _folder(name)
    wanted = next(module for module in (ETCD, CONTAINERD, KUBERNETES) if package.startswith(module))
    match = re.search(rf"^\s*(?:require )?{re.escape(wanted)} (v\S+)", _go_mod(folder), re.MULTILINE)
    if match is None:
        raise ProgramError(f"{folder / 'go.mod'} does not require {wanted}")
    return match[1]


def cache() -> Path:
    """The folder of the programs built here, one for each version of Kubernetes."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "drainproof" / "programs" / pinned("kube-apiserver")


def _package(name: str) -> str:
    return PACKAGES.get(name) or NODE_PACKAGES[name]


def _folder(name: str) -> Path:
    """Where the go.mod lies from which program `name` is built."""
    return CONTAINERD_MODULE if _package(name).startswith(CONTAINERD) else MODULE


def _locate(name: str) -> Program | None:
    return _from_assets(name) or _from_path(name) or _cached(name)


def _from_assets(name: str) -> Program | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return None
    path = Path(assets).absolute() / name
    if not os.access(path, os.X_OK):
        _say(f"{name}: not in KUBEBUILDER_ASSETS ({assets}); looking elsewhere, its version may differ")
        return None
    return Program(name, path, _version(name, path) or "unknown version", "KUBEBUILDER_ASSETS")


def _from_path(name: str) -> Program | None:
    for folder in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        path = Path(folder).absolute() / name
        version = _version(name, path)
        if version and _fits(name, version):
            return Program(name, path, version, "PATH")
    return None


def _cached(name: str) -> Program | None:
    path = cache() / name
    version = _version(name, path)
    # The folder is named after Kubernetes alone, so an etcd of an earlier pin may lie in it; and a file that
    # somebody copied in half does not get as far as saying its version.
    return Program(name, path, version, "cache") if version == pinned(name) else None


def _fits(name: str, version: str) -> bool:
    numbers, wanted = _numbers(version), _numbers(pinned(name))
    return numbers[0] == wanted[0] and numbers >= OLDEST_ETCD if name == "etcd" else numbers == wanted


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = version.lstrip("v").split(".")
    return int(major), int(minor)


def _version(name: str, path: Path) -> str | None:
    """What the program at `path` says its version is, as v1.2.3; None when it does not run or say."""
    if not os.access(path, os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [path, *QUESTIONS.get(name, ["--version"])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = NUMBER.search(answer.stdout)
    return f"v{match[1]}" if match and answer.returncode == 0 else None


def _check_go(packages: Mapping[str, str]) -> None:
    match = re.search(r"^go (\d+\.\d+)", _go_mod(MODULE), re.MULTILINE)
    needed = match[1] if match else "1.26"
    advice = (
        f"Install Go {needed} or later from https://go.dev/dl/, "
        f"or point KUBEBUILDER_ASSETS at a folder with {', '.join(packages)}."
    )
    if shutil.which("go") is None:
        raise ProgramError(f"the test control plane has to be built, and there is no `go` on PATH. {advice}")
    # Asked inside the module: a Go that may fetch a newer toolchain answers for that one.
    answer = subprocess.run(["go", "version"], cwd=MODULE, capture_output=True, text=True, timeout=300)
    version = re.search(r"go(\d+\.\d+)", answer.stdout.removeprefix("go version"))
    if version is None or _numbers(version[1]) < _numbers(needed):
        said = (answer.stdout + answer.stderr).strip()
        raise ProgramError(f"building the test control plane needs Go {needed}; `go version` says: {said}. {advice}")


def _build(name: str) -> Program:
    """Build one program into the cache; a reader sees the whole file or none. Raises ProgramError."""
    folder = cache()
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as scratch:
        built = Path(scratch) / name
        _go_build(name, built, Path(scratch) / "log")
        said = _version(name, built)
        if said != pinned(name):
            raise ProgramError(f"the {name} just built from {_folder(name)} says it is {said}, not {pinned(name)}")
        built.replace(folder / name)
    return Program(name, folder / name, said, "built now")


def _go_build(name: str, output: Path, log: Path) -> None:
    go = shutil.which("go") or "go"
    flags = ["-mod=readonly", "-buildvcs=false", "-tags", CONTAINERD_TAGS, "-ldflags", _linker_flags(name)]
    command = [go, "build", *flags, "-o", str(output), _package(name)]
    # A go.work of the developer's, in a folder above, must not decide what is built.
    # Go leaves its work folder behind when it is ended: with the output it goes with the scratch folder.
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTMPDIR": str(output.parent)}
    began = time.monotonic()
    build = process.start("go build", command, log, env, cwd=_folder(name))
    try:
        _say(f"{name} {pinned(name)}: building (once; minutes when Go's own cache is cold)")
        _wait(lambda: build.popen.poll() is not None, f"{name} {pinned(name)}: building")
        if build.popen.returncode:
            raise ProgramError(
                f"building {name} failed (exit code {build.popen.returncode}); {process.tail(build)}\n"
                f"Go fetches modules from its proxy unless they are in its cache: is there a network?"
            )
    finally:
        process.stop(build)
    _say(f"{name} {pinned(name)}: built in {time.monotonic() - began:.0f} s")


def _linker_flags(name: str) -> str:
    """What makes a program know its version; without it the API server calls itself v0.0.0-master."""
    version = pinned(name)
    major, minor = _numbers(version)
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        f"{CONTAINERD}/version.Version": version.removeprefix("v"),
    }
    return " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in values.items())])


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel drops with the process; waiting for it is told on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        _wait(lambda: _try_lock(lock.fileno()), "another run is building: waiting")
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


def _wait(done: Callable[[], bool], what: str) -> None:
    """Return once `done()` holds; say `what` and the seconds so far from time to time."""
    began = time.monotonic()
    told = began
    while not done():
        time.sleep(0.1)
        now = time.monotonic()
        if now - told >= REPORT_SECONDS:
            _say(f"{what}, {now - began:.0f} s")
            told = now


def _go_mod(folder: Path) -> str:
    return (folder / "go.mod").read_text(encoding="utf-8")


def _say(text: str) -> None:
    # Whole lines on stderr: the same on a terminal and in a CI log.
    print(f"[programs] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Print name, version, place and path of every program, building what is missing; 1 when that fails."""
    try:
        found = find()
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell reports for SIGINT
    for program in found.values():
        print(f"{program.name:24} {program.version:10} {program.place:18} {program.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
