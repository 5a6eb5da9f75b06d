"""Certificates by the openssl program, as SECURITY.md has it."""

from __future__ import annotations

import shlex
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from needs import OPENSSL
from pki import credentials

from cloudcoll.resident.dial import connect
from cloudcoll.resident.listen import listener
from cloudcoll.tls import DRIVER, Credentials

pytestmark = [
    pytest.mark.system,
    OPENSSL.mark,
]

TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text()


def test_certificates_as_documented(tmp_path: Path) -> None:
    """Tests that a driver takes an agent whose certificate OpenSSL made."""
    lines = [line for line in TEXT.splitlines() if line.startswith("    openssl")]
    assert len(lines) == 2
    for line in lines:
        done = subprocess.run(
            shlex.split(line.replace("DNS:vm-1", "DNS:localhost")),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    host = Credentials(*(tmp_path / f"{name}.pem" for name in ("cert", "key", "ca")))
    trusting = replace(host, ca=credentials(DRIVER).ca)
    with listener(("127.0.0.1", 0), trusting, print) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        ours = replace(credentials(DRIVER), ca=host.ca)
        with connect(ours.client(), "localhost", server.address) as conn:
            assert conn.version() in ("TLSv1.2", "TLSv1.3")
        server.stop()
        thread.join(10)
