"""Mutual TLS: both ends show a certificate of one CA that says what they may do.

A certificate's role is a URI among its names, such as ``cloudcoll:driver``: a
CA may sign for others too. Nothing here can switch a check off.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cloudcoll.errors import UnusableError, UsageError

DRIVER = "cloudcoll:driver"
"""May have resident agents measure, and read what a daemon serves."""
AGENT = "cloudcoll:agent"
"""Is the host of the certificate's name."""
READER = "cloudcoll:reader"
"""May read what a daemon serves."""

PORT = 7412
"""Where resident agents listen unless told otherwise."""

ADDRESS = re.compile(r"(?:\[([\w:.%]+)\]|([^\[\]:]*))(?::(\d{1,5}))?")
FORBIDDEN = stat.S_IWGRP | stat.S_IRWXO
"""Of a key's mode. Its group may read: so Kubernetes mounts what an unprivileged
user is to use."""


NOT_YET, EXPIRED, SELF_SIGNED = 9, 10, 18
ISSUERS = (SELF_SIGNED, 19, 20)
PURPOSE = 26
NAMES = (62, 64)
"""OpenSSL's X509_V_ERR numbers (include/openssl/x509_vfy.h, version 3.0)."""

ALERTS = {
    "CERTIFICATE_EXPIRED": "our certificate has expired by its clock",
    "BAD_CERTIFICATE": "our certificate is not valid (yet) by its clock",
    "UNKNOWN_CA": "our certificate is not signed by its CA",
    "CERTIFICATE_REQUIRED": "we showed no certificate",
    "UNSUPPORTED_CERTIFICATE": "our certificate is for another purpose",
    "PROTOCOL_VERSION": "it speaks another version of TLS",
}
"""What an alert from the other end says (RFC 8446, section 6.2)."""
CUT = "UNEXPECTED_EOF_WHILE_READING"
FOREIGN = {"WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "HTTP_REQUEST"}


class _Encrypted(Exception):
    """A key that only a passphrase opens: OpenSSL would ask the terminal."""


@dataclass(frozen=True)
class Credentials:
    """PEM files: who we are, and who says so of others.

    Attributes
    ----------
    cert, key : Path
        Our certificate, with any intermediate ones after it, and its key.
    ca : Path
        The certificates that others' must come from; no others are trusted.
    """

    cert: Path
    key: Path
    ca: Path

    def server(self) -> ssl.SSLContext:
        """Return the context of an end that listens; see `client`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Who has no ticket resumes no session, but for those of TLS 1.2 that OpenSSL
        # keeps itself: `require_role` refuses them.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        return self._load(context)

    def client(self) -> ssl.SSLContext:
        """Return the context of an end that connects, and checks the host's name.

        UsageError for a file that can't be read or is not what it should be, or a key
        that others than its owner could have read or written.
        """
        return self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Set in some Pythons 3.10 and 3.11 (Debian 12): a connection that somebody cuts
        # would look like one that its end has closed.
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", ssl.Options(0))
        context.verify_mode = ssl.CERT_REQUIRED
        _check_mode(self.key)
        path = self.cert
        try:
            context.load_cert_chain(self.cert, self.key, password=_refuse_passphrase)
            path = self.ca
            context.load_verify_locations(self.ca)
        except FileNotFoundError:
            raise UsageError(
                f"no file {path}: 'cloudcoll agent certs' makes a CA and certificates"
            ) from None
        except ssl.SSLError as error:
            wrong = (error.reason or "not PEM").lower().replace("_", " ")
            raise UsageError(
                f"{path} and {self.key} do not make credentials ({wrong})"
                if path == self.cert
                else f"{path} is not a CA's certificate in PEM ({wrong})"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except _Encrypted:
            raise UsageError(
                f"{self.key} needs a passphrase: give a key without one, which only "
                "its owner can read"
            ) from None
        return context


def _refuse_passphrase() -> NoReturn:
    raise _Encrypted


def _check_mode(key: Path) -> None:
    try:
        info = os.stat(key)
    except OSError as error:
        raise UsageError(f"cannot read {key}: {error.strerror}") from None
    if info.st_mode & FORBIDDEN or info.st_uid not in (0, os.getuid()):
        raise UsageError(
            f"{key} has mode {stat.S_IMODE(info.st_mode):04o} and owner {info.st_uid}: "
            "others could have read or changed it: own it and chmod 600"
        )


def roles_of(certificate: Any) -> set[str]:
    """Return the roles that a certificate gives, as `ssl` decodes it."""
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return {name for kind, name in names if kind == "URI"}


def name_of(certificate: Any) -> str:
    """Return the name of a certificate's owner, fit for a line of a log."""
    fields = dict(field for fields in certificate["subject"] for field in fields)
    name = fields.get("commonName", "without a name")
    return "".join(filter(str.isprintable, name))[:100]


def require_role(conn: ssl.SSLSocket, roles: Set[str]) -> str:
    """Return the name of the other end, whose certificate has one of `roles`.

    UnusableError if it has none, or was shown in an earlier connection: it may have
    expired since.
    """
    if conn.session_reused:
        raise UnusableError(
            "no session is resumed: each connection has to show its certificate"
        )
    certificate = conn.getpeercert()
    name, given = name_of(certificate), roles_of(certificate)
    if not given & roles:
        wanted = " or ".join(sorted(roles))
        shown = ", ".join(sorted(given))[:100] or "no role"
        raise UnusableError(
            f"the certificate of {name!r} is for {shown}: {wanted} is needed"
        )
    return name


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``HOST``, ``[IPv6]:PORT`` or ``:PORT`` (all addresses)."""
    match = ADDRESS.fullmatch(text)
    if not match or (number := int(match[3] or PORT)) >= 1 << 16:
        raise UsageError(f"{text!r} is not an address: write HOST:PORT or [IPv6]:PORT")
    return match[1] or match[2], number


def watch(conn: socket.socket) -> None:
    """Have the kernel end a connection whose other end is gone, in some 15 s."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)


def announce_end(conn: ssl.SSLSocket) -> None:
    """Say that nothing follows, without waiting for what the other end says."""
    conn.setblocking(False)
    with contextlib.suppress(OSError):  # it may be gone, or still be talking
        conn.unwrap()


def is_cut(error: Exception | None) -> bool:
    """Whether the other end left before it ended TLS, by the error of any Python."""
    # Python 3.10 and 3.11 before 3.11.3 have no SSLEOFError for what OpenSSL 3 says.
    return isinstance(error, (ssl.SSLEOFError, ConnectionResetError)) or (
        isinstance(error, ssl.SSLError) and error.reason == CUT
    )


def reason(error: Exception) -> str:
    """Return why a connection failed, in half a line that its address precedes.

    Of any OSError, with its children of `ssl` and `socket`, or an error that says it in
    its own words.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return "closed the connection"
    if isinstance(error, ssl.SSLError):
        return _protocol(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: is 'cloudcoll agent --listen' running?"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "closed the connection"
    if isinstance(error, socket.gaierror):
        return "its address does not resolve"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _verification(error: ssl.SSLCertVerificationError) -> str:
    now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    if error.verify_code == EXPIRED:
        return f"its certificate has expired by our clock ({now} UTC here)"
    if error.verify_code == NOT_YET:
        return f"its certificate is not valid yet by our clock ({now} UTC here)"
    if error.verify_code in ISSUERS:
        return "its certificate is not signed by our CA"
    if error.verify_code in NAMES:
        return f"its certificate is another host's ({error.verify_message})"
    if error.verify_code == PURPOSE:
        return "its certificate is for another purpose"
    return f"its certificate is not valid: {error.verify_message}"


def _protocol(error: ssl.SSLError) -> str:
    said = error.reason or ""
    for alert, words in ALERTS.items():
        if said.endswith(f"ALERT_{alert}"):
            return f"it refuses us: {words}"
    if said in FOREIGN:
        return "what it says is not TLS"
    if said == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate"
    if said == CUT:
        return "closed the connection"
    return f"no TLS with it: {said.lower().replace('_', ' ') or error}"
