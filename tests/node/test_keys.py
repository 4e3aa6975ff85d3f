"""Authorities and certificates, our own and those of step-ca: names, file modes, renewal."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from colme.errors import NodeError
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.security import keys as node_keys
from colme.node.security.identity import check_identity, check_identity_apart
from colme.node.security.keys import identity, make_authority, make_certificate, rotate
from tests.support.node_fleet import Opened, config, free_port, heard, tls, until

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
    assert stat.S_IMODE((made / "pi-3" / "pi-3.key").stat().st_mode) == 0o600


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
    "authority whose key others can read": (
        lambda made: ((made / "authority" / "ca.key").chmod(0o644), certify(made)),
        r"ca.key has mode 0644: a key must be readable by its owner only",
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


# Certificates as step-ca issues them: a leaf for a day, signed by an intermediate authority that follows it in its
# file, a key in the older form of PEM, and an extension of its own. (Fields and order are those of step-ca 0.19.)

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
PROVISIONER = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.37476.9000.64.1"), b"\x30\x00")
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Signer(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def named(organization: str | None, name: str | None) -> x509.Name:
    parts = ((NameOID.ORGANIZATION_NAME, organization), (NameOID.COMMON_NAME, name))
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts if text is not None])


def signed(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, signer: Signer | None, *extensions: tuple[Any, bool],
    begin: datetime.datetime = NOW - DAY / 1440, end: datetime.datetime = NOW + DAY,
) -> x509.Certificate:  # fmt: skip
    issuer, private = (subject, key) if signer is None else (signer.certificate.subject, signer.key)
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    )  # fmt: skip
    known = (
        *extensions, (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), False),
    )  # fmt: skip
    for extension, critical in known:
        builder = builder.add_extension(extension, critical)
    return builder.sign(private, hashes.SHA256())


def authority(name: str, signer: Signer | None, path_length: int, **dates: datetime.datetime) -> Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    dates = {"end": NOW + 3650 * DAY} | dates
    return Signer(signed(named("Greenhouse", name), key, signer, (usage, True), (constraints, True), **dates), key)


ROOT = authority("Greenhouse Root CA", None, 1)
INTERMEDIATE = authority("Greenhouse Intermediate CA", ROOT, 0)


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def issue(
    folder: Path, name: str, *, signer: Signer = INTERMEDIATE, chain: bool = True, common_name: str | None = "",
    usage: tuple[ObjectIdentifier, ...] = (SERVER, CLIENT), key: ec.EllipticCurvePrivateKey | None = None,
    **dates: datetime.datetime,
) -> ec.EllipticCurvePrivateKey:  # fmt: skip
    """What `step ca certificate` writes into an agent's folder, under the names that node.toml has."""
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
    places = [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = signed(
        named(None, name if common_name == "" else common_name), key, signer,
        (x509.KeyUsage(True, False, False, False, False, False, False, False, False), True),
        (x509.ExtendedKeyUsage(list(usage)), False), (x509.SubjectAlternativeName(places), False),
        (PROVISIONER, False), **dates,
    )  # fmt: skip
    (own / "ca.pem").write_bytes(pem(ROOT.certificate))
    (own / f"{name}.pem").write_bytes(pem(leaf, *([signer.certificate] if chain else [])))
    (own / f"{name}.key").touch(0o600)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    (own / f"{name}.key").write_bytes(private)
    return key


def test_agents_with_certificates_of_an_intermediate_authority_talk_and_renew(
    tmp_path: Path, port: int, opened: Opened
) -> None:
    """Renewal replaces the certificate and keeps the key; the agent that did restarts, the other goes on."""
    issue(tmp_path, "ann")
    key = issue(tmp_path, "bob")
    ann = opened(config("ann", keys=tmp_path, port=port, neighbors={"bob": None}))
    for end in (NOW + DAY, NOW + 2 * DAY):
        issue(tmp_path, "bob", key=key, end=end)
        bob = opened(config("bob", keys=tmp_path, neighbors={"ann": port}))
        until(heard(ann, bob, f"until {end}".encode()))
        until(heard(bob, ann, f"until {end}".encode()))
        bob.close()


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "without its intermediate": (
        {"chain": False},
        r"bob.pem is not trusted by .*ca.pem: unable to get local issuer certificate. Use the ca.pem that came with "
        r"it; certificates of intermediate authorities follow the agent's own in .*bob.pem",
    ),
    "for servers only": (
        {"usage": (SERVER,)}, r"bob.pem is not trusted .*purpose.*It must be for servers and clients \(serverAuth and"
    ),
    "for clients only": ({"usage": (CLIENT,)}, r"bob.pem is not trusted .*purpose.*serverAuth and clientAuth"),
    "no common name": (
        {"common_name": None}, r"bob.pem has no common name, or several: .*Make one whose common name is 'bob'"
    ),
    "the clock is behind": (
        {"begin": NOW + DAY / 2},
        rf"bob.pem is valid from {NOW + DAY / 2:%Y-%m-%d %H:%M} UTC on, and the clock of this machine says "
        r"20.*: it is behind. Wait until the time is synchronized, or set the clock; new certificates would not help",
    ),
    "the intermediate has expired": (
        {"signer": authority("Old CA", ROOT, 0, begin=NOW - 2 * DAY, end=NOW - DAY)},
        r"an authority in .*ca.pem or .*bob.pem has expired: make another one \(the clock says 20",
    ),
    "the intermediate is not valid yet": (
        {"signer": authority("New CA", ROOT, 0, begin=NOW + DAY)},
        r"an authority in .*is not valid yet: wait until the time is synchronized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_a_certificate_that_peers_would_refuse_is_refused_at_the_start(what: str, tmp_path: Path) -> None:
    wrong, sentence = UNFIT[what]
    issue(tmp_path, "bob", **wrong)
    with pytest.raises(NodeError, match=sentence) as caught:
        check_identity("bob", tls(tmp_path, "bob"))
    assert "\n" not in str(caught.value)
