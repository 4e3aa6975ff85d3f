"""Check that the key and certificate of an agent prove its identity, by a TLS handshake with itself: the same checks
that its neighbors will make, with Python's ssl. (Making certificates, in `keys`, is not needed on a device.)"""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from colme.errors import NodeError

if TYPE_CHECKING:
    import ssl

_NOT_YET_VALID, _EXPIRED, _NO_ISSUER, _PURPOSE = 9, 10, (20, 21), 26  # X509_V_ERR_... of OpenSSL
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_REFUSED = 3  # exit code of the checking process if it refuses; any other than 0: it could not check


def check_identity_apart(name: str, files: Any) -> float:
    """`check_identity` in another process, unless this one has loaded ssl already: an agent needs ssl for nothing else
    (zenoh has its own TLS), and it would take 5 MiB."""
    if "ssl" not in sys.modules and sys.executable:
        arguments = [sys.executable, "-P", "-m", __name__, name, files.ca, files.certificate, files.key]
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == _REFUSED:
            raise NodeError(done.stdout.rstrip("\n"))
        if done.returncode == 0:
            return float(done.stdout)
    return check_identity(name, files)


def check_identity(name: str, files: Any) -> float:
    """Refuse files (ca, certificate and key, as in `Tls`) that do not prove this name, or that others can read. Returns
    when the certificate expires, or that of the authority if that is earlier, in seconds since 1970."""
    import ssl

    check_private(Path(files.key))
    for path in (files.ca, files.certificate):
        if not Path(path).is_file():
            raise NodeError(f"cannot read {path}: there is no such file. Make it with: colme node keys.")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # hosts matter when dialing; this is about the name of the agent
    server.verify_mode = ssl.CERT_REQUIRED  # an agent is both: it is dialed, and it dials
    try:
        for end in (server, client):
            end.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise NodeError(f"{files.key} does not belong to {files.certificate}. Rotate the key.") from None
        both = f"{files.certificate} or {files.key}"
        raise NodeError(f"{both} is corrupt or encrypted: they must be plain PEM. Make them anew.") from None
    try:
        for end in (server, client):
            end.load_verify_locations(files.ca)
    except ssl.SSLError:
        raise NodeError(
            f"{files.ca} is corrupt: it must hold certificates in PEM. Use the ca.pem of the authority."
        ) from None
    met = _handshake(server, client, files)
    found = common_name(met)
    if found is None:
        raise NodeError(
            f"{files.certificate} has no common name, or several: an agent is known by it, whatever other names the "
            f"certificate has. Make one whose common name is {name!r}."
        )
    if found != name:
        raise NodeError(
            f"{files.certificate} is the certificate of {found!r}: it must be that of {name!r}. "
            "Use the agent's own, see: colme node keys."
        )
    return _expiry(met, client)


def check_private(key: Path) -> None:
    """Refuse a key that others can read."""
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
    except OSError as error:
        raise NodeError(f"cannot read {key}: {error.strerror}. Make it with: colme node keys.") from None
    if mode & 0o077:
        raise NodeError(f"{key} has mode {mode:04o}: a key must be readable by its owner only. Try: chmod 600 {key}")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, files: Any) -> ssl.SSLObject:
    """The client's end, if it trusts the certificate of the server."""
    import ssl

    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialer = client.wrap_bio(down, up)
    listener = server.wrap_bio(up, down, server_side=True)
    for end in (dialer, listener, dialer, listener):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            raise NodeError(_refusal(error, server, client, files)) from None
    return dialer


def _refusal(error: ssl.SSLCertVerificationError, server: ssl.SSLContext, client: ssl.SSLContext, files: Any) -> str:
    """Why the client does not trust the server, and what to do."""
    import ssl

    early, late = error.verify_code == _NOT_YET_VALID, error.verify_code == _EXPIRED
    if not (early or late) or client.verify_flags & _NO_CHECK_TIME:
        remedy = "Use the ca.pem that came with it."
        if error.verify_code == _PURPOSE:
            remedy = "It must be for servers and clients (serverAuth and clientAuth): make another one."
        if error.verify_code in _NO_ISSUER:
            remedy = (
                "Use the ca.pem that came with it; certificates of intermediate authorities follow the agent's own in "
                f"{files.certificate}."
            )
        return f"{files.certificate} is not trusted by {files.ca}: {error.verify_message}. {remedy}"
    for side in (server, client):  # once more, to read the dates
        side.verify_flags |= _NO_CHECK_TIME
    found = _handshake(server, client, files).getpeercert() or {}
    now = _moment(time.time())
    begin, end = (_moment(ssl.cert_time_to_seconds(str(found[key]))) for key in ("notBefore", "notAfter"))
    if early and begin > now:
        return (
            f"{files.certificate} is valid from {begin} on, and the clock of this machine says {now}: it is behind. "
            "Wait until the time is synchronized, or set the clock; new certificates would not help."
        )
    if late and end < now:
        return (
            f"{files.certificate} has expired on {end} (the clock says {now}). Try: colme node keys --rotate, or "
            "renew it where it was made."
        )
    what = "is not valid yet: wait until the time is synchronized" if early else "has expired: make another one"
    return f"an authority in {files.ca} or {files.certificate} {what} (the clock says {now})."


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _expiry(end: ssl.SSLObject, trusted: ssl.SSLContext) -> float:
    """When the certificate of the other end, or that of its issuer, expires."""
    import ssl

    certificate = end.getpeercert() or {}
    issuers = [each for each in trusted.get_ca_certs() if each.get("subject") == certificate.get("issuer")]
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in issuers]
    own = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    return float(min(own, max(ends, default=own)))


def common_name(end: ssl.SSLObject | ssl.SSLSocket) -> str | None:
    """The common name in the certificate of the other end."""
    subject = (end.getpeercert() or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]  # type: ignore[str-unpack]
    return names[0] if len(names) == 1 else None


def _no_password() -> str:
    """Keys are not encrypted; without this, Python would prompt on the terminal."""
    return ""


def _main(name: str, ca: str, certificate: str, key: str) -> int:
    try:
        print(check_identity(name, SimpleNamespace(ca=ca, certificate=certificate, key=key)))
    except NodeError as error:
        print(error)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
