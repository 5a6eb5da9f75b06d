from __future__ import annotations

import os
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from pki import credentials

from cloudcoll.errors import UsageError
from cloudcoll.tls import (
    AGENT,
    DRIVER,
    Credentials,
    name_of,
    parse_address,
    roles_of,
    watch,
)


def test_nothing_is_taken_unchecked() -> None:
    """Tests what both ends ask for: TLS 1.2, a certificate, the host's name."""
    ours = credentials(DRIVER)
    for context in (ours.server(), ours.client()):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        trusted = [cert["subject"] for cert in context.get_ca_certs()]
        assert trusted == [((("commonName", "ours"),),)]
    assert ours.client().check_hostname
    assert ours.server().num_tickets == 0


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644, 0o666, 0o602])
def test_a_key_for_others_is_refused(mode: int) -> None:
    """Tests that a key is refused that others could read, or its group write."""
    ours = credentials(DRIVER)
    ours.key.chmod(mode)
    with pytest.raises(UsageError, match=f"mode {mode:04o}.*chmod 600"):
        ours.client()


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_a_key_of_ones_own_is_taken(mode: int) -> None:
    """Tests modes of a key that Kubernetes, systemd and we ourselves give."""
    ours = credentials(DRIVER)
    ours.key.chmod(mode)
    assert ours.client().check_hostname


def test_whose_key_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that another user's key is refused, unless that user is root."""
    ours, us = credentials(DRIVER), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: us + 1)
    if us == 0:
        assert ours.client().check_hostname
        os.chown(ours.key, 2, -1)
    with pytest.raises(UsageError, match=f"owner {us or 2}: .*own it and chmod 600"):
        ours.client()


def broken(what: str) -> Credentials:
    """Return credentials one file of which is not what it should be."""
    ours, others = credentials(DRIVER), credentials(DRIVER)
    if what == "passphrase":
        key = serialization.load_pem_private_key(ours.key.read_bytes(), None)
        locked = serialization.BestAvailableEncryption(b"secret")
        form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        ours.key.write_bytes(key.private_bytes(pem, form, locked))
    elif what == "junk":
        ours.ca.write_text("-----BEGIN CERTIFICATE-----\n??\n")
    return {
        "no cert": replace(ours, cert=Path("/nowhere/cert")),
        "no key": replace(ours, key=Path("/nowhere/key")),
        "no ca": replace(ours, ca=Path("/nowhere/ca")),
        "another's key": replace(ours, key=others.key),
        "swapped": replace(ours, ca=ours.key),
        "folder": replace(ours, ca=ours.ca.parent),
    }.get(what, ours)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no cert", "no file /nowhere/cert: 'cloudcoll agent certs'"),
        ("no key", "cannot read /nowhere/key: No such file"),
        ("no ca", "no file /nowhere/ca"),
        ("another's key", "do not make credentials .key values mismatch"),
        ("swapped", "key is not a CA's certificate in PEM"),
        ("folder", "is not a CA's certificate|cannot read"),
        ("junk", "ca is not a CA's certificate in PEM"),
        ("passphrase", "needs a passphrase"),
    ],
)
def test_bad_files_are_one_line(what: str, words: str) -> None:
    """Tests that each file that is no good is named, in one line."""
    with pytest.raises(UsageError, match=words) as caught:
        broken(what).server()
    assert "\n" not in str(caught.value)


def test_roles_are_uris_only() -> None:
    """Tests that a host of a role's name has not that role."""
    certificate = {
        "subject": ((("commonName", DRIVER),),),
        "subjectAltName": (("DNS", DRIVER), ("URI", AGENT), ("URI", "https://a")),
    }
    assert roles_of(certificate) == {AGENT, "https://a"}
    assert name_of(certificate) == DRIVER
    assert roles_of(None) == set()
    assert name_of({"subject": ()}) == "without a name"
    forged = {"subject": ((("commonName", "a\n\x1b[2Jb" * 99),),)}
    assert name_of(forged) == ("a[2Jb" * 99)[:100]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        ("10.0.0.1", ("10.0.0.1", 7412)),
        (":9", ("", 9)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::1]", ("::1", 7412)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """Tests every way to write where to listen."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["a:b", "a:65536", "a:-1", "[::1", "a:", "::1", "a b]"]
)
def test_what_is_no_address(text: str) -> None:
    """Tests that what is not understood is shown with what would be."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(text)


def test_a_peer_that_is_gone_is_noticed_in_some_15_s() -> None:
    """Tests what the kernel does of an idle connection, and of one with data unread."""
    with socket.socket() as conn:
        watch(conn)
        idle, pause, count, unread = (
            conn.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert conn.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert 12 <= idle + pause * count <= 15
    assert unread == 15_000
