"""Files that keep strangers away from the port of an agent: rules for nftables, and a drop-in for its systemd unit.

zenoh pauses its listener for 0.1 s after every TLS handshake that fails, and every connection takes a descriptor. So
strangers who reach the port can keep new links waiting and use up descriptors, without any key. A plan knows the
addresses of the agents, and writes into the folder of each one that listens

    firewall.nft   only addresses of the fleet reach the port; of each address, so many links and new connections per
                   second. Load it with: nft -f firewall.nft
    limits.conf    the same addresses for systemd, and more descriptors. Copy it to
                   /etc/systemd/system/colme-node@NAME.service.d/

Where an agent's address is not known (it has none, or a name that is resolved elsewhere, or newcomers are admitted)
other addresses are not kept away, but share a small number of links, and of new connections per second.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colme.node.config.presets import MOST_LINKS
from colme.node.names import is_loopback

RULES, LIMITS = "firewall.nft", "limits.conf"
NEW_PER_SECOND = 10
"""New connections per second of one agent: three sessions that dial every half second, and some in store."""
STRANGERS_PER_SECOND = 5
"""New connections per second of all addresses that are not known, together: zenoh can refuse ten."""
STRANGERS = 4 * MOST_LINKS
"""Links of all these addresses together."""
DESCRIPTORS = 4096


def write(folder: Path, hosts: Sequence[Any], listening: dict[str, int], *, newcomers: bool) -> str:
    """Write the files of every agent that listens off loopback. Returns a sentence about addresses that are not known;
    empty: all are.

    hosts      the agents of the fleet, with name and address (None: it cannot be dialed)
    listening  the ports at which agents listen
    newcomers  whether agents that are not in the list may come
    """
    away = [host for host in hosts if host.address is not None and not is_loopback(host.address)]
    if not away:
        return ""
    known = Counter(str(address) for host in away if (address := _literal(host.address)) is not None)
    unknown = [host.name for host in hosts if host.address is None or (host in away and _literal(host.address) is None)]
    others = bool(unknown) or newcomers
    for host in hosts:
        if host.name in listening:
            (folder / host.name / RULES).write_text(rules(listening[host.name], known, others=others))
            (folder / host.name / LIMITS).write_text(limits(host.name, sorted(known), others=others))
    if not unknown:
        return ""
    return (
        f"{', '.join(unknown[:5])}{', ...' if len(unknown) > 5 else ''}: no address is known from which they dial, so "
        f"{RULES} keeps strangers away only by a limit. Give addresses instead of names, or use a tunnel."
    )


def rules(port: int, known: dict[str, int], *, others: bool) -> str:
    """Rules for nftables: a table of their own, which replaces the last version of itself and nothing else.

    known   addresses of the fleet, and how many agents each has
    others  whether other addresses may come, at a limited rate
    """
    table = f"colme_{port}"
    agents = max(known.values(), default=1)
    lines = [
        f"# Written by `colme node plan`: who reaches TCP port {port} of this machine. Load it with: nft -f {RULES}",
        "# Rules of other tables still hold. Remove these with: nft delete table inet " + table,
        f"table inet {table}",
        f"delete table inet {table}",
        f"table inet {table} {{",
    ]
    families = [("4", "ipv4_addr", "ip"), ("6", "ipv6_addr", "ip6")]
    by_family = {version: [each for each in known if str(ipaddress.ip_address(each).version) == version]
                 for version, _, _ in families}  # fmt: skip
    for version, kind, _ in families:
        elements = f" elements = {{ {', '.join(sorted(by_family[version]))} }};" if by_family[version] else ""
        lines.append(f"    set fleet{version} {{ type {kind};{elements} }}")
        lines += [f"    set {what}{version} {{ type {kind}; size 65535; flags dynamic; }}" for what in ("links", "new")]
    lines += [
        "    set links_of_others { type inet_service; size 16; flags dynamic; }",
        "    chain input {",
        "        type filter hook input priority filter; policy accept;",
        f"        tcp dport != {port} accept",
        "        meta l4proto != tcp accept",
        '        iifname "lo" accept',
        "        ct state established,related accept",
    ]
    for version, _, family in families:
        lines.append(f"        {family} saddr @fleet{version} jump fleet")
    if others:
        rate = STRANGERS_PER_SECOND
        lines += [
            f"        limit rate over {rate}/second burst {2 * rate} packets counter drop",
            f"        add @links_of_others {{ tcp dport ct count over {STRANGERS} }} counter drop",
            "        accept",
        ]
    else:
        lines.append("        counter drop")
    lines += ["    }", "    chain fleet {"]
    for version, _, family in families:
        most, rate = MOST_LINKS * agents, NEW_PER_SECOND * agents
        lines += [
            f"        add @links{version} {{ {family} saddr ct count over {most} }} counter drop",
            f"        add @new{version} {{ {family} saddr limit rate over {rate}/second burst {2 * rate} packets }} "
            "counter drop",
        ]
    lines += ["        accept", "    }", "}"]
    return "\n".join(lines) + "\n"


def limits(name: str, known: Sequence[str], *, others: bool) -> str:
    """A drop-in for the systemd unit of an agent."""
    lines = [
        f"# Written by `colme node plan`. Copy it to /etc/systemd/system/colme-node@{name}.service.d/{LIMITS}, then:",
        f"# systemctl daemon-reload && systemctl restart colme-node@{name}",
        "[Service]",
        "# Strangers at the port take descriptors; an agent itself needs some thirty.",
        f"LimitNOFILE={DESCRIPTORS}",
    ]
    if others:
        lines.append("# Not all addresses of the fleet are known, so none are denied here.")
    else:
        lines += [
            "# Nothing else is sent or received: add the addresses of brokers of samples and estimates.",
            "IPAddressDeny=any",
            "IPAddressAllow=localhost",
            *(f"IPAddressAllow={address}" for address in known),
        ]
    return "\n".join(lines) + "\n"


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, unless it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
