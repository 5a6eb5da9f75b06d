from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pki import credentials

from cloudcoll import lab as labs
from cloudcoll.infer import infer_fabric
from cloudcoll.lab.state import Lab
from cloudcoll.probe import plan_probes, run_probe
from cloudcoll.probe.shell import LabShell, Tls
from cloudcoll.probe.transport import RemoteShell
from cloudcoll.tls import AGENT, DRIVER, Credentials

pytestmark = [pytest.mark.lab, pytest.mark.alone]


def words(ours: Credentials) -> list[str]:
    return [
        word
        for name in ("cert", "key", "ca")
        for word in (f"--{name}", str(getattr(ours, name)))
    ]


class TlsFrom(Tls):
    """Mutual TLS, from one host of a lab to the others."""

    def __init__(self, lab: Lab, host: str) -> None:
        super().__init__(credentials(DRIVER))
        self._lab, self._host = lab, host

    def dialler(self) -> list[str]:
        return labs.exec_argv(self._lab, self._host, super().dialler())[0]


Residents = Callable[[Lab], list[subprocess.Popen[str]]]


@pytest.fixture
def residents() -> Iterator[Residents]:
    """Start an agent on each host of a lab, and wait until all listen."""
    started: list[subprocess.Popen[str]] = []

    def start(lab: Lab) -> list[subprocess.Popen[str]]:
        for host in lab.hosts:
            own = words(credentials(AGENT, [host.name]))
            listen = ["-m", "cloudcoll.cli", "agent", "--listen", ":7412", *own]
            command, env = labs.exec_argv(lab, host.name, [sys.executable, *listen])
            started.append(
                subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
            )
        for one in started:
            assert one.stderr
            assert "listening" in one.stderr.readline()
        return started

    yield start
    for one in started:
        with one:  # closes its pipe
            one.terminate()


def groups(lab: Lab, transport: RemoteShell) -> set[frozenset[str]]:
    """Return the racks that a probe finds."""
    plan = replace(plan_probes(lab.hosts, concurrency=1), rtt_s=0.06, sure_s=0.0)
    snapshot = run_probe(lab.hosts, plan, transport)
    assert snapshot.failed == {}
    fabric = infer_fabric(snapshot)
    return {frozenset(node.leaves()) for node in fabric.groups()[0]}


@pytest.mark.slow
def test_the_same_racks_as_by_ssh(
    lab: Callable[..., Lab],
    far_racks: Callable[..., labs.LabSpec],
    residents: Residents,
) -> None:
    """Tests that nine resident agents see what agents started over ssh see."""
    racks = lab(far_racks((3, 3, 3), seed=9))
    residents(racks)
    true = {frozenset(names) for names in racks.groups}
    assert groups(racks, TlsFrom(racks, labs.HEAD)) == true
    assert groups(racks, LabShell(str(racks.ssh))) == true
