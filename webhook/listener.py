"""A socket that has its address before anything else is started."""

import socket

from webhook.command import refuse


def listening(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket that listens already; :: takes IPv4 and IPv6. Ends the command with 1 where that is not possible."""
    listener = bound(host, port)
    listener.listen(backlog)
    return listener


def bound(host: str, port: int) -> socket.socket:
    """A socket that refuses connections until somebody listens on it; otherwise as `listening`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return _bound(family, host, port)
    except OSError as error:
        refuse([f"cannot listen on {host} port {port}: {error.strerror}"], code=1)


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the process before us may have left some
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
