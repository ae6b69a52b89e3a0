"""Builds the image of the Dockerfile on a machine without a container engine or a registry of base images.

Needs root, and buildah and debootstrap, which Debian has. The base is made once and kept in the user's cache.
`python -m tests.image [TAR]` builds it and prints where the archive lies.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from webhook import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "docker.io/local/drainproof:test"
SUITE: Final = "bookworm"
REVISION: Final = 2  # raise it where the base is to be made anew
BASE: Final = f"localhost/drainproof-base:{SUITE}-{REVISION}"
PACKAGES: Final = ("python3-minimal", "python3-venv", "mawk")
CERTIFICATES: Final = Path("/etc/ssl/certs")
REPORT_SECONDS: Final = 15
PIP: Final = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout", "proxy")


class ImageError(Exception):
    """An image that cannot be built; the text says what is missing, or shows the end of the log."""


def missing() -> str:
    """Why no image can be built on this machine; empty where it can."""
    absent = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if os.geteuid() != 0:
        return "building the image without a container engine needs root"
    return f"building the image needs {' and '.join(absent)} (apt-get install {' '.join(absent)})" if absent else ""


def build(archive: Path, name: str = NAME, extras: str = "") -> Path:
    """The image `name` as a docker-archive at `archive`, which is replaced; progress goes to stderr.

    `extras` is what pyproject.toml calls an extra, to have that in it.
    `ctr images import` and `buildah from docker-archive:` read it. Raises ImageError.
    """
    if missing():
        raise ImageError(missing())
    _make_base()
    with tempfile.TemporaryDirectory(prefix="drainproof-image-") as scratch:
        pip = Path(scratch) / "pip.conf"
        pip.write_text(_pip_configuration(), encoding="utf-8")
        words = [
            *("bud", "--isolation", "chroot", "--layers=false", "--no-cache", "--pull-never"),
            *("--build-arg", f"PYTHON_IMAGE={BASE}", "--build-arg", f"VERSION={__version__}"),
            *("--build-arg", f"EXTRAS={extras}"),
            *("--secret", f"id=pip,src={pip}", "--tag", name),
        ]
        if CERTIFICATES.is_dir():  # what this machine trusts, pip trusts in the build; it does not stay in the image
            words += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        _run("building the image", _buildah(*words, str(ROOT)))
    _run("", _buildah("rmi", "--prune"))  # the image that had the name before
    archive.unlink(missing_ok=True)
    _run("writing the archive", _buildah("push", "--quiet", name, f"docker-archive:{archive}:{name}"))
    return archive


def run(*words: str, image: str = NAME) -> str:
    """What a command prints in a container of the image, as its user; nothing is kept.

    Raises ImageError where it ends with another exit code than 0.
    """
    with _container(image) as container:
        options = ("--isolation", "chroot")
        return _run("", _buildah("run", *options, container, "--", *words))


@contextmanager
def root(image: str = NAME) -> Iterator[Path]:
    """The file system of the image, to look at."""
    with _container(image) as container:
        yield Path(_run("", _buildah("mount", container)).strip())


def _make_base() -> None:
    if subprocess.run(_buildah("inspect", "--type", "image", BASE), capture_output=True).returncode == 0:
        return
    storage().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drainproof-base-", dir=storage().parent) as scratch:
        folder = Path(scratch) / "root"
        wanted = f"--include={','.join(PACKAGES)}"
        _run(f"making the base ({SUITE})", ["debootstrap", "--variant=minbase", wanted, SUITE, str(folder)])
        for left in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(folder / left, ignore_errors=True)
        with _container("scratch") as container:
            _run("storing the base", _buildah("add", "--quiet", container, str(folder), "/"))
            _run("storing the base", _buildah("commit", "--quiet", container, BASE))


def storage() -> Path:
    """Where buildah keeps what is built here, apart from the images of the user."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "drainproof" / "image" / "storage"


@contextmanager
def _container(image: str) -> Iterator[str]:
    container = _run("", _buildah("from", "--quiet", "--pull-never", image)).strip()
    try:
        yield container
    finally:
        _run("", _buildah("rm", container))


def _buildah(*words: str) -> list[str]:
    place = ["--root", str(storage()), "--runroot", str(storage().with_name("run"))]
    # vfs needs nothing of the kernel, also where this itself runs in a container.
    return ["buildah", *place, "--storage-driver", "vfs", *words]


def _pip_configuration() -> str:
    """What pip is told on this machine, for the build: its indexes, and the certificates mounted into the build."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    told = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    lines = [f"{name} = {value}" for name, value in told.items() if name in PIP and not Path(value).is_absolute()]
    bundle = CERTIFICATES / "ca-certificates.crt"
    return "\n".join(["[global]", *lines, *([f"cert = {bundle}"] if bundle.exists() else []), ""])


def _run(what: str, command: Sequence[str]) -> str:
    """What a command prints; with `what`, it is told on stderr how long it takes. Raises ImageError."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log, tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        if what:
            _say(f"{what} …")
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=log)
        try:
            while (code := _waited(running)) is None:
                if what:
                    _say(f"{what}, {time.monotonic() - began:.0f} s")
        except BaseException:
            running.kill()
            running.wait()
            raise
        said.seek(0)
        log.seek(0)
        output = said.read()
        if code:
            lines = [*output.splitlines(), *log.read().splitlines()][-30:]
            raise ImageError("\n  ".join([f"{' '.join(command[:1])} ended with exit code {code}:", *lines]))
    if what:
        _say(f"{what}: {time.monotonic() - began:.0f} s")
    return output


def _waited(running: "subprocess.Popen[bytes]") -> int | None:
    try:
        return running.wait(REPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _say(text: str) -> None:
    print(f"[image] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Builds the image into the file given, or into this folder; 1 where that fails."""
    archive = Path(sys.argv[1] if len(sys.argv) > 1 else "drainproof.tar").absolute()
    try:
        print(build(archive))
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
