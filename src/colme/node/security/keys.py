"""Make keys and certificates: an authority, and one certificate per agent whose common name is the agent's name.

    make_authority("authority", "greenhouse")
    make_certificate("authority", "pi-3", ["192.168.1.13"], folder="pi-3")

The key of the authority stays where certificates are made; an agent gets ca.pem, its certificate and its own key. Keys
are P-256 and readable by their owner only. Nothing is overwritten, except by `rotate`.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from colme.errors import NodeError, missing_extra, whole
from colme.node.names import check_file_name, check_name
from colme.node.security.identity import check_private
from colme.support.files import write_whole

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise missing_extra("cryptography", "node", "TLS") from None

AUTHORITY_DAYS = 3650
DAYS = 365
_BEFORE = datetime.timedelta(minutes=5)  # the clocks of devices differ


class Identity(NamedTuple):
    """What a certificate says about its owner."""

    name: str
    hosts: tuple[str, ...]
    expires: datetime.datetime


def make_authority(folder: str | Path, network: str, *, days: int = AUTHORITY_DAYS) -> None:
    """Write ca.pem and ca.key of a new authority."""
    check_name(network, "network")
    key = _new_key()
    name = _named(f"colme {network}")
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key, whole(days, "days", f"days={AUTHORITY_DAYS}", NodeError))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    folder = Path(folder)
    _write_new({folder / "ca.key": _private(key), folder / "ca.pem": _public(builder, key)})


def make_certificate(
    authority: str | Path, name: str, hosts: Sequence[str], *, folder: str | Path, days: int = DAYS
) -> None:
    """Write name.pem, name.key and ca.pem into the agent's folder; `hosts` are the names and addresses that others
    dial."""
    check_file_name(name)
    folder = Path(folder)
    made = _certificate(Path(authority), name, hosts, days)
    _write_new({folder / f"{name}.key": made[0], folder / f"{name}.pem": made[1]})
    write_whole(folder / "ca.pem", _read(Path(authority) / "ca.pem"))


def rotate(authority: str | Path, name: str, *, folder: str | Path, days: int = DAYS) -> None:
    """Replace the key and certificate of an agent; its hosts stay the same.

    The certificate of the authority is added to ca.pem if it is not there; those in it stay trusted. A running agent
    reads the files when it restarts."""
    folder = Path(folder)
    old = identity(folder / f"{name}.pem")
    key, certificate = _certificate(Path(authority), name, old.hosts, days)
    trusted = _read(folder / "ca.pem")
    newest = _read(Path(authority) / "ca.pem")
    if newest not in trusted:
        write_whole(folder / "ca.pem", newest + trusted)
    write_whole(folder / f"{name}.key", key, mode=0o600)
    write_whole(folder / f"{name}.pem", certificate)


def identity(certificate: str | Path) -> Identity:
    """What a certificate says about its owner."""
    try:
        found = x509.load_pem_x509_certificate(_read(Path(certificate)))
        name = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        other = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, IndexError, x509.ExtensionNotFound):
        raise NodeError(f"{certificate} is not the certificate of an agent. Make one with: colme node keys.") from None
    hosts = (*other.get_values_for_type(x509.DNSName), *map(str, other.get_values_for_type(x509.IPAddress)))
    return Identity(str(name), tuple(host for host in hosts if host != name), found.not_valid_after_utc)


def _certificate(authority: Path, name: str, hosts: Sequence[str], days: int) -> tuple[bytes, bytes]:
    """Key and certificate of an agent, signed by the authority."""
    check_name(name, "name")
    check_private(authority / "ca.key")
    try:
        signer: Any = serialization.load_pem_private_key(_read(authority / "ca.key"), None)
        issuer = x509.load_pem_x509_certificate(_read(authority / "ca.pem"))
    except (ValueError, TypeError):
        raise NodeError(f"{authority} holds no authority: ca.key and ca.pem must be PEM. Make another one.") from None
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    key = _new_key()
    builder = (
        _builder(_named(name), issuer.subject, key, whole(days, "days", f"days={DAYS}", NodeError))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(each) for each in (name, *hosts)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _private(key), _public(builder, signer)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    check_name(text, "host")
    return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = _now()
    try:
        until = now + datetime.timedelta(days=days)
    except OverflowError:
        raise NodeError(f"days={days}: that is beyond the calendar. Try days={DAYS}.") from None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _public(builder: x509.CertificateBuilder, signer: Any) -> bytes:
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror}. Make it with: colme node keys.") from None


def _write_new(files: dict[Path, bytes]) -> None:
    """Write files that must not exist yet; keys are private from their first byte on."""
    there = [str(path) for path in files if path.exists()]
    if there:
        raise NodeError(f"{there[0]} exists: keys are not overwritten. Choose another folder, or rotate.")
    for path, content in files.items():
        mode = 0o600 if path.suffix != ".pem" else 0o644
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise NodeError(f"cannot write {path}: {error.strerror}. Choose a folder that is writable.") from None
