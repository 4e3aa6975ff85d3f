"""Keys, ports and transports, for tests of agents on loopback."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from colme.node.config.node_toml import NodeConfig
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.security import keys as node_keys
from colme.node.security.keys import make_certificate
from tests.support.node_fleet import Opened, free_port, make_keys

HOSTS = ["localhost", "127.0.0.1"]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of everybody; in `rogue`, of an authority that calls itself the same; and, in folders of these names, of a
    bob whose certificate is `expired`, too `early`, or for a host `elsewhere`."""
    folder = make_keys(tmp_path_factory.mktemp("keys"))
    make_keys(folder / "rogue")
    make_certificate(folder / "authority", "bob", ["192.0.2.7"], folder=folder / "elsewhere" / "bob")
    now = datetime.datetime.now(datetime.UTC)
    for name, days in (("expired", -30), ("early", 30)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_keys, "_now", lambda days=days: now + datetime.timedelta(days=days))
            make_certificate(folder / "authority", "bob", HOSTS, folder=folder / name / "bob", days=5)
    return folder


@pytest.fixture(params=["tls", "tcp"])
def maybe_keys(request: pytest.FixtureRequest, keys: Path) -> Path | None:
    return keys if request.param == "tls" else None


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens transports, and closes them after the test."""
    with contextlib.ExitStack() as every:

        def one(settings: NodeConfig) -> ZenohTransport:
            return every.enter_context(contextlib.closing(ZenohTransport(settings)))

        yield one
