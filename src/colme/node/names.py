"""Names and addresses on the wire: what an agent may be called, where it may be reached, which keys it speaks on."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from colme.errors import NodeError, shorten

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # one chunk of a key, and a common name of at most 64 characters
_ENDPOINT = re.compile(r"(tls|tcp)/(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def check_name(name: str, what: str) -> None:
    """Refuse what could mean something else in a key or a certificate."""
    if not _NAME.fullmatch(name):
        raise NodeError(
            f"{what}={shorten(name)}: it must be 1 to 63 letters, digits, dots, underscores and hyphens, the first a "
            "letter or digit. Try 'pi-3'."
        )


@dataclass(frozen=True)
class Endpoint:
    """Where an agent listens: protocol/host:port."""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, what: str = "endpoint") -> Endpoint:
        """From its text. Options behind the port are refused: they could replace the keys and checks of a link."""
        match = _ENDPOINT.fullmatch(text)
        if match is None or int(match[3]) > 65535:
            raise NodeError(
                f"{what}={shorten(text)}: it must be protocol/host:port, the protocol tls, or tcp within one machine. "
                "Try 'tls/192.168.1.13:7447'."
            )
        return cls(match[1], match[2].strip("[]"), int(match[3]))

    def __str__(self) -> str:
        return f"{self.protocol}/{bracketed(self.host)}:{self.port}"

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def host_and_port(text: str, what: str, example: str) -> Endpoint:
    """From host:port; the protocol means nothing."""
    try:
        return Endpoint.parse(f"tls/{text}")
    except NodeError:
        raise NodeError(f"{what}={shorten(text)}: it must be host:port. Try {example!r}.") from None


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name other than localhost may be anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Whether it stands for all addresses of a machine: one can listen there, but not dial it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@dataclass(frozen=True)
class Keys:
    """What an agent of a network speaks on."""

    network: str

    def state(self, agent: str, part: int = 0) -> str:
        """The states of hosts of many agents have parts."""
        return f"cme/{self.network}/a/{agent}" + (f"/{part}" if part else "")

    def control(self, sender: str, receiver: str) -> str:
        return f"cme/{self.network}/x/{sender}/{receiver}"

    def live(self, agent: str) -> str:
        return f"cme/{self.network}/live/{agent}"

    def said_by(self, speaker: str, listener: str, parts: int = 1) -> list[str]:
        """All that one agent may say to another."""
        states = [self.state(speaker, part) for part in range(parts)]
        return [*states, self.control(speaker, listener), self.live(speaker)]
