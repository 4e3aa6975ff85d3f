"""Authorities and certificates: names, file modes, renewal."""

from __future__ import annotations

import datetime
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from colme.errors import NodeError
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.security import keys as node_keys
from colme.node.security.identity import check_identity, check_identity_apart
from colme.node.security.keys import identity, make_authority, make_certificate, rotate
from tests.support.node_fleet import config, free_port, tls

HOSTS = ["pi-3.local", "192.168.1.13", "fe80::3"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_authority(tmp_path / "authority", "greenhouse")
    make_certificate(tmp_path / "authority", "pi-3", HOSTS, folder=tmp_path / "pi-3")
    return tmp_path


def check(folder: Path, name: str = "pi-3") -> node_keys.Identity:
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
    write = node_keys.write_whole

    def fail(path: Path, content: bytes, *, mode: int = 0o666) -> None:
        if path.suffix == ".pem":
            raise KeyboardInterrupt
        write(path, content, mode=mode)

    with monkeypatch.context() as patch:
        patch.setattr(node_keys, "write_whole", fail)
        with pytest.raises(KeyboardInterrupt):
            rotate(made / "authority", "pi-3", folder=made / "pi-3")
    with pytest.raises(NodeError, match=r"does not belong to .*Rotate the key"):
        check(made)
    rotate(made / "authority", "pi-3", folder=made / "pi-3")
    check(made)


Refusal = tuple[Callable[[Path], object], str]
REFUSED: dict[str, Refusal] = {
    "name": (lambda made: certify(made, "a/b"), r"name='a/b'.* Try 'pi-3'"),
    "name of the authority's files": (
        lambda made: certify(made, "ca"),
        r"name='ca': ca.pem and ca.key are the authority's, so no agent can have this name. Try 'pi-3'",
    ),
    "name of the authority's folder": (
        lambda made: certify(made, "Authority"), r"name='Authority': the folder of this name is the authority's",
    ),
    "host": (lambda made: certify(made, hosts=["bad host"]), r"host='bad host'"),
    "no days": (lambda made: certify(made, days=0), r"days=0: it must be a whole number of at least 1. Try days=365"),
    "days": (lambda made: certify(made, days=10**8), r"days=100000000: that is beyond the calendar. Try days=365"),
    "authority that exists": (
        lambda made: make_authority(made / "authority", "x"),
        r"ca.key exists: keys are not overwritten. Choose another folder, or rotate",
    ),
    "agent that exists": (
        lambda made: make_certificate(made / "authority", "pi-3", HOSTS, folder=made / "pi-3"), r"pi-3.key exists",
    ),
    "no authority": (
        lambda made: make_certificate(made / "nowhere", "pi-4", [], folder=made / "new"),
        r"cannot read .*ca.key: No such file",
    ),
    "certificate of an authority": (
        lambda made: identity(made / "authority" / "ca.pem"), r"ca.pem is not the certificate of an agent",
    ),
}  # fmt: skip


def certify(made: Path, name: str = "pi-4", hosts: Sequence[str] = (), days: int = 365) -> None:
    make_certificate(made / "authority", name, hosts, folder=made / "new", days=days)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_changes_nothing(what: str, made: Path) -> None:
    call, sentence = REFUSED[what]
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with pytest.raises(NodeError, match=sentence):
        call(made)
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_an_authority_whose_key_others_can_read_certifies_nobody(made: Path) -> None:
    (made / "authority" / "ca.key").chmod(0o644)
    with pytest.raises(NodeError, match=r"ca.key has mode 0644: a key must be readable by its owner only"):
        certify(made)


UNSAFE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "wide key": (
        lambda own, keys: (own / "bob.key").chmod(0o640),
        r"mode 0640: a key must be readable by its owner only. Try: chmod 600",
    ),
    "other name": (
        lambda own, keys: [shutil.copy(keys / "cid" / f"cid.{kind}", own / f"bob.{kind}") for kind in ("key", "pem")],
        r"is the certificate of 'cid': it must be that of 'bob'",
    ),
    "expired": (
        lambda own, keys: shutil.copytree(keys / "expired" / "bob", own, dirs_exist_ok=True),
        r"bob.pem has expired on .*Try: colme node keys --rotate",
    ),
    "other key": (
        lambda own, keys: shutil.copy(keys / "cid" / "cid.key", own / "bob.key"),
        r"bob.key does not belong to .*bob.pem.*Rotate the key",
    ),
    "other authority": (
        lambda own, keys: shutil.copy(keys / "rogue" / "bob" / "ca.pem", own / "ca.pem"),
        r"bob.pem is not trusted by .*ca.pem: .*issuer.*Use the ca.pem that came with it",
    ),
    "no key": (lambda own, keys: (own / "bob.key").unlink(), r"cannot read .*bob.key: No such file"),
    "torn key": (lambda own, keys: (own / "bob.key").write_bytes(b"torn"), r"bob.key is corrupt or encrypted"),
    "torn certificate": (
        lambda own, keys: os.truncate(own / "bob.pem", 100), r"bob.pem or .*bob.key is corrupt or encrypted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNSAFE)
def test_files_that_are_not_safe_are_refused_before_anything_is_opened(what: str, keys: Path, tmp_path: Path) -> None:
    change, sentence = UNSAFE[what]
    change(shutil.copytree(keys / "bob", tmp_path / "bob"), keys)
    with pytest.raises(NodeError, match=sentence):
        ZenohTransport(config("bob", keys=tmp_path, port=free_port(), members=("ann",)))


def test_an_agent_checks_itself_apart_with_the_same_words_and_knows_when_its_certificate_expires(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a short-lived process, for Python's TLS would be 5 MiB of an agent's memory."""
    files = tls(made, "pi-3")
    here = check_identity("pi-3", files)
    assert 364.9 < (here - time.time()) / 86400 <= 365.0
    monkeypatch.delitem(sys.modules, "ssl")  # else it is loaded, and used
    assert check_identity_apart("pi-3", files) == here
    with pytest.raises(NodeError, match=f"^{files.certificate} is the certificate of 'pi-3'"):
        check_identity_apart("pi-4", files)
    assert "ssl" not in sys.modules
