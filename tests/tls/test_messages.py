from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from pki import authority, credentials

from cloudcoll.files import write_atomic
from cloudcoll.tls import AGENT, DRIVER, Credentials, is_cut, reason
from cloudcoll.tls.certs import SECRET, make_ca

NOT_OURS = "its certificate is not signed by our CA"


def self_signed() -> Credentials:
    """Return a host whose certificate nobody but itself has signed."""
    own, host = make_ca("vm-1"), credentials(AGENT, ["vm-1"])
    write_atomic(host.cert, own.cert_pem)
    write_atomic(host.key, own.key_pem, SECRET)
    return host


def with_its_issuer() -> Credentials:
    """Return a host that shows the certificate of its CA, which is not ours, too."""
    host = credentials(AGENT, ["vm-1"], ca="others")
    write_atomic(host.cert, host.cert.read_bytes() + authority("others").cert_pem)
    return host


def test_what_only_openssl_has_words_for() -> None:
    """Tests a client that knows none of our ciphers."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    other = ssl.create_default_context()
    other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers("AES256-SHA256")
    client = other.wrap_bio(back, there, server_hostname="vm-1")
    own = credentials(AGENT, ["vm-1"]).server()
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        own.wrap_bio(there, back, server_side=True).do_handshake()
    assert reason(caught.value) == "no TLS with it: no shared cipher"


def openssl_says(reason: str) -> ssl.SSLError:
    """Return OpenSSL's error as a Python raises it that has no class for it."""
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), True),
        (openssl_says("UNEXPECTED_EOF_WHILE_READING"), True),
        (ConnectionResetError(), True),
        (openssl_says("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), False),
        (TimeoutError(), False),
        (None, False),
    ],
)
def test_what_is_a_cut(error: Exception | None, cut: bool) -> None:
    """Tests how it looks that the other end left, and what only looks like it."""
    assert is_cut(error) == cut


def refusal(host: Credentials, name: str) -> ssl.SSLCertVerificationError:
    """Return why a driver refuses a host that it knows by a name."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = credentials(DRIVER).client().wrap_bio(back, there, server_hostname=name)
    server = host.server().wrap_bio(there, back, server_side=True)
    for _ in range(4):
        with suppress(ssl.SSLWantReadError):
            try:
                client.do_handshake()
            except ssl.SSLCertVerificationError as error:
                return error
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
    raise AssertionError("the driver found nothing wrong")


@pytest.mark.parametrize(
    ("host", "name", "words"),
    [
        (self_signed(), "vm-1", NOT_OURS),
        (with_its_issuer(), "vm-1", NOT_OURS),
        (credentials(AGENT, ["vm-1"], ca="others"), "vm-1", NOT_OURS),
        (credentials(AGENT, ["vm-1"]), "vm-2", "its certificate is another host's ("),
        (credentials(AGENT, ["vm-1"]), "10.1.2.3", "its certificate is another host's"),
        (credentials(DRIVER), "vm-1", "its certificate is for another purpose"),
    ],
    ids=["self-signed", "chain", "leaf", "name", "address", "purpose"],
)
def test_what_is_wrong_with_a_certificate(
    host: Credentials, name: str, words: str
) -> None:
    """Tests OpenSSL's numbers for it against its own handshakes."""
    assert reason(refusal(host, name)).startswith(words)
