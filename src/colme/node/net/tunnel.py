"""The agent's side of a relay: it calls in, and is called from there.

Runs in a thread beside the tick loop. What a relay passes on is spliced to the agent's own listener on loopback, where
TLS with the caller's certificate is spoken as everywhere. A relay that is away is called again after growing pauses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import threading

from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sources import Say
from colme.node.io.status import Status
from colme.node.net import splice
from colme.node.net.splice import Links, dial, speak_tls, tls_context

PATIENCE = 10.0  # s to reach the relay, or to answer a call
IDLE = 60.0  # s after which a silent link is ended
FIRST_PAUSE, LAST_PAUSE = 0.2, 5.0  # s between two attempts; each is twice as long as the one before


class Tunnel:
    """From the relay of a configuration to the agent's listener, from now on until `close`."""

    def __init__(self, config: NodeConfig, say: Say):
        if config.relay is None or config.tls is None or config.inner is None:
            raise NodeError(f"agent {config.name!r} has no relay: a tunnel leads to one. Add [relay].")
        self._via, self._inner, self._say = config.relay, config.inner, say
        self._context = tls_context(config.tls, ssl.PROTOCOL_TLS_CLIENT)
        self._most = config.max_sessions
        self.links, self.connected = Links(IDLE), False
        self._answering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="colme-tunnel", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        return {"relay": self._via.address, "relay_connected": self.connected, "relayed_links": len(self.links)}

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        tasks = {asyncio.create_task(self.links.sweep()), asyncio.create_task(self._call_again())}
        await self._stopping.wait()
        tasks |= self._answering
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.links.close()
        await asyncio.sleep(0)  # for the ends to close

    async def _call_again(self) -> None:
        pause, told = FIRST_PAUSE, ""
        while True:
            try:
                await self._call()
            except TimeoutError:
                reason = "it does not answer"
            except ssl.SSLCertVerificationError as error:
                reason = f"its certificate is not that of {self._via.name!r} ({error.verify_message})"
            except (ssl.SSLError, asyncio.IncompleteReadError, ConnectionResetError):
                reason = "it sent this agent away, or died" if self.connected else "it does not know this agent"
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            if self.connected:
                pause, told, self.connected = FIRST_PAUSE, "", False
            if reason != told:
                self._say(f"no relay at {self._via.address}: {reason}. It is called again.")
                told = reason
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_PAUSE)

    async def _call(self) -> None:
        """Call in, and answer calls until the relay is lost, which is an error."""
        async with asyncio.timeout(PATIENCE):
            line = await self._hello(splice.CONTROL, splice.NO_TOKEN)
            reader, writer = await speak_tls(line, self._context, server_name=self._via.name)
            try:
                if not (await reader.readexactly(1 + splice.TOKEN)).startswith(splice.WELCOME):
                    raise ConnectionResetError("no welcome")
            except BaseException:
                writer.transport.abort()
                raise
        self.connected = True
        self._say(f"reached through the relay at {self._via.address}.")
        pulse = asyncio.create_task(_beat(writer))
        try:
            while True:
                async with asyncio.timeout(splice.SILENCE):
                    message = await reader.readexactly(1 + splice.TOKEN)
                if message.startswith(splice.OPEN) and len(self.links) + len(self._answering) < self._most:
                    self._answering.add(task := asyncio.create_task(self._answer(message[1:])))
                    task.add_done_callback(self._answering.discard)
        finally:
            pulse.cancel()
            writer.transport.abort()

    async def _answer(self, token: bytes) -> None:
        """Somebody calls."""
        with contextlib.suppress(OSError, TimeoutError), contextlib.ExitStack() as undo:
            async with asyncio.timeout(PATIENCE):
                there = await self._hello(splice.DATA, token)
                undo.callback(there.close)
                here = await dial(self._inner.host, self._inner.port)
                undo.callback(here.close)
                await self.links.join(there, here)

    async def _hello(self, kind: bytes, token: bytes) -> socket.socket:
        line = await dial(self._via.place.host, self._via.place.port)
        try:
            await self._loop.sock_sendall(line, splice.MAGIC + kind + token)
        except BaseException:
            line.close()
            raise
        return line


async def _beat(writer: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(splice.HEARTBEAT)
        writer.write(splice.PULSE)
