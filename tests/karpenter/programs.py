"""Karpenter with its simulated cloud, and KWOK, which simulates nodes: built once, with the files that go with them.

The versions stand in the folders below `programs`. Each has a go.mod of its own, for no two agree on the libraries of
Kubernetes, and one wants a newer Go than most machines have: Go fetches that by itself, from where it has its modules.
`python -m tests.karpenter.programs` builds them all.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import building
from tests.cluster.building import ProgramError

MODULES: Final = Path(__file__).with_name("programs")
NEWEST: Final = "1.15.0"
# The last line of releases that takes a duration for no protection.
BEFORE_DURATIONS: Final = "1.11.2"
# A Go of a distribution may be told never to fetch another one.
FETCHING: Final = {"GOTOOLCHAIN": "auto"}


@dataclass(frozen=True)
class Source:
    """A program in a module of Go, and the files of that module which it needs: name of a folder → patterns."""

    name: str
    module: str
    package: str
    folder: Path
    files: Mapping[str, Sequence[str]]
    variables: Mapping[str, object]

    @property
    def version(self) -> str:
        """As v1.2.3."""
        return building.required(self.folder, self.module)


@dataclass(frozen=True)
class Programs:
    """What a ring runs: two programs, and folders and a file of YAML for the API server and for KWOK."""

    karpenter: Path
    crds: Path
    kwok: Path
    stages: Path
    rights: Path


def find(version: str = NEWEST) -> Programs:
    """Karpenter of a version, and KWOK; what is not in the cache is built, which is told on stderr.

    Raises ProgramError.
    """
    karpenter, kwok = _built(_karpenter(version)), _built(_kwok())
    return Programs(karpenter / "karpenter", karpenter / "crds", kwok / "kwok", kwok / "stages", kwok / "rights")


def _karpenter(version: str) -> Source:
    folder = MODULES / f"v{version}"
    if not folder.is_dir():
        raise ProgramError(f"there is no Karpenter {version} in {MODULES}")
    module = "sigs.k8s.io/karpenter"
    crds = {"crds": ("pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml")}
    return Source("karpenter", module, f"{module}/kwok", folder, crds, {f"{module}/pkg/operator.Version": version})


def _kwok() -> Source:
    module, stages = "sigs.k8s.io/kwok", "kustomize/stage"
    files = {
        "stages": (
            f"{stages}/node/fast/node-initialize.yaml",
            f"{stages}/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            f"{stages}/pod/fast/pod-ready.yaml",
        ),
        "rights": ("kustomize/rbac/role.yaml",),
    }
    return Source("kwok", module, f"{module}/cmd/kwok", MODULES / "kwok", files, {})


def _built(source: Source) -> Path:
    """The folder in the cache with the program and its files; the program comes last, so that with it all is there."""
    folder = building.cache() / f"{source.name}-{source.version}"
    if os.access(folder / source.name, os.X_OK):
        return folder
    if shutil.which("go") is None:
        raise ProgramError(f"{source.name} has to be built, and there is no `go` on PATH: install Go")
    with building.locked(folder):
        if not os.access(folder / source.name, os.X_OK):
            _build(source, folder)
    return folder


def _build(source: Source, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{source.name}-", dir=folder) as scratch:
        program = Path(scratch) / source.name
        building.build(
            source.name,
            source.version,
            source.package,
            program,
            folder=source.folder,
            variables=source.variables,
            env=FETCHING,
        )
        lies = building.source(source.module, folder=source.folder, env=FETCHING)
        for name, patterns in source.files.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir()
            for pattern in patterns:
                _copy(lies, pattern, folder / name)
        program.replace(folder / source.name)


def _copy(lies: Path, pattern: str, folder: Path) -> None:
    found = sorted(lies.glob(pattern))
    if not found:
        raise ProgramError(f"there is no {pattern} in {lies}")
    for file in found:
        shutil.copyfile(file, folder / file.name)


def main() -> int:
    """Print where every program is, building what is missing; 1 when that fails."""

    def search() -> None:
        for version in (NEWEST, BEFORE_DURATIONS):
            found = find(version)
            print(f"karpenter {version:10} {found.karpenter}\nkwok {'':15} {found.kwok}")

    return building.told(search)


if __name__ == "__main__":
    sys.exit(main())
