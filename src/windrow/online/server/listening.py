"""The sockets that workers accept connections from.

Each worker has one of its own, all on one port: the system deals connections out to them. The
sockets are the parent's, so that what waits in one outlives a worker that is started anew.
"""

from __future__ import annotations

import socket
import sys

from windrow.errors import OptionError

_BACKLOG = 2048


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """So many sockets that listen on an address; port 0 is any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        # Another server of the same user could have its socket there too, and would get a share of
        # the connections. Alone, an address can be taken only once.
        first = _bound(family, address, shared=False)
        address = first.getsockname()
        sockets = [first]
        if count > 1:
            first.close()
            sockets = [_bound(family, address, shared=True) for _ in range(count)]
        for one in sockets:
            one.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(
            f"cannot listen on {host}, port {port}: {reason}; choose another with --host and --port"
        ) from error
    return sockets


def address_of(one: socket.socket) -> str:
    """As a client writes it."""
    host, port = one.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    one.setblocking(False)
    return one
