"""An image made by hand around a static busybox, for machines without a registry or a container engine."""

import hashlib
import io
import json
import platform
import struct
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = "docker.io/local/busybox:1"
PAUSE = "docker.io/local/pause:1"  # the container that holds a Pod's network
COMMANDS = {BUSYBOX: ["sh"], PAUSE: ["sleep", "inf"]}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nnobody:x:65534:\n",
}
FOLDERS = {"bin": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o1777}
INTERPRETER = 3  # PT_INTERP in elf.h: the program wants a dynamic loader


def is_static(program: Path) -> bool:
    """Whether a 64-bit ELF program runs in a container that holds nothing but it."""
    data = program.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return False
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return all(struct.unpack_from("<I", data, start + index * size)[0] != INTERPRETER for index in range(count))


def write(archive: Path, busybox: Path) -> None:
    """Write both images as one docker-archive, which `ctr images import` reads."""
    layer = _layer(busybox)
    digest = hashlib.sha256(layer).hexdigest()
    manifest = []
    with tarfile.open(archive, "w") as tar:
        _add(tar, f"{digest}.tar", layer)
        for name, command in COMMANDS.items():
            config = json.dumps(_config(command, digest)).encode()
            path = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, path, config)
            manifest.append({"Config": path, "RepoTags": [name], "Layers": [f"{digest}.tar"]})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: Path) -> bytes:
    """/bin with every applet, /etc with two users, and room in /tmp."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in FOLDERS.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        for name, text in FILES.items():
            _add(tar, name, text.encode())
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for applet in sorted({*applets} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def _config(command: list[str], layer: str) -> dict[str, object]:
    return {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
