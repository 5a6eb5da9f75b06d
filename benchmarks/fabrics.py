"""What a standard probe finds of emulated data centres: racks, uplinks, errors.

Uneven racks behind uplinks of 1/2, 1/4 and 1/8 of their cards together, with
and without a longer way between racks, with a slow card, with cross traffic on
one uplink. A row per data centre: whether the racks were found exactly, the
median and the worst error of the uplinks' capacities (and how many were told),
the held-out error, and the seconds of the probe. Run it on a quiet machine:

    python benchmarks/fabrics.py [--keep FOLDER | --from FOLDER] [NAME ...]

With --keep the snapshots stay in a folder, from which --from infers again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cloudcoll import lab as labs
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.lab.spec import GroupSpec, HostSpec, LabSpec
from cloudcoll.probe import plan_probes, run_probe
from cloudcoll.probe.lab import Lab
from cloudcoll.snapshot import NetworkSnapshot, load_snapshot

NIC = {16: labs.parse_rate("200mbit"), 24: labs.parse_rate("100mbit")}
"""By hosts: as much as two cores carry when all send at once."""
SLOW = 1 / 4
"""Rate of a slow card, as a share of the others'."""
TRAFFIC = 0.3
"""Cross traffic, as a share of the uplink of the first rack."""
RTT = 500e-6
RACKS = {16: (5, 3, 6, 2), 24: (8, 5, 2, 6, 3)}
LAB = "fabrics"


@dataclass(frozen=True)
class Case:
    """A data centre to find.

    Attributes
    ----------
    hosts : int
        Key of `RACKS`.
    narrow : int
        Rates of a rack's cards together over that of its uplink.
    rtt : bool
        Whether the way between racks is longer than within one.
    trouble : str
        ``slow``, ``traffic`` or nothing.
    """

    hosts: int
    narrow: int
    rtt: bool
    trouble: str = ""

    @property
    def name(self) -> str:
        """What it is called in the table, and on the command line."""
        parts = [str(self.hosts), f"{self.narrow}:1", "far" if self.rtt else "equal"]
        return "-".join([*parts, *([self.trouble] if self.trouble else [])])

    def uplinks(self) -> list[float]:
        """Return each rack's rate up and down, bytes/s."""
        card = NIC[self.hosts]
        return [card * size / self.narrow for size in RACKS[self.hosts]]

    def spec(self) -> LabSpec:
        """Return the lab to bring up."""
        card = NIC[self.hosts]
        groups = tuple(
            GroupSpec(f"rack-{i}", (HostSpec(card, card),) * size, rate, rate)
            for i, (size, rate) in enumerate(
                zip(RACKS[self.hosts], self.uplinks(), strict=True), start=1
            )
        )
        return LabSpec(GroupSpec("root", groups, rtt=RTT if self.rtt else 0.0), seed=1)


CASES = [
    *(
        Case(hosts, narrow, rtt)
        for hosts in RACKS
        for narrow in (2, 4, 8)
        for rtt in (True, False)
    ),
    *(
        Case(hosts, 4, rtt, trouble)
        for hosts in RACKS
        for rtt in (True, False)
        for trouble in ("slow", "traffic")
    ),
]


def probe(case: Case) -> tuple[NetworkSnapshot, list[list[str]], float]:
    """Return what a standard probe measured, the racks, and its seconds."""
    lab = labs.up(case.spec(), LAB)
    try:
        racks = [list(group) for group in lab.groups]
        if case.trouble == "slow":
            labs.slow(lab, racks[0][0], SLOW * NIC[case.hosts])
        if case.trouble == "traffic":
            rate = TRAFFIC * case.uplinks()[0]
            labs.start_traffic(lab, racks[0][0], racks[1][0], rate, 60.0)
        plan = plan_probes(lab.hosts, mode="standard", concurrency=os.cpu_count())
        begin = time.perf_counter()
        transport = Lab(str(lab.ssh))
        snapshot = run_probe(lab.hosts, plan, transport, infer=infer_fabric)
        return snapshot, racks, time.perf_counter() - begin
    finally:
        labs.down(LAB)


def found_groups(fabric: Fabric) -> Iterator[Node]:
    """Yield all groups of hosts, the core not among them."""
    for level in fabric.groups()[:-1]:
        yield from level


def row(case: Case, snapshot: NetworkSnapshot, racks: list[list[str]]) -> str:
    """Infer the fabric, and return how near it is to what was asked for."""
    fabric = infer_fabric(snapshot)
    found = {frozenset(node.leaves()): node for node in found_groups(fabric)}
    exact = sum(frozenset(rack) in found for rack in racks)
    errors = []
    for rack, asked in zip(racks, case.uplinks(), strict=True):
        if node := found.get(frozenset(rack)):
            rates = (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
            errors += [rate / asked - 1 for rate in rates]
    told = [error for error in errors if math.isfinite(error)]
    worst = max(told, key=abs, default=math.nan)
    middle = float(np.median(np.abs(told))) if told else math.nan
    return (
        f"{case.name:18} {exact} of {len(racks)}, {len(found):2} groups  "
        f"{middle:6.1%} {worst:+7.1%} {len(told):3}/{2 * len(racks):<3} "
        f"{fabric.holdout_error:7.1%}"
    )


def main() -> None:
    """Measure or read each case, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="some of the cases")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="FOLDER")
    where.add_argument("--from", type=Path, metavar="FOLDER", dest="source")
    given = parser.parse_args()
    print(
        "hosts-ratio-rtt    racks               uplink: median   worst  told  held out"
    )
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        for case in CASES:
            if given.names and case.name not in given.names:
                continue
            if given.source:
                snapshot = load_snapshot(given.source / f"{case.name}.snap")
                truth = json.loads((given.source / f"{case.name}.json").read_text())
                print(row(case, snapshot, truth), flush=True)
                continue
            snapshot, racks, seconds = probe(case)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                snapshot.save(given.keep / f"{case.name}.snap")
                (given.keep / f"{case.name}.json").write_text(json.dumps(racks))
            print(row(case, snapshot, racks), f"{seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
