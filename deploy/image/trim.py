"""Takes out of a Python base image what installs software or compiles it; run in the image, as root."""

import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

INSTALLERS = ("pip", "pip-*", "setuptools", "setuptools-*", "wheel", "wheel-*", "ensurepip", "pkg_resources")
COMMANDS = ("pip", "pip[0-9]*", "easy_install*", "wheel", "wheel[0-9]*")
WHEELS = Path("/usr/share/python-wheels")  # what Debian's venv puts into an environment


def unwanted() -> Iterator[Path]:
    """Every file and folder to remove."""
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    folders.add(Path("/usr/lib/python3/dist-packages"))
    for folder in folders:
        for pattern in INSTALLERS:
            yield from folder.glob(pattern)
    for pattern in COMMANDS:
        for folder in (Path("/usr/bin"), Path("/usr/local/bin")):
            yield from folder.glob(pattern)
    if WHEELS.exists():
        yield WHEELS


def main() -> None:
    """Removes it, and says what it was."""
    for path in sorted(set(unwanted())):
        print(f"removed {path}")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    main()
