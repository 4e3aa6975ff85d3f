"""Samples as messages of a zenoh key or an MQTT topic. Off loopback both are TLS, with the node's keys."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from typing import Any

from colme.errors import NodeError, missing_extra, shorten
from colme.node.config import NodeConfig
from colme.node.names import Endpoint
from colme.node.sources import CHUNK, Messages
from colme.node.zenoh_transport import load_zenoh

ROOM = 1024
"""Messages that wait for a tick; older ones make room."""


def open_broker(config: NodeConfig, messages: Messages) -> Messages:
    """Subscribe, and let the messages be pulled from there."""
    (_zenoh if config.samples.source == "zenoh" else _mqtt)(config, messages)
    return messages


def _zenoh(config: NodeConfig, messages: Messages) -> None:
    """protocol/host:port/key: a session of its own that dials there, hears that key and says nothing."""
    protocol, _, rest = config.samples.address.partition("/")
    host, key = _split(rest, config.samples.address, "tcp/127.0.0.1:7448/greenhouse/7")
    place = Endpoint.parse(f"{protocol}/{host}", "samples.address")
    _check_tls(config, place.loopback or place.protocol == "tls", place.protocol == "tls")
    zenoh = load_zenoh(config.rx_threads)
    settings: dict[str, Any] = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/protocols": [place.protocol],
        "listen/endpoints": [],
        "connect/endpoints": [str(place)],
        "connect/timeout_ms": -1,  # whoever says them may come later
        "connect/exit_on_failure": False,
        "transport/link/rx/max_message_size": CHUNK,
    }
    if place.protocol == "tls" and config.tls is not None:
        settings["transport/link/tls"] = {
            "root_ca_certificate": config.tls.ca,
            "enable_mtls": True,
            "connect_certificate": config.tls.certificate,
            "connect_private_key": config.tls.key,
            "verify_name_on_connect": True,
        }
    raw = zenoh.Config()
    for name, value in settings.items():
        raw.insert_json5(name, json.dumps(value))
    try:
        session = zenoh.open(raw)
        box = session.declare_subscriber(key, zenoh.handlers.RingChannel(ROOM))
    except zenoh.ZError as error:
        raise NodeError(f"samples.address={shorten(config.samples.address)}: {error}. Try another key.") from None

    def pull() -> list[bytes]:
        heard: list[bytes] = []
        while len(heard) < ROOM and (found := box.try_recv()) is not None:
            heard.append(bytes(found.payload))
        return heard

    def leave() -> None:
        with contextlib.suppress(zenoh.ZError):  # it may time out
            session.close()

    messages.pull, messages.leave = pull, leave


def _mqtt(config: NodeConfig, messages: Messages) -> None:
    """host:port/topic. paho reconnects by itself, in its own thread."""
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError:
        raise missing_extra("paho-mqtt", "mqtt", "samples by MQTT") from None
    host, topic = _split(config.samples.address, config.samples.address, "127.0.0.1:1883/greenhouse/7")
    place = Endpoint.parse(f"tcp/{host}", "samples.address")
    _check_tls(config, place.loopback or config.tls is not None, not place.loopback)
    waiting: deque[bytes] = deque(maxlen=ROOM)
    client: Any = Client(CallbackAPIVersion.VERSION2)
    if not place.loopback and config.tls is not None:
        client.tls_set(config.tls.ca, config.tls.certificate, config.tls.key)
    client.on_connect = lambda *_: client.subscribe(topic)
    client.on_message = lambda _, __, message: waiting.append(bytes(message.payload[:CHUNK]))
    client.connect_async(place.host, place.port)
    client.loop_start()

    def leave() -> None:
        client.disconnect()
        client.loop_stop()

    messages.pull = lambda: [waiting.popleft() for _ in range(len(waiting))]
    messages.leave = leave


def _split(text: str, whole: str, example: str) -> tuple[str, str]:
    host, _, key = text.partition("/")
    if not host or not key:
        raise NodeError(f"samples.address={shorten(whole)}: it must name a place and a key there. Try {example!r}.")
    return host, key


def _check_tls(config: NodeConfig, safe: bool, needs_keys: bool) -> None:
    where = f"samples.address={shorten(config.samples.address)}"
    if not safe:
        raise NodeError(f"{where}: off loopback everything is TLS. Try 127.0.0.1, or 'tls/...' and [tls].")
    if needs_keys and config.tls is None:
        raise NodeError(f"{where}: TLS needs keys. Add [tls], see: colme node keys.")
