"""Certificates as step-ca issues them: a leaf for a day, signed by an intermediate authority that follows it in its
file, a key in the older form of PEM, and an extension of its own. (Fields and order are those of step-ca 0.19.)"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from colme.errors import NodeError
from colme.node.security.identity import check_identity
from tests.support.node_fleet import Opened, config, heard, tls, until

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


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
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


@pytest.mark.parametrize("what", REFUSED)
def test_a_certificate_that_peers_would_refuse_is_refused_at_the_start(what: str, tmp_path: Path) -> None:
    wrong, sentence = REFUSED[what]
    issue(tmp_path, "bob", **wrong)
    with pytest.raises(NodeError, match=sentence) as caught:
        check_identity("bob", tls(tmp_path, "bob"))
    assert "\n" not in str(caught.value)
