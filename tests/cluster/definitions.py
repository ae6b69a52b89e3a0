"""Definitions of the kinds of others that our manifests use: fetched once into the user's cache, never kept in Git.

They are files in Go modules, whose versions and hashes stand in definitions/go.mod and go.sum.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.cluster import programs
from tests.cluster.programs import ProgramError

MODULE: Final = Path(__file__).with_name("definitions")
FILES: Final[Mapping[str, Sequence[str]]] = {
    "github.com/cert-manager/cert-manager": [
        f"deploy/crds/cert-manager.io_{kind}.yaml" for kind in ("certificates", "issuers")
    ],
    # Its own schemas are in the module of the operator, not in that of its API, of which there are newer versions.
    "github.com/prometheus-operator/prometheus-operator": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "podmonitors", "prometheusrules")
    ],
}
SECONDS: Final = 300  # for a download


def find() -> list[Path]:
    """The file of each definition; what is not in the cache is fetched first, which is told on stderr.

    Raises ProgramError.
    """
    return [_folder(module) / Path(file).name for module in FILES for file in FILES[module]]


def pinned(module: str) -> str:
    """The version of a module in go.mod, as v1.2.3."""
    for line in (MODULE / "go.mod").read_text(encoding="utf-8").splitlines():
        if line.split()[:1] == [module]:
            return line.split()[1]
    raise ProgramError(f"{MODULE / 'go.mod'} does not require {module}")


def _folder(module: str) -> Path:
    folder = programs.cache().with_name(f"definitions-{module.rpartition('/')[2]}-{pinned(module)}")
    if not folder.is_dir():
        _fetch(module, folder)
    return folder


def _fetch(module: str, folder: Path) -> None:
    """Puts a module's definitions into `folder`; a reader sees all of them or none."""
    source = _downloaded(module)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".definitions-", dir=folder.parent))
    try:
        for file in FILES[module]:
            shutil.copyfile(source / file, scratch / Path(file).name)
        scratch.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another run was faster
            raise ProgramError(f"the definitions in {module} cannot be had: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _downloaded(module: str) -> Path:
    """Where Go keeps the module, whose hash it has compared with go.sum."""
    go = shutil.which("go")
    if go is None:
        raise ProgramError(f"{module} has to be fetched, and there is no `go` on PATH: install Go")
    print(f"[definitions] {module} {pinned(module)}: fetching (once)", file=sys.stderr, flush=True)
    command = [go, "mod", "download", "-json", module]
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": ""}
    done = subprocess.run(
        command, cwd=MODULE, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise ProgramError(f"fetching {module} failed: {(done.stdout + done.stderr).strip()}")
    return Path(json.loads(done.stdout)["Dir"])
