"""Names, endpoints and keys: what an agent may be called, where it can be dialed, and the zenoh keys it uses."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from colme.errors import NodeError, shorten

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # one chunk of a key, and a common name of at most 64 characters
AUTHORITY = "authority"
"""The folder of the authority among those of the agents."""
_RESERVED = {AUTHORITY: "the folder of this name is", "ca": "ca.pem and ca.key are"}
_ENDPOINT = re.compile(r"(tls|tcp)/(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def check_name(name: str, what: str) -> None:
    """Refuse a name that could have another meaning in a key or a certificate."""
    if not _NAME.fullmatch(name):
        raise NodeError(
            f"{what}={shorten(name)}: it must be 1 to 63 letters, digits, dots, underscores and hyphens, the first a "
            "letter or digit. Try 'pi-3'."
        )


def is_local_name(name: str) -> bool:
    """Whether this can be the name of a local agent of a gateway: up to 128 characters that can be printed."""
    return 0 < len(name) <= 128 and name.isprintable()


def check_file_name(name: str) -> None:
    """Refuse the name of an agent whose files would take the place of the authority's."""
    check_name(name, "name")
    if name.casefold() in _RESERVED:  # there are file systems to which CA and ca are the same
        what = _RESERVED[name.casefold()]
        raise NodeError(f"name={name!r}: {what} the authority's, so no agent can have this name. Try 'pi-3'.")


@dataclass(frozen=True)
class Endpoint:
    """Where an agent listens: protocol/host:port."""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, what: str = "endpoint") -> Endpoint:
        """Parse an endpoint. Options after the port are refused: they could replace the keys and checks of a link."""
        match = _ENDPOINT.fullmatch(text)
        if match is None or not 0 < int(match[3]) <= 65535:
            raise NodeError(
                f"{what}={shorten(text)}: it must be protocol/host:port, with protocol tls, or tcp within one machine, "
                "and port 1 to 65535. Try 'tls/192.168.1.13:7447'."
            )
        return cls(match[1], match[2].strip("[]"), int(match[3]))

    def __str__(self) -> str:
        return f"{self.protocol}/{bracketed(self.host)}:{self.port}"

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def host_and_port(text: str, what: str, example: str) -> Endpoint:
    """Parse host:port; the protocol of the result has no meaning."""
    try:
        return Endpoint.parse(f"tls/{text}")
    except NodeError:
        raise NodeError(f"{what}={shorten(text)}: it must be host:port. Try {example!r}.") from None


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. A name other than localhost may be anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of a machine: one can listen there, but not dial it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@dataclass(frozen=True)
class KeyExpressions:
    """The zenoh keys of a network."""

    network: str

    def state(self, agent: str) -> str:
        """Records."""
        return f"cme/{self.network}/a/{agent}"

    def control(self, sender: str, receiver: str) -> str:
        return f"cme/{self.network}/x/{sender}/{receiver}"

    def live(self, agent: str) -> str:
        return f"cme/{self.network}/live/{agent}"

    def said_by(self, speaker: str, listener: str) -> list[str]:
        """All keys on which one agent may publish to another."""
        return [self.state(speaker), self.control(speaker, listener), self.live(speaker)]
