"""The programs of a Kubernetes cluster: found on this machine, or built once into the user's cache.

The versions stand in the go.mod files and nowhere else. `python -m tests.cluster.programs` shows what is used for
a control plane; the programs of a node are had only where somebody asks for them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import building

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
NUMBER = re.compile(r"v?(\d+\.\d+\.\d+\S*)")
ProgramError = building.ProgramError


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
    with building.locked(cache()):
        return {name: program or _cached(name) or _build(name) for name, program in found.items()}


def pinned(name: str) -> str:
    """The version of program `name` in its go.mod, as v1.2.3."""
    package = _package(name)
    wanted = next(module for module in (ETCD, CONTAINERD, KUBERNETES) if package.startswith(module))
    return building.required(_folder(name), wanted)


def cache() -> Path:
    """The folder of the programs built here, one for each version of Kubernetes."""
    return building.cache() / pinned("kube-apiserver")


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
        building.say(f"{name}: not in KUBEBUILDER_ASSETS ({assets}); looking elsewhere, its version may differ")
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
    match = re.search(r"^go (\d+\.\d+)", (MODULE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
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
        variables = _variables(name)
        building.build(
            name, pinned(name), _package(name), built, folder=_folder(name), tags=CONTAINERD_TAGS, variables=variables
        )
        said = _version(name, built)
        if said != pinned(name):
            raise ProgramError(f"the {name} just built from {_folder(name)} says it is {said}, not {pinned(name)}")
        built.replace(folder / name)
    return Program(name, folder / name, said, "built now")


def _variables(name: str) -> dict[str, object]:
    """What makes a program know its version; without it the API server calls itself v0.0.0-master."""
    version = pinned(name)
    major, minor = _numbers(version)
    return {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        f"{CONTAINERD}/version.Version": version.removeprefix("v"),
    }


def main() -> int:
    """Print name, version, place and path of every program, building what is missing; 1 when that fails."""

    def search() -> None:
        for program in find().values():
            print(f"{program.name:24} {program.version:10} {program.place:18} {program.path}")

    return building.told(search)


if __name__ == "__main__":
    sys.exit(main())
