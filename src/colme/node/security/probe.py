"""Probe a neighbor that stays silent: dial it once with Python's ssl and say in one sentence why there is no link.

zenoh dials again and again, and says nothing. The probe makes the checks that zenoh makes, with the keys of the agent.
In TLS 1.3 the other end checks the certificate of this one after the handshake, so the probe reads for a while after
it: an alert says what the other end refuses, and silence that it waits for zenoh to speak.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import subprocess
import sys
import time
from typing import Any, NamedTuple

from colme.node.names import Endpoint
from colme.node.security.identity import common_name

TIMEOUT = 5.0
"""Seconds that connecting, or an answer, may take."""
_ALERT_IN = 1.0  # seconds in which an alert arrives after the handshake


class Reason(NamedTuple):
    """Why a neighbor is silent: one word for counters, and a sentence with the remedy."""

    word: str
    sentence: str


_ALERTS = {
    "unknown_ca": ("untrusted", "{name} does not trust the certificate of this agent: their authorities differ. Use "
                   "keys of one authority."),
    "certificate_expired": ("expired", "for {name} the certificate of this agent has expired or is not valid yet. "
                            "Check both clocks, or try: colme node keys --rotate."),
    "certificate_unknown": ("untrusted", "{name} refuses the certificate of this agent. Use keys of one authority."),
    "bad_certificate": ("untrusted", "{name} refuses the certificate of this agent: it is not valid there, or {name}'s "
                        "clock is behind. Use keys of one authority, and check the clocks."),
    "decrypt_error": ("untrusted", "{name} does not trust the certificate of this agent: an authority of the same name "
                      "has other keys. Use keys of one authority."),
    "certificate_required": ("untrusted", "{name} asks for a certificate. Give this agent one, see: colme node keys."),
}  # fmt: skip


def why_silent_apart(name: str, endpoint: str, files: Any | None) -> Reason | None:
    """`why_silent` in another process, unless this one has loaded ssl already, which would take 5 MiB. It takes
    seconds: call it in a thread. None if there is no answer."""
    if "ssl" in sys.modules or not sys.executable or files is None:
        return why_silent(name, endpoint, files)
    arguments = [sys.executable, "-P", "-m", __name__, name, endpoint, files.ca, files.certificate, files.key]
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=6 * TIMEOUT)
        return Reason(*json.loads(done.stdout))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):  # no memory or descriptors for a process
        return None


def why_silent(name: str, endpoint: str, files: Any | None) -> Reason:
    """Why there is no link to an agent at an endpoint. Without files (ca, certificate and key) there is no TLS."""
    place = Endpoint.parse(endpoint)
    where = endpoint.partition("/")[2]
    try:
        link = socket.create_connection((place.host, place.port), timeout=TIMEOUT)
    except OSError as error:
        return _not_connected(name, where, error)
    with link:
        if files is None:
            return Reason("mute", f"{name} accepts connections at {where} and says nothing: is it another program, or "
                          "of another network? Compare name and network in both node.toml.")  # fmt: skip
        return _tls(name, where, place.host, link, files)


def _not_connected(name: str, where: str, error: OSError) -> Reason:
    if isinstance(error, socket.gaierror):
        return Reason("unresolved", f"the name of {name}'s host does not resolve ({where}): {error.strerror}. Check "
                      "the endpoint in node.toml, or the resolver of this machine.")  # fmt: skip
    if isinstance(error, ConnectionRefusedError):
        return Reason("refused", f"nothing listens at {where}. Is {name} running there? Start it, or check its "
                      "endpoint in node.toml.")  # fmt: skip
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return Reason("timeout", f"{where} does not answer: {name}'s machine is off, or a firewall drops the packets. "
                      "Check both.")  # fmt: skip
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN):
        return Reason("unreachable", f"there is no route to {where}: {error.strerror}. Check the network of this "
                      f"machine and of {name}'s.")  # fmt: skip
    return Reason("failed", f"{where} cannot be dialed: {error.strerror or error}. Check the endpoint of {name} in "
                  "node.toml.")  # fmt: skip


def _tls(name: str, where: str, host: str, link: socket.socket, files: Any) -> Reason:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        return Reason("keys", f"the keys of this agent cannot be read any more: {error}. Try: colme node keys.")
    try:
        with context.wrap_socket(link, server_hostname=host) as end:
            found = common_name(end)
            if found != name:
                return Reason("name", f"at {where} {found!r} answers, not {name!r}. Correct the endpoint in node.toml.")
            end.settimeout(_ALERT_IN)
            with contextlib.suppress(TimeoutError):  # it has accepted, and waits for zenoh to speak
                end.recv(1)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(name, where, error.verify_message, context)
    except ssl.SSLError as error:
        return _alert(name, where, error)
    except TimeoutError:
        return Reason("timeout", f"{where} accepts connections and does not answer: {name} hangs, or strangers keep "
                      "its port busy. Look there, and let a firewall admit only the fleet.")  # fmt: skip
    except OSError as error:
        return Reason("closed", f"{name} at {where} closes the connection: {error.strerror or error}. Is it a colme "
                      "agent, and not at its limit of links?")  # fmt: skip
    return Reason("mute", f"{name} answers at {where} and accepts the certificate, but sends no records. Do both list "
                  "each other as neighbors or members, with one network in both node.toml?")  # fmt: skip


def _untrusted(name: str, where: str, message: str, context: Any) -> Reason:
    if "expired" in message:
        return Reason("expired", f"the certificate of {name} has expired, or the clock of this machine is ahead "
                      f"({_now()}). Try: colme node keys {name} --rotate.")  # fmt: skip
    if "not yet valid" in message:
        return Reason("not_yet_valid", f"the certificate of {name} is not valid yet: the clock of this machine is "
                      f"behind ({_now()}). Set the clock.")  # fmt: skip
    if "mismatch" in message or "not valid for" in message:
        return Reason("host", f"the certificate of what answers at {where} is not for that host. Make one with: colme "
                      f"node keys {name} --host ..., or correct the endpoint.")  # fmt: skip
    return Reason("unknown_ca", f"the certificate at {where} is not of the authority of this agent ({message}). Use "
                  "keys of one authority.")  # fmt: skip


def _alert(name: str, where: str, error: Any) -> Reason:
    """The reason in an alert of the other end."""
    reason = (error.reason or str(error)).lower()
    for alert, (word, sentence) in _ALERTS.items():
        if reason.endswith(alert):
            return Reason(word, sentence.format(name=name))
    if "alert" in reason:
        return Reason("untrusted", f"{name} refuses the certificate of this agent ({reason}). Use one authority.")
    return Reason("tls", f"what answers at {where} does not speak TLS 1.3 ({reason}). Is it {name}? Check the "
                  "endpoint in node.toml.")  # fmt: skip


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _main(name: str, endpoint: str, ca: str, certificate: str, key: str) -> None:
    from types import SimpleNamespace

    print(json.dumps(why_silent(name, endpoint, SimpleNamespace(ca=ca, certificate=certificate, key=key))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
