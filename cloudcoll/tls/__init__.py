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
        # No session is resumed: each connection shows its certificate anew.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        return self._load(context)

    def client(self) -> ssl.SSLContext:
        """Return the context of an end that connects, and checks the host's name.

        Raises
        ------
        UsageError
            A file cannot be read, is not what it should be, or others than its
            owner could have read or written the key.
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

    Raises
    ------
    UnusableError
        It has none of them.
    """
    certificate = conn.getpeercert()
    name, given = name_of(certificate), roles_of(certificate)
    if not given & roles:
        wanted = " or ".join(sorted(roles))
        shown = ", ".join(sorted(given))[:100] or "no role"
        raise UnusableError(
            f"the certificate of {name!r} is for {shown}: {wanted} is needed"
        )
    return name


def parse_address(text: str, port: int = PORT) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``HOST``, ``[IPv6]:PORT`` or ``:PORT`` (all addresses).

    Raises
    ------
    UsageError
        It is none of these.
    """
    match = ADDRESS.fullmatch(text)
    number = int(match[3] or port) if match else 1 << 16
    if not match or number >= 1 << 16:
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
