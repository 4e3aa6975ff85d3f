"""A relay, on a host that everybody can reach, for agents that nobody can dial (behind NAT or a firewall).

    listen = "0.0.0.0:7460"        # where agents call in
    [tls]
    ca = "ca.pem"
    certificate = "relay.pem"
    key = "relay.key"
    [agents]
    pi-4 = 7501                    # whoever connects to this port speaks to pi-4

The agent keeps a connection to the relay. When somebody connects to the agent's port, the relay tells the agent a
random token; the agent connects a second time, shows the token, and the relay splices the two. What it carries is the
TLS that the two agents speak with each other: it holds neither key, so it can delay or drop their bytes, but not read,
alter or make up any. Its own certificate holds no host at which agents are dialled, so it cannot even answer in the
place of one; and who answers is heard only with the certificate of the agent that was dialled.

Who calls in must show a certificate of the fleet with a name on the list. Whoever connects to an agent's port and does
not begin as TLS does is sent away before the agent hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from colme._core.structs import Configuration, convert_fields, located, read_toml
from colme.errors import ColmeError, NodeError, positive, whole
from colme.node.config.tables import Tls, check_keys
from colme.node.io.sources import Say
from colme.node.names import Endpoint, bracketed, check_name, host_and_port
from colme.node.net import splice
from colme.node.net.splice import Links, exactly, speak_tls, tls_context
from colme.node.security.identity import check_identity, common_name

PORT = 7460
WAITING = 64
"""Connections at each port that are not served yet; the oldest makes room."""
_GREETING = b"\x16\x03"  # a TLS handshake, of whatever version
_REPORT_EVERY = 60.0  # s


class RelayConfig(Configuration, frozen=True, kw_only=True):
    """A relay, read and checked.

    agents     the port of each agent
    tls        its identity
    listen     host:port where agents call in
    name       the common name of its certificate
    max_links  carried at once for each agent
    patience   seconds for somebody who connects to become a link
    idle       seconds after which a silent link is ended
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    agents: dict[str, int]
    tls: Tls
    listen: str = f"0.0.0.0:{PORT}"
    name: str = "relay"
    max_links: int = 64
    patience: float = 10.0
    idle: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        place = self.place
        check_name(self.name, "name")
        whole(self.max_links, "max_links", "max_links = 64", NodeError)
        positive(self.patience, "patience", "patience = 10.0", NodeError)
        positive(self.idle, "idle", "idle = 60.0", NodeError)
        if not self.agents:
            raise NodeError("agents={}: a relay serves somebody. Add [agents], pi-4 = 7501.")
        taken = {place.port: "the relay itself"}
        for name, port in self.agents.items():
            check_name(name, "agents")
            if not 0 < port < 65536:
                raise NodeError(f"agents.{name}={port}: it must be a port, 1 to 65535. Try 7501.")
            if port in taken:
                raise NodeError(f"agents.{name}={port}: it is that of {taken[port]}. Give it another port.")
            taken[port] = name

    @property
    def place(self) -> Endpoint:
        return host_and_port(self.listen, "listen", f"0.0.0.0:{PORT}")

    @classmethod
    def read(cls, path: str | Path) -> RelayConfig:
        """From a TOML file; paths are relative to it."""
        path = Path(path)
        table = read_toml(path, NodeError, "Try: colme node plan.")
        with located(f"{path}: ", NodeError):
            return cls.parse(table, folder=path.parent)

    @classmethod
    def parse(cls, table: dict[str, Any], *, folder: Path | str = ".") -> RelayConfig:
        check_keys(table, cls, "relay", {"tls": "[tls]", "agents": "[agents], pi-4 = 7501"})
        fields = convert_fields(table, cls, NodeError)
        fields["tls"] = fields["tls"].within(Path(folder))
        return cls(**fields)


class Relay:
    """The relay of a configuration; `run` serves until it is cancelled or `stop` is called."""

    def __init__(self, config: RelayConfig, say: Say):
        check_identity(config.name, config.tls)
        self.config, self._say = config, say
        self._context = tls_context(config.tls, ssl.PROTOCOL_TLS_SERVER)
        self.links = Links(config.idle)
        self.links_of: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.present: dict[str, asyncio.StreamWriter] = {}
        self._asked: dict[bytes, asyncio.Future[socket.socket]] = {}
        self._doors: list[socket.socket] = []
        self._attending: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        own = config.place
        try:
            self._doors.append(_listen(own.host, own.port))
            for port in config.agents.values():
                self._doors.append(_listen(own.host, port))
        except NodeError:
            self.close()
            raise

    async def run(self) -> None:
        """Serve."""
        callers = [lambda line, name=name: self._caller(line, name) for name in self.config.agents]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.links.sweep())]
                for door, serve in zip(self._doors, (self._agent, *callers), strict=True):
                    tasks.append(group.create_task(self._watch(door, serve)))
                await self._stopping.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self.close()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        for door in self._doors:
            door.close()
        for writer in self.present.values():
            writer.transport.abort()
        self.links.close()

    def status(self) -> str:
        """In one line."""
        refused = ", ".join(f"{n} {reason}" for reason, n in sorted(self.refused.items())) or "nobody"
        return (
            f"{len(self.present)} of {len(self.config.agents)} agents, {len(self.links)} links, "
            f"{self.links.carried / 1e6:.1f} MB carried, refused: {refused}"
        )

    async def _watch(self, door: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Serve whoever comes, each in its own task."""
        loop = asyncio.get_running_loop()
        waiting: dict[asyncio.Task[None], None] = {}
        try:
            while True:
                try:
                    line, _ = await loop.sock_accept(door)
                except OSError:  # it has gone again, or there are too many open files
                    await asyncio.sleep(0.1)
                    continue
                line.setblocking(False)
                if len(waiting) >= WAITING:
                    next(iter(waiting)).cancel()
                task = asyncio.create_task(self._serve(line, serve))
                waiting[task] = None
                task.add_done_callback(functools.partial(self._served, line, waiting))
        finally:
            for task in list(waiting):
                task.cancel()

    async def _serve(self, line: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        reason = None
        try:
            async with asyncio.timeout(self.config.patience):
                await serve(line)
        except _Refusal as refusal:
            reason = str(refusal)
        except TimeoutError:
            reason = "slow"
        except ssl.SSLError:
            reason = "certificate"
        except OSError:
            reason = "gone"
        if reason is not None:
            self.refused[reason] += 1
            line.close()

    def _served(self, line: socket.socket, waiting: dict[asyncio.Task[None], None], done: asyncio.Task[None]) -> None:
        del waiting[done]
        if done.cancelled():  # perhaps before it began
            self.refused["slow"] += 1
            line.close()

    async def _agent(self, line: socket.socket) -> None:
        """Somebody at the relay's own port: an agent that calls in, or answers a call."""
        hello = await exactly(line, splice.HELLO)
        kind, token = hello[len(splice.MAGIC) : -splice.TOKEN], hello[-splice.TOKEN :]
        if not hello.startswith(splice.MAGIC) or kind not in (splice.CONTROL, splice.DATA):
            raise _Refusal("hello")
        if kind == splice.DATA:
            answer = self._asked.pop(token, None)
            if answer is None or answer.done():
                raise _Refusal("token")
            answer.set_result(line)
            return
        reader, writer = await speak_tls(line, self._context)
        name = common_name(writer.get_extra_info("ssl_object"))
        if name not in self.config.agents:
            writer.transport.abort()
            raise _Refusal("stranger")
        writer.write(splice.WELCOME + splice.NO_TOKEN)
        before = self.present.get(name)
        self.present[name] = writer
        if before is None:
            self._say(f"{name} is here.")
        else:
            before.transport.abort()  # its end is gone, though this one does not know yet
        self._attending.add(task := asyncio.create_task(self._attend(name, reader, writer)))
        task.add_done_callback(self._attending.discard)

    async def _attend(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An agent, until it leaves or falls silent."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(splice.SILENCE):
                    if await reader.readexactly(1) != splice.PULSE:
                        break
                    writer.write(splice.PULSE + splice.NO_TOKEN)
                    await writer.drain()
        writer.transport.abort()
        if self.present.get(name) is writer:
            del self.present[name]
            self._say(f"{name} has gone.")

    async def _caller(self, line: socket.socket, name: str) -> None:
        """Somebody at the port of an agent."""
        first = await exactly(line, len(_GREETING))
        if first != _GREETING:
            raise _Refusal("greeting")
        agent = self.present.get(name)
        if agent is None:
            raise _Refusal("absent")
        if self.links_of[name] >= self.config.max_links:
            raise _Refusal("full")
        self.links_of[name] += 1
        try:
            other = await self._ask(agent)
        except BaseException:
            self.links_of[name] -= 1
            raise
        await self.links.join(line, other, first=first, ended=lambda: self.links_of.subtract((name,)))

    async def _ask(self, agent: asyncio.StreamWriter) -> socket.socket:
        """The second connection of an agent, for somebody who calls it."""
        token = secrets.token_bytes(splice.TOKEN)
        answer = self._asked[token] = asyncio.get_running_loop().create_future()
        agent.write(splice.OPEN + token)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():  # it came at the last moment
                answer.result().close()
            raise
        finally:
            self._asked.pop(token, None)


class _Refusal(Exception):
    """One word on why somebody is sent away."""


def run_relay(config: RelayConfig, *, say: Say) -> None:
    """A relay until SIGTERM or SIGINT, with a line on how it is every minute."""

    async def main() -> None:
        relay = Relay(config, say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, relay.stop)
        say(f"{config.name} listens at {config.listen} for {len(config.agents)} agents.")
        report = asyncio.create_task(_report(relay, say))
        await relay.run()
        report.cancel()
        say(f"{config.name} has left: {relay.status()}.")

    asyncio.run(main())


async def _report(relay: Relay, say: Say) -> None:
    while True:
        await asyncio.sleep(_REPORT_EVERY)
        say(relay.status())


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=WAITING, dualstack_ipv6=host == "::")
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one
        where, number = f"{bracketed(host)}:{port}", getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else "there is no such host"
        raise NodeError(f"cannot listen at {where}: {reason}. Choose another host or port.") from None
    door.setblocking(False)
    return door
