"""A probe over a real sshd; needs openssh-server from apt."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest
from ports import own_port

from cloudcoll.hosts import parse_host_argument
from cloudcoll.probe import plan_probes, run_probe
from cloudcoll.probe.shell import Ssh

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.system,
    needs.SSHD.mark,
    pytest.mark.usefixtures("patient_probes"),
]

ADDRESSES = ("127.0.9.1", "127.0.9.2")
CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""


@pytest.fixture
def rsh(tmp_path: Path) -> Iterator[str]:
    """Run an sshd on two loopback addresses; yield the ssh that reaches it."""
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name]
        subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "sshd_config").write_text(CONFIG.format(folder=tmp_path))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own, where it separates
    port = own_port(ADDRESSES[0])
    listen = [word for a in ADDRESSES for word in ("-o", f"ListenAddress={a}:{port}")]
    config = ["-f", str(tmp_path / "sshd_config")]
    with open(tmp_path / "log", "wb") as log:
        sshd = subprocess.Popen([str(SSHD), "-D", "-e", *config, *listen], stderr=log)
    try:
        wait_for(port, sshd, tmp_path / "log")
        options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        yield f"ssh -p {port} -i {tmp_path}/key {options} -o LogLevel=ERROR"
    finally:
        sshd.terminate()
        sshd.wait(timeout=10)


def wait_for(port: int, sshd: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection((ADDRESSES[-1], port), timeout=1).close()
            return
        except ConnectionRefusedError:
            assert sshd.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()


def test_hosts_are_probed_over_ssh(rsh: str) -> None:
    """Tests a whole probe over ssh, with one host that does not answer."""
    hosts = parse_host_argument(",".join((*ADDRESSES, "127.0.9.3")))
    plan = plan_probes(hosts, concurrency=1)
    snapshot = run_probe(hosts, plan, Ssh(rsh))
    assert set(snapshot.failed) == {"127.0.9.3"}
    assert "Connection refused" in snapshot.failed["127.0.9.3"]
    assert snapshot.latency.values[0, 1] > 0
    # Loopback may reach the cap of a flow before its ramp-up is over.
    assert (snapshot.flows.window_bytes > 0).any()
