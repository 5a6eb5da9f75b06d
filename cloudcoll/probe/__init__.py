"""Measure the network between hosts: plan, run, and the ways to reach a host."""

from __future__ import annotations

from cloudcoll.probe.job import JobTransport, Mpi, Torch
from cloudcoll.probe.plan import MODES, ProbePlan, plan_probes
from cloudcoll.probe.runner import run_probe
from cloudcoll.probe.shell import Agented, LabShell, Local, Ssh, Tls
from cloudcoll.probe.transport import Conduct, Transport

__all__ = [
    "MODES",
    "TRANSPORTS",
    "Conduct",
    "ProbePlan",
    "Transport",
    "plan_probes",
    "run_probe",
]

TRANSPORTS: dict[str, type[Agented] | type[JobTransport]] = {
    "lab": LabShell,
    "local": Local,
    "mpi": Mpi,
    "ssh": Ssh,
    "tls": Tls,
    "torch": Torch,
}
"""Name -> class; see `Transport`."""
