"""An emulated data centre on this machine: real kernels, real TCP, real MPI.

Every host is a set of Linux namespaces with its own address, name and
``/etc/hosts``; racks are bridges, and links are shaped and delayed.
"""

from __future__ import annotations

from cloudcoll.lab.character import character, show_lab, show_plan
from cloudcoll.lab.entry import environment, exec_argv
from cloudcoll.lab.faults import (
    drop,
    faults,
    heal,
    kill,
    lose,
    parse_share,
    slow,
    start_traffic,
)
from cloudcoll.lab.lifecycle import down, latency_backend, up
from cloudcoll.lab.live import dead_wires
from cloudcoll.lab.plan import HEAD, Plan, plan_lab
from cloudcoll.lab.presets import DEFAULT, PRESETS, find_preset, quick, reshaped
from cloudcoll.lab.spec import CrossTraffic, LabSpec, Queue, Shape
from cloudcoll.lab.spec_text import (
    parse_duration,
    parse_queue,
    parse_rate,
    parse_rto,
    parse_traffic,
    read_spec,
)
from cloudcoll.lab.state import Lab, find

__all__ = [
    "DEFAULT",
    "HEAD",
    "PRESETS",
    "CrossTraffic",
    "Lab",
    "LabSpec",
    "Plan",
    "Queue",
    "Shape",
    "character",
    "dead_wires",
    "down",
    "drop",
    "environment",
    "exec_argv",
    "faults",
    "find",
    "find_preset",
    "heal",
    "kill",
    "latency_backend",
    "lose",
    "parse_duration",
    "parse_queue",
    "parse_rate",
    "parse_rto",
    "parse_share",
    "parse_traffic",
    "plan_lab",
    "quick",
    "read_spec",
    "reshaped",
    "show_lab",
    "show_plan",
    "slow",
    "start_traffic",
    "up",
]
