"""Local listening sockets, for status and metrics: Unix sockets for the owner only, TCP on loopback only.
Nothing here blocks, but `wait_for_addresses`, before a node starts."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable

from colme.errors import NodeError, shorten
from colme.node.names import host_and_port, is_loopback

_WAITING = 16  # backlog of connections
_REMEDIES = {
    errno.EADDRINUSE: "Choose another port.",
    errno.EADDRNOTAVAIL: "Choose an address of this machine; `ip address` lists them.",
    errno.EACCES: "Choose a port above 1023.",
}


def listening_remedy(number: int | None) -> str:
    """What to do if listening at a TCP address failed with this errno."""
    return _REMEDIES.get(number or 0, "Check the address.")


def wait_for_addresses(
    hosts: Iterable[str], say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until these are addresses of this machine: at boot a network may take a while, or never come up. It says so
    at once, and then after 1, 2, 4, ... minutes."""
    for host in hosts:
        waited, next_word = 0, 0
        while (lacking := _why_not_ours(host)) is not None:
            if waited >= next_word:
                still = f" (for {waited // 60} min)" if waited else ""
                say(
                    f"cannot listen at {host} yet: {lacking}. Waiting{still}; `ip address` lists the addresses of this "
                    "machine."
                )
                next_word = max(60, 2 * waited)
            sleep(1.0)
            waited += 1
        if waited:
            say(f"{host} is there after {waited} s.")


def _why_not_ours(host: str) -> str | None:
    """Why one cannot listen at this host, if that may change as the network comes up; None if one can."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        return str(error.strerror)
    for family, kind, protocol, _, place in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind((place[0], 0, *place[2:]))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
        return None  # whatever else is wrong is told by what listens
    return "it is not an address of this machine"


def listen_unix(path: str) -> socket.socket:
    """A Unix socket at a path, with mode 0600 from the start. A socket left there by a dead process is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.exists(path):
            _remove_dead(path)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
    except NodeError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        raise NodeError(f"cannot listen at {path}: {error.strerror or error}. Choose another folder.") from None
    return _listening(listener)


def listen_tcp(address: str, what: str) -> socket.socket:
    """A TCP socket at host:port, on loopback only, because it has no TLS."""
    place = host_and_port(address, what, "127.0.0.1:7000")
    if not is_loopback(place.host):
        raise NodeError(f"{what}={shorten(address)}: it has no TLS, so it must be on loopback. Try 127.0.0.1.")
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise NodeError(f"cannot listen at {address}: {error.strerror}. {listening_remedy(error.errno)}") from None
    return _listening(listener)


class Spare:
    """A descriptor in reserve. At the limit of descriptors, which strangers at the port of a node can reach, no
    connection can be accepted, and a listener with one that waits stays ready, so that a loop would spin. Giving up the
    spare descriptor makes room for the one connection that is answered at a time."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.take()

    def accept(self, listener: socket.socket) -> socket.socket | None:
        """The next connection; None if there is none. Raises OSError if there is no descriptor even so."""
        try:
            client, _ = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):  # none, or gone again
                return None
            self.close()
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                return None
        client.setblocking(False)
        return client

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def take(self) -> None:
        """Reserve a descriptor again, after a connection was closed; there may be none yet."""
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _listening(listener: socket.socket) -> socket.socket:
    listener.setblocking(False)
    listener.listen(_WAITING)
    return listener


def _remove_dead(path: str) -> None:
    if not stat.S_ISSOCK(os.stat(path).st_mode):  # a file would refuse a connection just as a dead socket does
        raise NodeError(f"{path} exists and is not a socket: it is not replaced. Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise NodeError(f"{path} is in use: another process listens there. Stop it, or choose another path.")
