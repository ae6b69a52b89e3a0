"""Announces a shutdown to a kubelet as systemd-logind does, in so much of D-Bus as a kubelet asks for.

The nodes of tests have no systemd, and only the announcement is ours. A kubelet (1.37.2
pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go) asks how long a shutdown can be held up, holds it up by a file that
it gets from `Inhibit`, and waits for the signal PrepareForShutdown. Messages are those of the D-Bus specification,
little-endian.
"""

import os
import re
import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

DELAY: Final = 3600 * 10**6  # microseconds; for less than it wants, the kubelet would write a file below /etc
OBJECT: Final = "/org/freedesktop/login1"
MANAGER: Final = "org.freedesktop.login1.Manager"
RETURN, SIGNAL = 2, 4  # kinds of messages
PATH, INTERFACE, MEMBER, REPLY, SIGNATURE, FILES = 1, 2, 3, 5, 8, 9  # fields of their heads
NO_REPLY: Final = 1
NAMED: Final = re.compile(rb"\x03\x01s\0(....)", re.DOTALL)  # the field MEMBER, a text

Head = Sequence[tuple[int, str, str | int]]
"""Fields of a message: which one, its type (o, s, g or u), and the value."""


@dataclass(frozen=True)
class Logind:
    """The stand-in: a kubelet is `listening` once it holds a shutdown up, and has `released` it by letting go."""

    address: Path
    listening: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    connections: list[socket.socket] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """By which a kubelet finds it."""
        return {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.address}"}

    def announce(self) -> None:
        """Say that the machine is going to be shut down."""
        head: Head = [(PATH, "o", OBJECT), (INTERFACE, "s", MANAGER), (MEMBER, "s", "PrepareForShutdown")]
        for connection in self.connections:
            connection.sendall(_message(SIGNAL, [*head, (SIGNATURE, "g", "b")], struct.pack("<I", 1)))


@contextmanager
def running(address: Path) -> Iterator[Logind]:
    """Listen at `address`, a path for a socket, until it is left."""
    logind = Logind(address)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        thread = threading.Thread(target=_accept, args=(logind, listener), daemon=True)
        thread.start()
        try:
            yield logind
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in logind.connections:
                connection.close()
            address.unlink()


def _accept(logind: Logind, listener: socket.socket) -> None:
    with suppress(OSError):  # it is shut down
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(logind, connection), daemon=True).start()


def _serve(logind: Logind, connection: socket.socket) -> None:
    with suppress(OSError, struct.error), connection.makefile("rb") as stream:
        _greet(connection, stream)
        logind.connections.append(connection)
        while True:
            _answer(logind, connection, stream)


def _greet(connection: socket.socket, stream: BinaryIO) -> None:
    """What stands before the first message: everybody who can open the socket is welcome."""
    while (line := stream.readline().strip(b"\0\r\n")) != b"BEGIN":
        answers = {b"AUTH": b"REJECTED EXTERNAL", b"NEGOTIATE_UNIX_FD": b"AGREE_UNIX_FD"}
        connection.sendall(answers.get(line, b"OK " + b"0" * 32) + b"\r\n")


def _answer(logind: Logind, connection: socket.socket, stream: BinaryIO) -> None:
    """Answer the next call. Raises struct.error at the end of the stream."""
    _, _, flags, _, length, serial, fields = struct.unpack("<BBBBIII", stream.read(16))
    head = stream.read(_padded(fields))
    stream.read(length)
    found = NAMED.search(head)
    member = head[found.end() :].partition(b"\0")[0].decode() if found else ""
    reply: Head = [(REPLY, "u", serial)]
    if member == "Inhibit":
        _lend(logind, connection, reply)
    elif member == "Get":
        value = b"\1t\0" + bytes(5) + struct.pack("<Q", DELAY)
        connection.sendall(_message(RETURN, [*reply, (SIGNATURE, "g", "v")], value))
    elif member == "Hello":
        connection.sendall(_message(RETURN, [*reply, (SIGNATURE, "g", "s")], _text(":1.1")))
    elif not flags & NO_REPLY:
        connection.sendall(_message(RETURN, reply))
        if member == "AddMatch":
            logind.listening.set()


def _lend(logind: Logind, connection: socket.socket, reply: Head) -> None:
    """Give out the file whose closing lets the shutdown go on."""
    ours, theirs = os.pipe()
    message = _message(RETURN, [*reply, (SIGNATURE, "g", "h"), (FILES, "u", 1)], struct.pack("<I", 0))
    socket.send_fds(connection, [message], [theirs])
    os.close(theirs)

    def watch() -> None:
        poll = select.poll()
        poll.register(ours, select.POLLHUP)
        poll.poll()
        os.close(ours)
        logind.released.set()

    threading.Thread(target=watch, daemon=True).start()


def _message(kind: int, head: Head, body: bytes = b"") -> bytes:
    fields = b""
    for number, form, value in head:
        fields = fields.ljust(_padded(len(fields)), b"\0") + bytes([number, 1, ord(form), 0])
        if isinstance(value, int):
            fields += struct.pack("<I", value)
        elif form == "g":
            fields += bytes([len(value)]) + value.encode() + b"\0"
        else:
            fields += _text(value)
    start = struct.pack("<BBBBIII", ord("l"), kind, NO_REPLY, 1, len(body), 1, len(fields))
    return start + fields.ljust(_padded(len(fields)), b"\0") + body


def _text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def _padded(length: int) -> int:
    """The next multiple of 8."""
    return -(-length // 8) * 8
