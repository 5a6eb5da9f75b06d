"""Make a CA and certificates; needs the package cryptography.

Keys are on the curve P-256. A host's certificate carries its names and the role
of an agent, others only a role; the extended key usage says which end of a
connection may show it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import write_atomic
from cloudcoll.hosts import Host
from cloudcoll.tls import AGENT, DRIVER, READER

CA_DAYS = 3650
EARLIER = timedelta(days=1)
"""A new certificate is valid since: clocks of hosts may be behind the CA's."""
SECRET = 0o600
FILE_NAME = re.compile(r"[\w.:-]*[\w-][\w.:-]*")
Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def cert_pem(self) -> bytes:
        """The certificate as a file holds it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as a file holds it, without a passphrase."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def now() -> datetime:
    """Return the time of this machine's clock."""
    return datetime.now(timezone.utc)


def make_ca(name: str = "cloudcoll", key: Key | None = None) -> Signed:
    """Return a CA that signs for ends only, not for further CAs.

    Its key is new if none is given.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    end = now() + timedelta(days=CA_DAYS)
    builder = _builder(name, None, key, now() - EARLIER, end)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return Signed(builder.sign(key, hashes.SHA256()), key)


def issue(
    ca: Signed,
    name: str,
    roles: Sequence[str],
    names: Iterable[str] = (),
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    key: Key | None = None,
) -> Signed:
    """Return a certificate for `name`, which is for logs; its key is new if not given.

    Its roles are of `cloudcoll.tls`; others may reach it under `names`, host names and
    IP addresses. It is valid from a day ago for a year if not told else.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    end = end or now() + timedelta(days=365)
    builder = _builder(name, ca.certificate, key, begin or now() - EARLIER, end)
    known: list[x509.GeneralName] = [_general(one) for one in dict.fromkeys(names)]
    ends = [ExtendedKeyUsageOID.SERVER_AUTH] if known else []
    if set(roles) - {AGENT}:
        ends.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    known += [x509.UniformResourceIdentifier(role) for role in roles]
    for extension, critical in (
        (x509.BasicConstraints(False, None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage(ends), False),
        (x509.SubjectAlternativeName(known), False),
    ):
        builder = builder.add_extension(extension, critical)
    return Signed(builder.sign(ca.key, hashes.SHA256()), key)


def write_all(
    hosts: Iterable[Host], folder: Path, days: float, daemon: str = ""
) -> list[Path]:
    """Make all that a cluster needs; return the folders, one to copy to each.

    A daemon on the host `daemon` both drives agents and serves readers.

    Keys in `folder` are kept, the CA's above all, so that hosts can be added and
    certificates renewed; those are made anew. Each folder has ``cert.pem``,
    ``key.pem`` and ``ca.pem``, which belong together whatever moment a reader or a
    SIGKILL takes: a renewal changes one file of them. UsageError if the CA or a key
    there is not intact, or a host has no name for a folder.
    """
    ends: list[tuple[str, str, str, list[str]]] = []
    for host in hosts:
        if not FILE_NAME.fullmatch(host.name):
            raise UsageError(f"host {host.name!r}: no name for a folder")
        names = [host.name, host.address]
        ends.append((f"agents/{host.name}", host.name, AGENT, names))
    ends += [("driver", "driver", DRIVER, []), ("reader", "reader", READER, [])]
    if daemon:
        ends.append(("daemon", "daemon", DRIVER, [daemon]))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableError(f"cannot write {folder}: {error.strerror}") from error
    ca, end = _kept_ca(folder), now() + timedelta(days=days)
    for place, name, role, names in ends:
        key = _kept_key(folder / place / "key.pem")
        signed = issue(ca, name, [role], names, end=end, key=key)
        _write(signed, ca, folder / place)
    return [folder / place for place, *_ in ends]


def _kept_ca(folder: Path) -> Signed:
    """Return the CA of a folder, made if there is none."""
    cert, key = folder / "ca.pem", folder / "ca.key"
    private = _kept_key(key)
    if not cert.exists():
        # Of a key that is there, what it signed before stays right.
        ca = make_ca(key=private)
        write_atomic(key, ca.key_pem, SECRET)
        write_atomic(cert, ca.cert_pem)
        return ca
    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{cert} is no CA of ours ({error}): name another folder with -o"
        ) from None
    if private is None or private.public_key() != certificate.public_key():
        raise UsageError(f"{key} is not the key of {cert}: name another folder with -o")
    return Signed(certificate, private)


def _kept_key(path: Path) -> Key | None:
    """Return the key in a file, None if there is no file."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, Key):
            raise ValueError("not on a curve")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{path} is no key of ours ({error}): name another folder with -o"
        ) from None
    return key


def _write(signed: Signed, ca: Signed, folder: Path) -> None:
    write_atomic(folder / "key.pem", signed.key_pem, SECRET)
    write_atomic(folder / "cert.pem", signed.cert_pem)
    write_atomic(folder / "ca.pem", ca.cert_pem)


def _builder(
    name: str,
    issuer: x509.Certificate | None,
    key: Key,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    public = key.public_key()
    signer = issuer.public_key() if issuer else public
    assert isinstance(signer, ec.EllipticCurvePublicKey)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(authority, False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
