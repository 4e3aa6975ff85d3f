"""Connections carried on: what comes in at one end goes out at the other, as it is. And the first words to a relay.

Whoever connects to a relay's own port begins with a hello of 30 bytes, in the clear:

    "colme-relay/1" | "c" | zeros     an agent that wants to be reached; TLS follows
    "colme-relay/1" | "d" | token     the agent's answer to a call that the relay told it of; the caller's bytes follow

Inside the TLS of the first the relay says "w" (welcome), "o" (a call, with its token) and "p" (as an answer), each with
a token of 16 bytes; the agent says "p" from time to time, so that both know that the other is there.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from colme.node.config.tables import Tls

MAGIC = b"colme-relay/1"
CONTROL, DATA = b"c", b"d"
WELCOME, OPEN, PULSE = b"w", b"o", b"p"
TOKEN = 16
NO_TOKEN = bytes(TOKEN)
HELLO = len(MAGIC) + 1 + TOKEN
HEARTBEAT = 5.0
"""Seconds between two signs of life of an agent; a NAT may forget a connection that is silent for half a minute."""
SILENCE = 3 * HEARTBEAT
"""Seconds after which the other end is taken for gone."""
CHUNK = 16384
"""Bytes that are read at once."""
ROOM = 65536
"""Bytes that wait to go out at an end; with more, the other end is not read."""


class Links:
    """All that is carried in this process. Silent links are ended: `sweep` looks for them."""

    def __init__(self, idle: float):
        self.idle, self.carried = idle, 0
        self.buffer = memoryview(bytearray(CHUNK))  # one for all: it is emptied as soon as it is filled
        self.open: set[Link] = set()

    def __len__(self) -> int:
        return len(self.open)

    async def join(
        self, one: socket.socket, other: socket.socket, *, first: bytes = b"", ended: Callable[[], None] = lambda: None
    ) -> None:
        """Carry what comes from one to the other, and back; `first` has been read from the one already."""
        loop = asyncio.get_running_loop()
        link = Link(self, ended)
        self.open.add(link)
        try:
            await loop.connect_accepted_socket(lambda: link.ends[1], _taken(other))
            link.ends[1].write(first)
            await loop.connect_accepted_socket(lambda: link.ends[0], _taken(one))
        except BaseException:
            link.abort()
            raise

    async def sweep(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.idle / 4)
            before = asyncio.get_running_loop().time() - self.idle
            for link in [link for link in self.open if link.moved < before]:
                link.abort()

    def close(self) -> None:
        for link in list(self.open):
            link.abort()


class Link:
    """Two connections that are one."""

    def __init__(self, links: Links, ended: Callable[[], None]):
        self.links, self._ended = links, ended
        self.ends = (_End(self), _End(self))
        self.moved = asyncio.get_running_loop().time()
        for end, other in (self.ends, self.ends[::-1]):
            end.other = other

    def abort(self) -> None:
        for end in self.ends:
            if end.transport is not None:
                end.transport.abort()
        self.settle()

    def settle(self) -> None:
        """Forget it when both ends are gone; one that cannot say its last words is ended by the sweep."""
        if self in self.links.open and all(end.gone or end.transport is None for end in self.ends):
            self.links.open.remove(self)
            self._ended()


class _End(asyncio.BufferedProtocol):
    """One of its connections. Nothing is read here that cannot go out there."""

    other: _End

    def __init__(self, link: Link):
        self.link = link
        self.transport: asyncio.Transport | None = None
        self.finished = False  # nothing more comes in
        self.gone = False

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=ROOM)
        if self.other.transport is None:
            transport.pause_reading()
        else:
            self.other.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.link.links.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.link.moved = asyncio.get_running_loop().time()
        self.link.links.carried += nbytes
        self.other.write(bytes(self.link.links.buffer[:nbytes]))

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        """It says no more, but may still hear."""
        self.finished = True
        there = self.other.transport
        if there is not None and not there.is_closing():
            there.write_eof()
        return not self.other.finished  # False: this end is closed, and then the other

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self.other.transport is not None:
            self.other.transport.close()  # after what it still has to say
        self.link.settle()


async def dial(host: str, port: int) -> socket.socket:
    """A connection, at whichever address of the host answers first, in order."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    try:
        places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a name that cannot be one, like a..b
        raise failure from None
    for family, kind, protocol, _, address in places:
        line = socket.socket(family, kind, protocol)
        try:
            line.setblocking(False)
            await loop.sock_connect(line, address)
        except OSError as error:
            line.close()
            failure = error
        except BaseException:
            line.close()
            raise
        else:
            return line
    raise failure


async def exactly(line: socket.socket, size: int) -> bytes:
    """So many bytes and no more: what follows stays in the socket, for whoever reads next."""
    loop = asyncio.get_running_loop()
    found = b""
    while len(found) < size:
        chunk = await loop.sock_recv(line, size - len(found))
        if not chunk:
            raise ConnectionResetError("it said too little")
        found += chunk
    return found


async def speak_tls(
    line: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """TLS on a connection, as the client of a server with this name or, without one, as a server."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport: asyncio.BaseTransport
    if server_name is None:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, _taken(line), ssl=context)
    else:
        transport, _ = await loop.create_connection(
            lambda: protocol, sock=_taken(line), ssl=context, server_hostname=server_name
        )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _taken(line: socket.socket) -> socket.socket:
    """The same connection, for a transport, which closes it. Whoever closes `line` later closes nothing: else the
    descriptor's number might be given to a new connection while the transport still watches it."""
    return socket.socket(fileno=line.detach())


def tls_context(files: Tls, purpose: int) -> ssl.SSLContext:
    """Both ends show a certificate of the fleet."""
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(Path(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    return context
