"""Helm, for the tests of the chart: found on this machine, or built once into the user's cache.

Its version stands in helm/go.mod, apart from the programs of a cluster, whose libraries it would raise.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.cluster import building, programs
from tests.cluster.building import ProgramError

MODULE: Final = Path(__file__).with_name("helm")
PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
LIBRARY: Final = "helm.sh/helm/v3"


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
    with building.locked(_folder()):
        if _version(built) != pinned():  # another run that builds leaves it built
            _build(built)
    return built


def pinned() -> str:
    """The version of Helm in its go.mod, as v1.2.3."""
    return building.required(MODULE, LIBRARY)


def _folder() -> Path:
    return building.cache() / f"helm-{pinned()}"


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
    if shutil.which("go") is None:
        raise ProgramError("Helm has to be built, and there is no `go` on PATH: install Go, or Helm " + pinned())
    major, minor = programs.pinned("kubectl").lstrip("v").split(".")[:2]
    values: dict[str, object] = {f"{LIBRARY}/internal/version.version": pinned()}
    # Without these it takes the cluster that it renders for to be Kubernetes 1.20.
    for package in ("pkg/lint/rules", "pkg/chartutil"):
        values |= {f"{LIBRARY}/{package}.k8sVersionMajor": major, f"{LIBRARY}/{package}.k8sVersionMinor": minor}
    with tempfile.TemporaryDirectory(prefix=".helm-", dir=path.parent) as scratch:
        built = Path(scratch) / "helm"
        building.build("helm", pinned(), PACKAGE, built, folder=MODULE, variables=values)
        built.replace(path)
