"""Samples and estimates as messages on an MQTT topic. Off loopback the client uses TLS, with the keys of the agent. It
redials on its own while the broker is away."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from colme.errors import NodeError, missing_extra, shorten
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sinks import to_line
from colme.node.io.sources import CHUNK, Message, Messages, Say
from colme.node.io.status import Status
from colme.node.names import host_and_port

ROOM = 1024
"""Messages that wait for a tick; when it is full, the oldest is dropped."""
_CALM = 60.0  # seconds before the loss of a broker is reported again


def wild_part(pattern: str, topic: str) -> str | None:
    """The levels of a topic that wildcards stand for, joined by slashes; None if the pattern has no wildcard.

    >>> wild_part("plant/+/temperature", "plant/boiler-3/temperature")
    'boiler-3'
    >>> wild_part("plant/#", "plant/hall/7")
    'hall/7'
    """
    wanted, found = pattern.split("/"), topic.split("/")
    if wanted[0] == "$share":  # $share/group/pattern
        wanted = wanted[2:]
    if not {"+", "#"}.intersection(wanted):
        return None
    if wanted[-1] == "#":  # it stands for the levels that are left, which may be none
        wanted[-1:] = ["+"] * (len(found) - len(wanted) + 1)
    return "/".join(level for level, want in zip(found, wanted, strict=False) if want == "+")


def place_of(pattern: str, name: Any) -> str:
    """The topic for an agent: its name in place of the wildcard, with characters that mean something in topics written
    as in addresses of pages. So are slashes that would make an empty level. Different names have different topics.

    >>> place_of("plant/+/estimate", "boiler #3")
    'plant/boiler %233/estimate'
    """
    special = "+#$%" + "/" * ("" in str(name).split("/"))
    safe = "".join(f"%{ord(c):02X}" if c in special else c for c in str(name))
    return "/".join(safe if level == "+" else level for level in pattern.split("/"))


def subscribe(config: NodeConfig, messages: Messages, say: Say) -> Messages:
    """Connect `messages` to the topic of the configuration."""
    client, topic = _mqtt_client(config, config.samples.address, "samples.address", say)
    room = ROOM if config.gateway is None else max(ROOM, 4 * config.gateway.agents)
    waiting: deque[Message] = deque(maxlen=room)
    greet = client.on_connect

    def on_connect(*heard: Any) -> None:
        greet(*heard)
        client.subscribe(topic)

    client.on_connect = on_connect
    client.on_message = lambda _, __, message: waiting.append(
        (wild_part(topic, message.topic), bytes(message.payload[:CHUNK]))
    )
    client.loop_start()
    messages.pull = lambda: [waiting.popleft() for _ in range(len(waiting))]
    messages.leave = lambda: _leave_mqtt(client)
    return messages


class MqttSink:
    """Estimates on an MQTT topic. While the broker is away or does not read, they are dropped."""

    def __init__(self, config: NodeConfig, say: Say):
        address = config.estimates.address
        self.dropped = 0
        self._client, self._topic = _mqtt_client(config, address, "estimates.address", say)
        many = config.gateway and self._topic.split("/").count("+") == 1
        if set(place_of(self._topic, "") if many else self._topic) & set("#+"):
            raise NodeError(
                f"estimates.address={shorten(address)}: estimates go to one topic, or a gateway's to one per local "
                "agent, in place of one wildcard that is a level of its own. Leave out other wildcards (#+)."
            )
        self._client.loop_start()

    def __call__(self, reports: list[Status]) -> None:
        if not self._client.is_connected() or self._client.want_write():
            self.dropped += len(reports)
            return
        for report in reports:
            self._client.publish(place_of(self._topic, report["name"]), to_line(report).rstrip())

    def close(self) -> None:
        _leave_mqtt(self._client)


def _mqtt_client(config: NodeConfig, address: str, where: str, say: Say) -> tuple[Any, str]:
    """host:port/topic: a client that connects, again and again, once its thread is started; and the topic."""
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError:
        raise missing_extra("paho-mqtt", "mqtt", f"{where.partition('.')[0]} by MQTT") from None
    example = "127.0.0.1:1883/greenhouse/7"
    host, _, topic = address.partition("/")
    if not host or not topic:
        raise NodeError(f"{where}={shorten(address)}: it must be an address and a topic. Try {example!r}.")
    place = host_and_port(host, where, example)
    if not place.loopback and config.tls is None:
        raise NodeError(
            f"{where}={shorten(address)}: off loopback TLS is required. Use 127.0.0.1, or "
            "add [tls], see: colme node keys."
        )
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
