"""A socket that listens before anything else is started."""

import socket

from webhook.command import refuse


def listening(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """A socket that listens already; :: takes IPv4 and IPv6. Ends the command with 1 where that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the address stands in the sentence already
        refuse([f"cannot listen on {host} port {port}: {reason}"], code=1)
