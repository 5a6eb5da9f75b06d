"""Measure the network between hosts: plan, run, and the ways to reach a host."""

from __future__ import annotations

from collections.abc import Callable

from cloudcoll.probe.job import Mpi, Torch
from cloudcoll.probe.plan import MODES, ProbePlan, plan_probes
from cloudcoll.probe.runner import run_probe
from cloudcoll.probe.shell import LabShell, Local, Ssh, Tls
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

TRANSPORTS: dict[str, Callable[[str], Transport]] = {
    "lab": LabShell,
    "local": Local,
    "mpi": Mpi,
    "ssh": Ssh,
    "tls": Tls,
    "torch": Torch,
}
"""Name -> what makes one from the program that starts things elsewhere: what
takes ssh's place, empty for the usual one, or a launcher's command line."""
