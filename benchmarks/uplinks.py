"""What a standard probe finds of the uplinks of an emulated data centre.

For each rack: the rate asked for, what the link carried out and in when its
members loaded it on purpose, and the capacity in the inferred fabric. Rates in
Mbit/s, errors in per cent of what was asked. Run it on a quiet machine:

    python benchmarks/uplinks.py
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from cloudcoll import lab as labs
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.tree import Fabric
from cloudcoll.probe import plan_probes, run_probe
from cloudcoll.probe.lab import Lab
from cloudcoll.snapshot import NetworkSnapshot

NIC = "400mbit"
RACKS = ((5, 3, 6, 2), (4, 4, 4, 4))
UPLINKS = ("400mbit", "800mbit", "200mbit")
LAB = "uplinks"
MBIT = 1e6 / 8


def plateau(snapshot: NetworkSnapshot, group: Sequence[str], outward: bool) -> float:
    """Return the most bytes/s that crossed a group's link in one round on purpose."""
    flows = snapshot.flows
    member = np.isin(snapshot.names, group)
    inside, outside = (flows.src, flows.dst) if outward else (flows.dst, flows.src)
    crossing = member[inside] & ~member[outside]
    crossing &= flows.round >= snapshot.metadata["uplinks"]["first"]
    rates = np.nan_to_num(flows.bytes_per_s[crossing])
    return float(np.bincount(flows.round[crossing], rates).max(initial=0.0))


def in_fabric(fabric: Fabric, group: Sequence[str]) -> tuple[float, float]:
    """Return (up, down) in bytes/s of an inferred group, NaN if it is not there."""
    for node in (node for level in fabric.groups() for node in level):
        if set(node.leaves()) == set(group):
            return node.uplink_bytes_per_s, node.downlink_bytes_per_s
    return np.nan, np.nan


def measure(racks: tuple[int, ...], uplink: str) -> list[float]:
    """Probe one data centre, print what was found, return the plateaus' errors."""
    asked = labs.parse_rate(uplink)
    spec = labs.quick(
        racks,
        nic=labs.parse_rate(NIC),
        uplink=asked,
        rtt=labs.parse_duration("500us"),
        rack_rtt=0.0,
        slots=1,
        seed=1,
    )
    lab = labs.up(spec, LAB)
    try:
        plan = plan_probes(lab.hosts, mode="standard", concurrency=os.cpu_count())
        begin = time.perf_counter()
        transport = Lab(str(lab.ssh))
        snapshot = run_probe(lab.hosts, plan, transport, infer=infer_fabric)
        seconds = time.perf_counter() - begin
        groups = lab.groups
    finally:
        labs.down(LAB)
    fabric = infer_fabric(snapshot)
    done = snapshot.metadata["uplinks"]
    state = "all full" if done["complete"] else "out of time"
    print(f"racks {racks}, uplinks {uplink}, cards {NIC}: {seconds:.1f} s, ", end="")
    print(f"{done['rounds']} rounds on uplinks, {state}")
    errors = []
    for group in groups:
        found = [plateau(snapshot, group, outward) for outward in (True, False)]
        errors += [rate / asked - 1.0 for rate in found]
        columns = (asked, *found, *in_fabric(fabric, group))
        print(f"{len(group):>6}", *(f"{rate / MBIT:8.0f}" for rate in columns))
    return errors


def main() -> None:
    """Print a table for each data centre and the largest error of all."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        print(" hosts    asked      out       in  fabric:out     in")
        errors = [
            e for racks in RACKS for rate in UPLINKS for e in measure(racks, rate)
        ]
    print(f"largest error of a plateau {max(map(abs, errors)):.1%}")


if __name__ == "__main__":
    main()
