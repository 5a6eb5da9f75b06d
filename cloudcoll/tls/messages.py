"""What is wrong with a connection, in words for the user."""

from __future__ import annotations

import socket
import ssl
import time

NOT_YET, EXPIRED, SELF_SIGNED = 9, 10, 18
ISSUERS = (SELF_SIGNED, 19, 20, 21)
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


def is_cut(error: Exception | None) -> bool:
    """Whether the other end left before it ended TLS, by the error of any Python."""
    # Python 3.10 and 3.11 before 3.11.3 have no SSLEOFError for what OpenSSL 3 says.
    return isinstance(error, (ssl.SSLEOFError, ConnectionResetError)) or (
        isinstance(error, ssl.SSLError) and error.reason == CUT
    )


def reason(error: Exception) -> str:
    """Return why a connection failed, in half a line that its address precedes.

    Parameters
    ----------
    error : Exception
        `OSError` with all its children of `ssl` and `socket`, or an error that
        says it in its own words.
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
