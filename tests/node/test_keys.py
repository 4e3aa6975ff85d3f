"""Authorities and certificates: names, file modes, renewal."""

from __future__ import annotations

import datetime
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from colme.errors import NodeError
from colme.node.security import keys
from colme.node.security.identity import check_identity, check_identity_apart
from colme.node.security.keys import identity, make_authority, make_certificate, rotate
from tests.support.node_fleet import environment, tls

HOSTS = ["pi-3.local", "192.168.1.13", "fe80::3"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_authority(tmp_path / "authority", "greenhouse")
    make_certificate(tmp_path / "authority", "pi-3", HOSTS, folder=tmp_path / "pi-3")
    return tmp_path


def check(folder: Path, name: str = "pi-3") -> keys.Identity:
    check_identity(name, tls(folder, name))
    return identity(folder / name / f"{name}.pem")


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_says_who_where_and_how_long(made: Path) -> None:
    found = check(made)
    assert found.name == "pi-3" and set(found.hosts) == set(HOSTS)
    left = found.expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left < datetime.timedelta(days=366)
    own, authority = certificate(made / "pi-3" / "pi-3.pem"), certificate(made / "authority" / "ca.pem")
    own.verify_directly_issued_by(authority)
    for each in (own, authority):
        key = each.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints.ca and constraints.path_length == 0


def test_keys_are_private_and_an_agent_does_not_get_that_of_the_authority(made: Path) -> None:
    for path in (made / "authority" / "ca.key", made / "pi-3" / "pi-3.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in (made / "pi-3").iterdir()) == ["ca.pem", "pi-3.key", "pi-3.pem"]


def test_nothing_is_overwritten(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with pytest.raises(NodeError, match=r"ca.key exists: keys are not overwritten. Choose another folder, or rotate"):
        make_authority(made / "authority", "greenhouse")
    with pytest.raises(NodeError, match=r"pi-3.key exists"):
        make_certificate(made / "authority", "pi-3", HOSTS, folder=made / "pi-3")
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_rotation_renews_key_and_certificate_for_the_same_hosts(made: Path) -> None:
    own = made / "pi-3"
    old = {path.name: path.read_bytes() for path in own.iterdir()}
    rotate(made / "authority", "pi-3", folder=own, days=10)
    new = {path.name: path.read_bytes() for path in own.iterdir()}
    assert old.keys() == new.keys() and old["ca.pem"] == new["ca.pem"]
    assert old["pi-3.key"] != new["pi-3.key"] and old["pi-3.pem"] != new["pi-3.pem"]
    assert stat.S_IMODE((own / "pi-3.key").stat().st_mode) == 0o600
    found = check(made)
    assert set(found.hosts) == set(HOSTS)
    assert found.expires - datetime.datetime.now(datetime.UTC) < datetime.timedelta(days=11)


def test_a_new_authority_is_trusted_beside_the_old_one(made: Path) -> None:
    make_authority(made / "newer", "greenhouse")
    rotate(made / "newer", "pi-3", folder=made / "pi-3")
    check(made)
    trusted = x509.load_pem_x509_certificates((made / "pi-3" / "ca.pem").read_bytes())
    assert trusted == [certificate(made / "newer" / "ca.pem"), certificate(made / "authority" / "ca.pem")]


def test_an_interrupted_rotation_is_told_and_can_be_repeated(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = keys.write_whole

    def fail(path: Path, content: bytes, *, mode: int = 0o666) -> None:
        if path.suffix == ".pem":
            raise KeyboardInterrupt
        write(path, content, mode=mode)

    with monkeypatch.context() as patch:
        patch.setattr(keys, "write_whole", fail)
        with pytest.raises(KeyboardInterrupt):
            rotate(made / "authority", "pi-3", folder=made / "pi-3")
    with pytest.raises(NodeError, match=r"does not belong to .*Rotate the key"):
        check(made)
    rotate(made / "authority", "pi-3", folder=made / "pi-3")
    check(made)


@pytest.mark.parametrize(
    ("name", "hosts", "days", "sentence"),
    [
        ("a/b", [], 365, r"name='a/b'.* Try 'pi-3'"),
        (
            "ca",
            [],
            365,
            r"name='ca': ca.pem and ca.key are the authority's, so no agent can have this name. Try 'pi-3'",
        ),
        ("Authority", [], 365, r"name='Authority': the folder of this name is the authority's"),
        ("pi-4", ["bad host"], 365, r"host='bad host'"),
        ("pi-4", [], 0, r"days=0: it must be a whole number of at least 1. Try days=365"),
        ("pi-4", [], 10**8, r"days=100000000: that is beyond the calendar. Try days=365"),
    ],
)
def test_what_cannot_be_certified(name: str, hosts: list[str], days: int, sentence: str, made: Path) -> None:
    with pytest.raises(NodeError, match=sentence):
        make_certificate(made / "authority", name, hosts, folder=made / "new", days=days)
    assert not (made / "new").exists()


def test_torn_and_missing_files(made: Path) -> None:
    with pytest.raises(NodeError, match=r"cannot read .*ca.key: No such file"):
        make_certificate(made / "nowhere", "pi-4", [], folder=made / "pi-4")
    own = made / "pi-3"
    whole = (own / "pi-3.pem").read_bytes()
    (own / "pi-3.pem").write_bytes(whole[:100])
    with pytest.raises(NodeError, match=r"pi-3.pem is not the certificate of an agent"):
        identity(own / "pi-3.pem")
    (own / "pi-3.pem").write_bytes(whole)
    (own / "pi-3.key").write_bytes(b"torn")
    with pytest.raises(NodeError, match=r"pi-3.key is corrupt or encrypted"):
        check(made)
    (made / "authority" / "ca.key").chmod(0o644)
    with pytest.raises(NodeError, match=r"ca.key has mode 0644: a key must be readable by its owner only"):
        make_certificate(made / "authority", "pi-4", [], folder=made / "pi-4")
    with pytest.raises(NodeError, match=r"ca.pem is not the certificate of an agent"):
        identity(made / "authority" / "ca.pem")


def test_an_agent_checks_itself_without_holding_openssl(made: Path) -> None:
    """Python's TLS would be 5 MiB of an agent's memory, for one handshake at its start; the words are the same."""
    code = """
import sys
import time
from types import SimpleNamespace
from colme.errors import NodeError
from colme.node.security.identity import check_identity_apart
ca, certificate, key = sys.argv[1:]
check_identity_apart("pi-3", SimpleNamespace(ca=ca, certificate=certificate, key=key))
try:
    check_identity_apart("pi-4", SimpleNamespace(ca=ca, certificate=certificate, key=key))
except NodeError as error:
    print(error, [name for name in ("ssl", "hashlib", "_hashlib") if name in sys.modules])
"""
    files = tls(made, "pi-3")
    arguments = [sys.executable, "-c", code, files.ca, files.certificate, files.key]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.startswith(f"{files.certificate} is the certificate of 'pi-3'") and done.stdout.endswith("[]\n")


def test_the_identity_says_when_it_expires_and_blames_the_clock_if_it_is_not_valid_yet(tmp_path: Path) -> None:
    keys.make_authority(tmp_path / "authority", "test")
    keys.make_certificate(tmp_path / "authority", "bob", ["localhost"], folder=tmp_path / "bob", days=20)
    days = (check_identity("bob", tls(tmp_path, "bob")) - time.time()) / 86400
    assert 19.9 < days <= 20.0
    assert check_identity_apart("bob", tls(tmp_path, "bob")) == check_identity("bob", tls(tmp_path, "bob"))
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_now", lambda: later)
        keys.make_certificate(tmp_path / "authority", "cid", ["localhost"], folder=tmp_path / "cid")
    with pytest.raises(NodeError, match=r"cid.pem is valid from 20.*the clock of this machine says 20.*set the clock"):
        check_identity("cid", tls(tmp_path, "cid"))
