"""The configuration of a zenoh session: what a node accepts, from which agents, how large and how often. Pure data.

Every session is a peer (peers do not relay, so the graph of links is the graph of neighbors) without discovery of any
kind, without admin space, and with an access list that denies by default. Agent n may publish to agent m, and m may
subscribe to,

    cme/<network>/a/<n>          records of n
    cme/<network>/x/<n>/<m>      control messages
    cme/<network>/live/<n>       presence of n

and nothing else. An agent's name is the common name of the certificate of its link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from colme.node.config import presets
from colme.node.config.node_toml import NodeConfig
from colme.node.names import KeyExpressions

_SAY = ["put", "liveliness_token"]
_ASK = ["declare_subscriber", "declare_liveliness_subscriber", "liveliness_query"]
_ACCEPTING = 10_000  # ms that opening a link may take, at most: zenoh's own, for TLS and for its handshake after that
_OPEN_DELAY = 50  # ms that opening a session waits for its first links
_FRAME = 512  # bytes around a message on the wire: key, header, extensions
_BATCH = (4096, 65535)  # bytes that go out at once, at least (for the handshake of a link) and at most (zenoh's own)


def listening(config: NodeConfig, admitted: Iterable[str] = ()) -> dict[str, Any]:
    """The session at which other agents dial this one: its peers, and those that were admitted at run time."""
    return _session(config, sorted({*config.peers, *admitted})) | {
        "listen/endpoints": list(config.listen),
        "transport/unicast/max_sessions": config.max_sessions,
        # links that are half open, after their TLS handshake: as many as there may be sessions
        "transport/unicast/accept_pending": config.max_sessions,
        "transport/unicast/accept_timeout": _ACCEPTING,
    }


def dialing(config: NodeConfig, neighbor: str, endpoint: str, *, patience: int = 1) -> dict[str, Any]:
    """The session that dials one neighbor. Whatever answers, only the neighbor is heard. Attempts, and the waits
    between them, may take `patience` times as long as usual."""
    preset = presets.preset(config.preset)
    return _session(config, (neighbor,)) | {
        "listen/endpoints": [],
        "connect/endpoints": [endpoint],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {
            "period_init_ms": _milliseconds(preset.first_retry),
            "period_max_ms": _milliseconds(presets.last_retry(config.lease, patience)),
            "period_increase_factor": 1.5,
        },
        "transport/unicast/max_sessions": 2,
        "transport/unicast/open_timeout": min(_milliseconds(patience * preset.attempt), _ACCEPTING),
    }


def runtime(rx_threads: int) -> str:
    """The value of ZENOH_RUNTIME: threads of a process. By default zenoh has two receiving threads, and closing two
    dead links blocks both for ten seconds (it closes sockets with SO_LINGER).

    Accepting, dialing and sending use the same threads: with separate pools, whatever arrives would wake one thread
    that polls the sockets and a second one that reads."""
    others = ", ".join(f"{pool}: (handover: rx)" for pool in ("acc", "net", "tx"))
    return f"(rx: (worker_threads: {rx_threads}), {others})"


def _session(config: NodeConfig, others: Sequence[str]) -> dict[str, Any]:
    keys = KeyExpressions(config.network)
    batch = min(max(config.max_record + _FRAME, _BATCH[0]), _BATCH[1])
    settings = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "scouting/delay": _OPEN_DELAY,
        "adminspace/enabled": False,
        "transport/shared_memory/enabled": False,  # it would add a third of a second to each opening
        "transport/link/protocols": ["tcp" if config.tls is None else "tls"],
        "transport/link/tx/lease": _milliseconds(config.lease),
        "transport/link/tx/batch_size": batch,  # a link has a dozen buffers of this size
        "transport/link/rx/buffer_size": batch,
        # bounds reassembled messages; single ones are bounded by the filter below
        "transport/link/rx/max_message_size": config.max_record + _FRAME,
        "access_control": _access(keys, config.name, others, by_certificate=config.tls is not None),
        "low_pass_filter": [
            {
                "id": "size", "messages": ["put", "delete", "query", "reply"], "flows": ["ingress"],
                "key_exprs": ["**"], "size_limit": config.max_record,
            }
        ],
        "downsampling": [
            {
                "id": "rate", "messages": ["put"], "flows": ["ingress"],
                "rules": [{"key_expr": keys.state("*"), "freq": config.max_rate}],
            }
        ],
    }  # fmt: skip
    if config.tls is not None:
        certificate, key = config.tls.certificate, config.tls.key
        settings["transport/link/tls"] = {
            "root_ca_certificate": config.tls.ca,
            "enable_mtls": True,
            "listen_certificate": certificate,
            "listen_private_key": key,
            "connect_certificate": certificate,
            "connect_private_key": key,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        }
    return settings


def _access(keys: KeyExpressions, me: str, others: Sequence[str], *, by_certificate: bool) -> dict[str, Any]:
    """An access list that denies everything but what this agent and each peer may publish to each other."""
    rules: list[dict[str, Any]] = []
    subjects, policies = [], []
    for i, other in enumerate(others):
        mine, theirs = keys.said_by(me, other), keys.said_by(other, me)
        own = [
            _rule(f"hear-{i}", "ingress", _SAY, theirs),
            _rule(f"asked-{i}", "ingress", _ASK, mine),
            _rule(f"say-{i}", "egress", _SAY, mine),
            _rule(f"ask-{i}", "egress", _ASK, theirs),
        ]
        rules += own
        subject = {"cert_common_names": [other]} if by_certificate else {}  # {}: any process of this machine
        subjects.append({"id": f"agent-{i}"} | subject)
        policies.append({"rules": [rule["id"] for rule in own], "subjects": [f"agent-{i}"]})
    return {
        "enabled": True, "default_permission": "deny", "rules": rules, "subjects": subjects, "policies": policies,
    }  # fmt: skip


def _rule(name: str, flow: str, messages: list[str], key_exprs: list[str]) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": key_exprs}


def _milliseconds(seconds: float) -> int:
    return max(1, round(1000 * seconds))
