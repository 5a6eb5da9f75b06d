from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtensionOID
from pki import HOUR

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.tls import AGENT, DRIVER, Credentials
from cloudcoll.tls.certs import Signed, issue, make_ca, now, write_all

AUTHORITY = ExtensionOID.AUTHORITY_KEY_IDENTIFIER
HOSTS = (Host("vm-1", "10.0.0.1"), Host("vm-2"))


def of(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())


def test_a_folder_for_each(tmp_path: Path) -> None:
    """Tests that each folder makes credentials, and what its certificate says."""
    folders = write_all(HOSTS, tmp_path / "pki", 30)
    names = [str(folder.relative_to(tmp_path / "pki")) for folder in folders]
    assert names == ["agents/vm-1", "agents/vm-2", "driver", "reader"]
    for folder in folders:
        files = [folder / name for name in ("cert.pem", "key.pem", "ca.pem")]
        assert Credentials(*files).server().verify_mode == ssl.CERT_REQUIRED
    san = of(folders[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert san.value.get_values_for_type(x509.DNSName) == ["vm-1"]
    assert [str(ip) for ip in san.value.get_values_for_type(x509.IPAddress)] == [
        "10.0.0.1"
    ]
    assert san.value.get_values_for_type(x509.UniformResourceIdentifier) == [AGENT]


def test_what_keys_are_for(tmp_path: Path) -> None:
    """Tests that the CA's key signs certificates alone, a member's handshakes alone."""
    folders = tmp_path / "not" / "there"
    folder = write_all(HOSTS, folders, 30)[0]
    ca = x509.load_pem_x509_certificate((folders / "ca.pem").read_bytes())
    signs = {"key_cert_sign", "crl_sign"}
    for certificate, uses in ((ca, signs), (of(folder), {"digital_signature"})):
        found = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert found.critical
        assert found.value == x509.KeyUsage(**{use: use in uses for use in USES})


USES = (
    *("digital_signature", "content_commitment", "key_encipherment"),
    *("data_encipherment", "key_agreement", "key_cert_sign", "crl_sign"),
    *("encipher_only", "decipher_only"),
)


def test_keys_are_secret_whatever_the_umask(tmp_path: Path) -> None:
    """Tests the modes of keys, and of the folder that has the CA's."""
    old = os.umask(0)
    try:
        write_all(HOSTS, tmp_path / "pki", 30)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700
    keys = [*(tmp_path / "pki").rglob("key.pem"), tmp_path / "pki" / "ca.key"]
    assert len(keys) == 5
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert not list((tmp_path / "pki").rglob(".*"))


def test_a_clock_that_is_behind_sees_it_valid(tmp_path: Path) -> None:
    """Tests that clocks an hour off take certificates that have just been made."""
    for folder in (*write_all(HOSTS, tmp_path, 30), tmp_path):
        path = folder / ("ca.pem" if folder == tmp_path else "cert.pem")
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        assert certificate.not_valid_before_utc < now() - HOUR
        assert certificate.not_valid_after_utc > now() + HOUR


def test_the_ca_is_kept(tmp_path: Path) -> None:
    """Tests that hosts can be added: what was signed before stays right."""
    first = write_all(HOSTS, tmp_path, 30)
    ca, serial = (tmp_path / "ca.pem").read_bytes(), of(first[0]).serial_number
    again = write_all((*HOSTS, Host("vm-3")), tmp_path, 30)
    assert (tmp_path / "ca.pem").read_bytes() == ca
    assert of(again[0]).serial_number != serial
    of(again[2]).verify_directly_issued_by(x509.load_pem_x509_certificate(ca))


@pytest.mark.parametrize(
    "spoil", ["ca.key", "ca.pem", "reader/key.pem", "other", "gone"]
)
def test_a_ca_that_is_not_whole(spoil: str, tmp_path: Path) -> None:
    """Tests that a CA or key that is not intact is neither used nor replaced."""
    write_all(HOSTS, tmp_path, 30)
    key = tmp_path / "ca.key"
    if spoil == "other":
        key.write_bytes(make_ca().key_pem)
    elif spoil == "gone":
        key.unlink()
    else:
        (tmp_path / spoil).write_text("-----BEGIN")
    keys = {path: path.read_bytes() for path in tmp_path.rglob("*key*")}
    with pytest.raises(UsageError, match="another folder with -o"):
        write_all(HOSTS, tmp_path, 30)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*key*")} == keys


def test_a_ca_whose_making_was_killed(tmp_path: Path) -> None:
    """Tests that its key alone is enough to go on, and to keep what it signed."""
    first = write_all(HOSTS, tmp_path, 30)
    key, signed = (tmp_path / "ca.key").read_bytes(), of(first[0])
    (tmp_path / "ca.pem").unlink()
    write_all(HOSTS, tmp_path, 30)
    assert (tmp_path / "ca.key").read_bytes() == key
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    signed.verify_directly_issued_by(ca)


def test_a_renewal_killed_half_way(tmp_path: Path) -> None:
    """Tests that the old certificate fits the new one's key, at any moment."""
    (host, *_) = write_all(HOSTS, tmp_path, 30)
    old, files = (host / "cert.pem").read_bytes(), ("cert.pem", "key.pem", "ca.pem")
    write_all(HOSTS, tmp_path, 30)
    assert (host / "cert.pem").read_bytes() != old
    (host / "cert.pem").write_bytes(old)
    Credentials(*(host / name for name in files)).client()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """Tests that a file in its place is told in one line."""
    (tmp_path / "file").touch()
    with pytest.raises(UnusableError, match=r"cannot write .*file/pki: Not a dir"):
        write_all(HOSTS, tmp_path / "file" / "pki", 30)


@pytest.mark.parametrize("name", ["..", "a/b", "../a", ""])
def test_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    """Tests that a host list cannot have files written outside the folder."""
    with pytest.raises(UsageError, match="not a host name"):
        write_all((Host(name, "10.0.0.1"),), tmp_path / "pki", 30)


def test_an_end_cannot_sign() -> None:
    """Tests that OpenSSL does not take what a driver signed for a certificate."""
    ca = make_ca()
    driver = issue(ca, "driver", [DRIVER])
    forged = issue(driver, "vm-1", [AGENT], ["vm-1"])
    constraints = driver.certificate.extensions.get_extension_for_class(
        x509.BasicConstraints
    )
    assert not constraints.value.ca
    builder = x509.verification.PolicyBuilder().store(
        x509.verification.Store([ca.certificate])
    )
    verifier = builder.build_server_verifier(x509.DNSName("vm-1"))
    with pytest.raises(x509.verification.VerificationError):
        verifier.verify(forged.certificate, [driver.certificate])
    honest = issue(ca, "vm-1", [AGENT], ["vm-1"])
    assert verifier.verify(honest.certificate, [])[0] == honest.certificate


def test_a_ca_below_ours_is_not_taken() -> None:
    """Tests that the CA signs for ends only: whom else it signs for cannot sign."""
    ca, below = make_ca(), make_ca("below")
    builder = x509.CertificateBuilder(
        ca.certificate.subject,
        below.certificate.subject,
        below.key.public_key(),
        below.certificate.serial_number,
        below.certificate.not_valid_before_utc,
        below.certificate.not_valid_after_utc,
        [
            *(one for one in below.certificate.extensions if one.oid != AUTHORITY),
            ca.certificate.extensions.get_extension_for_oid(AUTHORITY),
        ],
    )
    signed = builder.sign(ca.key, hashes.SHA256())
    host = issue(Signed(signed, below.key), "vm-1", [AGENT], ["vm-1"])
    store = x509.verification.Store([ca.certificate])
    verifier = x509.verification.PolicyBuilder().store(store)
    with pytest.raises(x509.verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("vm-1")).verify(
            host.certificate, [signed]
        )


def test_a_long_name_is_cut_for_the_subject_alone() -> None:
    """Tests X.520's 64 characters of a common name; the other names have it all."""
    name = "n" * 60 + ".example"
    signed = issue(make_ca(), name, [AGENT], [name])
    made = x509.load_pem_x509_certificate(signed.cert_pem)
    assert made.subject.rfc4514_string() == f"CN={name[:64]}"
    san = made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert san.value.get_values_for_type(x509.DNSName) == [name]


def test_a_certificate_is_of_yesterday_and_for_a_year() -> None:
    """Tests when one is valid where nothing else was asked for."""
    made = x509.load_pem_x509_certificate(issue(make_ca(), "a", [AGENT]).cert_pem)
    hours = [
        (end - now()).total_seconds() / 3600
        for end in (made.not_valid_before_utc, made.not_valid_after_utc)
    ]
    assert hours == pytest.approx([-24, 365 * 24], abs=0.5)
