from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pki import credentials

from cloudcoll.cli import main
from cloudcoll.tls import AGENT, READER, Credentials

WAIT = 20.0


def options(ours: Credentials) -> list[str]:
    return [f"--{name}={getattr(ours, name)}" for name in ("cert", "key", "ca")]


def test_a_daemon_answers_by_https(tmp_path: Path) -> None:
    """Tests that a reader elsewhere is told what the Unix socket tells."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.7.1\n127.0.7.2\n")
    command = [sys.executable, "-m", "cloudcoll.cli", "daemon", "--via", "local"]
    where = ["--hostfile", str(hosts), "--socket", str(tmp_path / "socket")]
    front = ["--https=127.0.0.1:0", *options(credentials(AGENT, ["127.0.0.1"]))]
    with subprocess.Popen(
        [*command, *where, *front], stderr=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stderr
        said = iter(daemon.stderr)
        line = next(line for line in said if "https://" in line)
        port = int(line.rpartition(":")[2])
        client = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=WAIT, context=credentials(READER).client()
        )
        with closing(client):
            client.request("GET", "/v1/status")
            response = client.getresponse()
            status = json.loads(response.read())
        daemon.send_signal(signal.SIGTERM)
        assert "Traceback" not in "".join(said)
    assert response.status == 200
    assert [host["name"] for host in status["hosts"]] == ["127.0.7.1", "127.0.7.2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "--https needs a certificate: --cert, --key and --ca"),
        (["--cert=/no/a", "--key=/no/b", "--ca=/no/c"], "cannot read /no/b"),
    ],
)
def test_https_without_credentials(
    given: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that nothing is served without all that mutual TLS takes."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.7.1\n127.0.7.2\n")
    where = ["--hostfile", str(hosts), "--via", "local"]
    where += ["--socket", str(tmp_path / "socket")]
    assert main(["daemon", *where, "--https=127.0.0.1:0", *given]) == 2
    said = capsys.readouterr()
    assert words in said.err.splitlines()[-1]
