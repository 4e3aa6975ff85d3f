"""Brokers: samples and estimates as messages on a zenoh key or an MQTT topic. Off loopback both use TLS, with the keys
of the agent. Both clients redial on their own while the broker is away."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import deque
from types import ModuleType
from typing import Any

from colme.errors import NodeError, missing_extra, shorten
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sinks import to_line
from colme.node.io.sources import CHUNK, Message, Messages, Say
from colme.node.io.status import Status
from colme.node.names import Endpoint, host_and_port
from colme.node.net.zenoh_transport import load_zenoh

ROOM = 1024
"""Messages that wait for a tick; when it is full, the oldest is dropped."""
_CALM = 60.0  # seconds before the loss of a broker is reported again


def _room(config: NodeConfig) -> int:
    return ROOM if config.gateway is None else max(ROOM, 4 * config.gateway.agents)


def wild_part(pattern: str, topic: str, one: str, rest: str) -> str | None:
    """The levels of a topic that wildcards stand for, joined by slashes, or the whole topic if these cannot be told;
    None if the pattern has no wildcard. A level `meter-$*` of zenoh's is one, too.

    >>> wild_part("plant/+/temperature", "plant/boiler-3/temperature", "+", "#")
    'boiler-3'
    >>> wild_part("plant/#", "plant/hall/7", "+", "#")
    'hall/7'
    >>> wild_part("plant/**/line/*", "plant/hall/7/line/a", "*", "**")
    'hall/7/a'
    """
    wanted, found = pattern.split("/"), topic.split("/")
    if wanted[0] == "$share":  # MQTT: $share/group/pattern
        wanted = wanted[2:]
    if wanted.count(rest) > 1:
        return topic
    if rest in wanted:  # it stands for so many levels as are left, which may be none
        i = wanted.index(rest)
        wanted[i : i + 1] = [one] * (len(found) - len(wanted) + 1)
    wild = [level == one or "$*" in level for level in wanted]
    parts = [level for level, is_wild in zip(found, wild, strict=False) if is_wild]
    return "/".join(parts) if any(wild) or rest in pattern.split("/") else None


def place_of(pattern: str, name: Any, one: str) -> str:
    """The topic for an agent: its name in place of the wildcard, with characters that mean something in topics written
    as in addresses of pages. So are slashes that would make an empty level. Different names have different topics.

    >>> place_of("plant/+/estimate", "boiler #3", "+")
    'plant/boiler %233/estimate'
    """
    special = "+#*$?%@" if one == "*" else "+#*$?%"  # zenoh's wildcards do not stand for levels like @name
    special += "/" * ("" in str(name).split("/"))
    safe = "".join(f"%{ord(c):02X}" if c in special else c for c in str(name))
    return "/".join(safe if level == one else level for level in pattern.split("/"))


def open_broker(config: NodeConfig, messages: Messages, say: Say) -> Messages:
    """Subscribe, and connect `messages` to the subscription."""
    if config.samples.source == "zenoh":
        _hear_zenoh(config, messages)
    else:
        _hear_mqtt(config, messages, say)
    return messages


def _hear_zenoh(config: NodeConfig, messages: Messages) -> None:
    """A zenoh session that subscribes to the key and publishes nothing."""
    address, where = config.samples.address, "samples.address"
    zenoh, session, key = _dial_zenoh(config, address, where)
    room = _room(config)
    try:
        box = session.declare_subscriber(key, zenoh.handlers.RingChannel(room))
    except zenoh.ZError as error:
        session.close()
        raise NodeError(f"{where}={shorten(address)}: {error}. Try another key.") from None

    def pull() -> list[Message]:
        heard: list[Message] = []
        while len(heard) < room and (found := box.try_recv()) is not None:
            heard.append((wild_part(key, str(found.key_expr), "*", "**"), bytes(found.payload)))
        return heard

    def leave() -> None:
        with contextlib.suppress(zenoh.ZError):  # it may time out
            session.close()

    messages.pull, messages.leave = pull, leave


def _hear_mqtt(config: NodeConfig, messages: Messages, say: Say) -> None:
    client, topic = _mqtt_client(config, config.samples.address, "samples.address", say)
    waiting: deque[Message] = deque(maxlen=_room(config))
    greet = client.on_connect

    def subscribe(*heard: Any) -> None:
        greet(*heard)
        client.subscribe(topic)

    client.on_connect = subscribe
    client.on_message = lambda _, __, message: waiting.append(
        (wild_part(topic, message.topic, "+", "#"), bytes(message.payload[:CHUNK]))
    )
    client.loop_start()
    messages.pull = lambda: [waiting.popleft() for _ in range(len(waiting))]
    messages.leave = lambda: _leave_mqtt(client)


class ZenohSink:
    """Estimates on a zenoh key. Without a subscriber they are dropped."""

    def __init__(self, config: NodeConfig):
        address, where = config.estimates.address, "estimates.address"
        self.dropped = 0
        self._zenoh, self._session, key = _dial_zenoh(config, address, where)
        self._key, self._drop = key, self._zenoh.CongestionControl.DROP
        try:
            _check_plain(_without_place(config, key, "*"), "*$", address)
            self._publisher = self._session.declare_publisher(key, congestion_control=self._drop)
        except self._zenoh.ZError as error:
            self.close()
            raise NodeError(f"{where}={shorten(address)}: {error}. Try another key.") from None
        except NodeError:
            self.close()
            raise

    def __call__(self, reports: list[Status]) -> None:
        if not self._publisher.matching_status.matching:
            self.dropped += len(reports)
            return
        for report in reports:
            line = to_line(report).rstrip()
            try:
                if "*" in self._key:
                    place = place_of(self._key, report["name"], "*")
                    self._session.put(place, line, congestion_control=self._drop)
                else:
                    self._publisher.put(line)
            except self._zenoh.ZError:  # the link is down
                self.dropped += 1

    def close(self) -> None:
        with contextlib.suppress(self._zenoh.ZError):
            self._session.close()


class MqttSink:
    """Estimates on an MQTT topic. While the broker is away or does not read, they are dropped."""

    def __init__(self, config: NodeConfig, say: Say):
        address = config.estimates.address
        self.dropped = 0
        self._client, self._topic = _mqtt_client(config, address, "estimates.address", say)
        _check_plain(_without_place(config, self._topic, "+"), "#+", address)
        self._client.loop_start()

    def __call__(self, reports: list[Status]) -> None:
        if not self._client.is_connected() or self._client.want_write():
            self.dropped += len(reports)
            return
        for report in reports:
            self._client.publish(place_of(self._topic, report["name"], "+"), to_line(report).rstrip())

    def close(self) -> None:
        _leave_mqtt(self._client)


def _dial_zenoh(config: NodeConfig, address: str, where: str) -> tuple[ModuleType, Any, str]:
    """zenoh, a session that dials the host of protocol/host:port/key, and the key. It redials until it gets through."""
    protocol, _, rest = address.partition("/")
    host, key = _split(rest, address, where, "tcp/127.0.0.1:7448/greenhouse/7")
    place = Endpoint.parse(f"{protocol}/{host}", where)
    _check_tls(
        config, f"{where}={shorten(address)}", place.loopback or place.protocol == "tls", place.protocol == "tls"
    )
    zenoh = load_zenoh(config.rx_threads)
    settings: dict[str, Any] = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/protocols": [place.protocol],
        "listen/endpoints": [],
        "connect/endpoints": [str(place)],
        "connect/timeout_ms": -1,  # the other side may start later
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
        return zenoh, zenoh.open(raw), key
    except zenoh.ZError as error:
        raise NodeError(f"{where}={shorten(address)}: {error}. Try another place.") from None


def _mqtt_client(config: NodeConfig, address: str, where: str, say: Say) -> tuple[Any, str]:
    """host:port/topic: a client that connects, again and again, once its thread is started; and the topic."""
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError:
        raise missing_extra("paho-mqtt", "mqtt", f"{where.partition('.')[0]} by MQTT") from None
    host, topic = _split(address, address, where, "127.0.0.1:1883/greenhouse/7")
    place = host_and_port(host, where, "127.0.0.1:1883/greenhouse/7")
    _check_tls(config, f"{where}={shorten(address)}", place.loopback or config.tls is not None, not place.loopback)
    client: Any = Client(CallbackAPIVersion.VERSION2)
    if not place.loopback and config.tls is not None:
        client.tls_set(config.tls.ca, config.tls.certificate, config.tls.key)
    report = _BrokerReport(f"the broker at {host} ({where})", say)
    client.on_connect_fail = lambda *_: report.lost("it does not answer")
    client.on_disconnect = lambda _, __, ___, reason, *____: report.lost(f"the connection ended, {reason}")
    client.on_connect = lambda _, __, ___, reason, *____: (
        report.lost(f"it refuses, {reason}") if reason.is_failure else report.back()
    )
    client.connect_async(place.host, place.port)
    return client, topic


class _BrokerReport:
    """Says that a broker is away, why, and that it is back; at most once a minute."""

    def __init__(self, what: str, say: Say):
        self._what, self._say = what, say
        self._away, self._said = False, -math.inf

    def lost(self, why: str) -> None:
        if not self._away and time.monotonic() - self._said >= _CALM:
            self._away, self._said = True, time.monotonic()
            self._say(f"{self._what} is away: {why}. It is dialed until it answers.")

    def back(self) -> None:
        if self._away:
            self._away = False
            self._say(f"{self._what} is back.")


def _leave_mqtt(client: Any) -> None:
    client.on_disconnect = None
    client.disconnect()
    client.loop_stop()


def _split(text: str, whole: str, where: str, example: str) -> tuple[str, str]:
    host, _, key = text.partition("/")
    if not host or not key:
        raise NodeError(f"{where}={shorten(whole)}: it must be an address and a key. Try {example!r}.")
    return host, key


def _without_place(config: NodeConfig, key: str, one: str) -> str:
    """The key of a sink without the one wildcard that may stand for the local agents of a gateway."""
    return place_of(key, "", one) if config.gateway and key.split("/").count(one) == 1 else key


def _check_plain(key: str, wild: str, address: str) -> None:
    if set(key) & set(wild):
        raise NodeError(
            f"estimates.address={shorten(address)}: estimates go to one key, or a gateway's to one per local agent, in "
            f"place of one wildcard that is a level of its own. Leave out other wildcards ({wild})."
        )


def _check_tls(config: NodeConfig, where: str, safe: bool, needs_keys: bool) -> None:
    if not safe:
        raise NodeError(f"{where}: off loopback TLS is required. Use 127.0.0.1, or 'tls/...' and [tls].")
    if needs_keys and config.tls is None:
        raise NodeError(f"{where}: TLS needs keys. Add [tls], see: colme node keys.")
