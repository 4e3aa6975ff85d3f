"""Brokers: samples and estimates as messages on a zenoh key or an MQTT topic. Off loopback both use TLS, with the keys
of the agent. Both clients redial on their own while the broker is away."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from types import ModuleType
from typing import Any

from colme.errors import NodeError, missing_extra, shorten
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sinks import to_line
from colme.node.io.sources import CHUNK, Messages
from colme.node.io.status import Status
from colme.node.names import Endpoint, host_and_port
from colme.node.net.zenoh_transport import load_zenoh

ROOM = 1024
"""Messages that wait for a tick; when it is full, the oldest is dropped."""


def open_broker(config: NodeConfig, messages: Messages) -> Messages:
    """Subscribe, and connect `messages` to the subscription."""
    (_hear_zenoh if config.samples.source == "zenoh" else _hear_mqtt)(config, messages)
    return messages


def _hear_zenoh(config: NodeConfig, messages: Messages) -> None:
    """A zenoh session that subscribes to the key and publishes nothing."""
    address, where = config.samples.address, "samples.address"
    zenoh, session, key = _dial_zenoh(config, address, where)
    try:
        box = session.declare_subscriber(key, zenoh.handlers.RingChannel(ROOM))
    except zenoh.ZError as error:
        session.close()
        raise NodeError(f"{where}={shorten(address)}: {error}. Try another key.") from None

    def pull() -> list[bytes]:
        heard: list[bytes] = []
        while len(heard) < ROOM and (found := box.try_recv()) is not None:
            heard.append(bytes(found.payload))
        return heard

    def leave() -> None:
        with contextlib.suppress(zenoh.ZError):  # it may time out
            session.close()

    messages.pull, messages.leave = pull, leave


def _hear_mqtt(config: NodeConfig, messages: Messages) -> None:
    client, topic = _mqtt_client(config, config.samples.address, "samples.address")
    waiting: deque[bytes] = deque(maxlen=ROOM)
    client.on_connect = lambda *_: client.subscribe(topic)
    client.on_message = lambda _, __, message: waiting.append(bytes(message.payload[:CHUNK]))
    client.loop_start()
    messages.pull = lambda: [waiting.popleft() for _ in range(len(waiting))]
    messages.leave = lambda: _leave_mqtt(client)


class ZenohSink:
    """Estimates on a zenoh key. Without a subscriber they are dropped."""

    def __init__(self, config: NodeConfig):
        address, where = config.estimates.address, "estimates.address"
        self.dropped = 0
        self._zenoh, self._session, key = _dial_zenoh(config, address, where)
        drop = self._zenoh.CongestionControl.DROP
        try:
            _check_plain(key, "*$", address)
            self._publisher = self._session.declare_publisher(key, congestion_control=drop)
        except self._zenoh.ZError as error:
            self.close()
            raise NodeError(f"{where}={shorten(address)}: {error}. Try another key.") from None
        except NodeError:
            self.close()
            raise

    def __call__(self, report: Status) -> None:
        if not self._publisher.matching_status.matching:
            self.dropped += 1
            return
        try:
            self._publisher.put(to_line(report).rstrip())
        except self._zenoh.ZError:  # the link is down
            self.dropped += 1

    def close(self) -> None:
        with contextlib.suppress(self._zenoh.ZError):
            self._session.close()


class MqttSink:
    """Estimates on an MQTT topic. While the broker is away or does not read, they are dropped."""

    def __init__(self, config: NodeConfig):
        address = config.estimates.address
        self.dropped = 0
        self._client, self._topic = _mqtt_client(config, address, "estimates.address")
        _check_plain(self._topic, "#+", address)
        self._client.loop_start()

    def __call__(self, report: Status) -> None:
        if self._client.is_connected() and not self._client.want_write():
            self._client.publish(self._topic, to_line(report).rstrip())
        else:
            self.dropped += 1

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


def _mqtt_client(config: NodeConfig, address: str, where: str) -> tuple[Any, str]:
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
    client.connect_async(place.host, place.port)
    return client, topic


def _leave_mqtt(client: Any) -> None:
    client.disconnect()
    client.loop_stop()


def _split(text: str, whole: str, where: str, example: str) -> tuple[str, str]:
    host, _, key = text.partition("/")
    if not host or not key:
        raise NodeError(f"{where}={shorten(whole)}: it must be an address and a key. Try {example!r}.")
    return host, key


def _check_plain(key: str, wild: str, address: str) -> None:
    if set(key) & set(wild):
        raise NodeError(
            f"estimates.address={shorten(address)}: estimates go to one key. Leave out the wildcards {wild}."
        )


def _check_tls(config: NodeConfig, where: str, safe: bool, needs_keys: bool) -> None:
    if not safe:
        raise NodeError(f"{where}: off loopback TLS is required. Use 127.0.0.1, or 'tls/...' and [tls].")
    if needs_keys and config.tls is None:
        raise NodeError(f"{where}: TLS needs keys. Add [tls], see: colme node keys.")
