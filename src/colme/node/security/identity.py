"""Check that the key and certificate of an agent prove its identity, by a TLS handshake with itself: the same checks
that its neighbors will make, with Python's ssl. (Making certificates, in `keys`, is not needed on a device.)"""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from colme.errors import NodeError

if TYPE_CHECKING:
    import ssl

_REFUSED = 3  # exit code of the checking process if it refuses; any other than 0: it could not check


def check_identity_apart(name: str, files: Any) -> None:
    """`check_identity` in another process, unless this one has loaded ssl already: an agent needs ssl for nothing else
    (zenoh has its own TLS), and it would take 5 MiB."""
    if "ssl" not in sys.modules and sys.executable:
        arguments = [sys.executable, "-P", "-m", __name__, name, files.ca, files.certificate, files.key]
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == _REFUSED:
            raise NodeError(done.stdout.rstrip("\n"))
        if done.returncode == 0:
            return
    check_identity(name, files)


def check_identity(name: str, files: Any) -> None:
    """Refuse files (ca, certificate and key, as in `Tls`) that do not prove this name, or that others can read."""
    import ssl

    check_private(Path(files.key))
    for path in (files.ca, files.certificate):
        if not Path(path).is_file():
            raise NodeError(f"cannot read {path}: there is no such file. Make it with: colme node keys.")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # hosts matter when dialing; this is about the name of the agent
    try:
        server.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise NodeError(f"{files.key} does not belong to {files.certificate}. Rotate the key.") from None
        both = f"{files.certificate} or {files.key}"
        raise NodeError(f"{both} is corrupt or encrypted: they must be plain PEM. Make them anew.") from None
    try:
        client.load_verify_locations(files.ca)
    except ssl.SSLError:
        raise NodeError(
            f"{files.ca} is corrupt: it must hold certificates in PEM. Use the ca.pem of the authority."
        ) from None
    found = _handshake(server, client, files)
    if found != name:
        raise NodeError(
            f"{files.certificate} is the certificate of {found!r}: it must be that of {name!r}. "
            "Use the agent's own, see: colme node keys."
        )


def check_private(key: Path) -> None:
    """Refuse a key that others can read."""
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
    except OSError as error:
        raise NodeError(f"cannot read {key}: {error.strerror}. Make it with: colme node keys.") from None
    if mode & 0o077:
        raise NodeError(f"{key} has mode {mode:04o}: a key must be readable by its owner only. Try: chmod 600 {key}")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, files: Any) -> str | None:
    """The common name that the client sees in the certificate of the server, if it trusts it."""
    import ssl

    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialer = client.wrap_bio(down, up)
    listener = server.wrap_bio(up, down, server_side=True)
    for end in (dialer, listener, dialer):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if "expired" in error.verify_message:
                raise NodeError(f"{files.certificate} has expired. Try: colme node keys --rotate.") from None
            raise NodeError(
                f"{files.certificate} is not trusted by {files.ca}: {error.verify_message}. "
                "Use the ca.pem that came with it."
            ) from None
    return common_name(dialer)


def common_name(end: ssl.SSLObject) -> str | None:
    """The common name in the certificate of the other end."""
    subject = (end.getpeercert() or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]  # type: ignore[str-unpack]
    return names[0] if len(names) == 1 else None


def _no_password() -> str:
    """Keys are not encrypted; without this, Python would prompt on the terminal."""
    return ""


def _main(name: str, ca: str, certificate: str, key: str) -> int:
    try:
        check_identity(name, SimpleNamespace(ca=ca, certificate=certificate, key=key))
    except NodeError as error:
        print(error)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
