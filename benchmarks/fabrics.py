"""What a standard probe finds of emulated data centres: racks, uplinks, errors.

Uneven racks behind uplinks of 1/2, 1/4 and 1/8 of their cards together, with
and without a longer way between racks, with a slow card, with cross traffic on
one uplink. A row per data centre: racks found exactly, groups found that are no
rack, the median and the worst error over the uplinks of all racks (and how many
were told; one that was not, or whose rack was missed, is off by 100 %), the
held-out error, and the seconds of the probe. Run it on a quiet machine:

    python -m benchmarks.fabrics [--keep FOLDER | --from FOLDER] [NAME ...]

With --keep the snapshots stay in a folder, from which --from infers again.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.planted import Links, group_links, link_errors, misfound
from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.infer import infer_fabric
from cloudcoll.lab.spec import GroupSpec, HostSpec, LabSpec, surroundings
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.probe import plan_probes, run_probe
from cloudcoll.probe.shell import LabShell

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
        easy = labs.find_preset("tuned")
        host = HostSpec(card, card, shape=easy.nic)
        groups = tuple(
            GroupSpec(f"rack-{i}", (host,) * size, rate, rate, shape=easy.uplink)
            for i, (size, rate) in enumerate(
                zip(RACKS[self.hosts], self.uplinks(), strict=True), start=1
            )
        )
        root = GroupSpec("root", groups, rtt=RTT if self.rtt else 0.0)
        return LabSpec(root, seed=1, surroundings=surroundings("tuned"))


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
        transport = LabShell(str(lab.ssh))
        snapshot = run_probe(lab.hosts, plan, transport, infer=infer_fabric)
        return snapshot, racks, time.perf_counter() - begin
    finally:
        labs.down(LAB)


class Found(NamedTuple):
    """How near what was inferred is to what was asked for; errors as shares."""

    missed: int
    extra: int
    errors: list[float]
    told: int
    holdout: float


def compared(case: Case, snapshot: NetworkSnapshot, racks: list[list[str]]) -> Found:
    """Infer the fabric, and compare it with the racks that were asked for."""
    fabric = infer_fabric(snapshot)
    rates = zip(racks, case.uplinks(), strict=True)
    true: Links = {frozenset(rack): (asked, asked) for rack, asked in rates}
    got = group_links(fabric)
    return Found(
        *misfound(true, got),
        errors=link_errors(true, got),
        told=sum(np.isfinite(got[key]).sum() for key in true.keys() & got.keys()),
        holdout=fabric.holdout_error,
    )


def row(case: Case, found: Found) -> str:
    """Return a line of the table."""
    racks = len(RACKS[case.hosts])
    return (
        f"{case.name:18} {racks - found.missed} of {racks}, {found.extra:2} too many  "
        f"{np.median(found.errors):6.1%} {max(found.errors):7.1%} "
        f"{found.told:3}/{len(found.errors):<3} {found.holdout:7.1%}"
    )


def figures(found: list[Found], seconds: list[float]) -> Iterator[Figure]:
    """Yield what is said of all data centres together."""
    exact = sum(one.missed == one.extra == 0 for one in found)
    yield Figure("fabrics: racks exact", exact, unit=f"of {len(found)}")
    yield Figure("fabrics: racks missed", sum(one.missed for one in found))
    yield Figure("fabrics: racks too many", sum(one.extra for one in found))
    errors = 100 * np.array([error for one in found for error in one.errors])
    middle = float(np.median(errors))
    yield Figure("fabrics: error of an uplink, median", middle, unit="%")
    yield Figure("fabrics: error of an uplink, worst", errors.max(), unit="%")
    untold = sum(len(one.errors) - one.told for one in found)
    yield Figure("fabrics: uplinks not told", untold, unit=f"of {len(errors)}")
    holdout = [100 * one.holdout for one in found]
    kind = f"range of {len(found)} networks"
    ends = min(holdout), max(holdout)
    name = "fabrics: error on what was held out"
    yield Figure(name, float(np.median(holdout)), *ends, unit="%", interval=kind)
    if seconds:
        yield median_of("fabrics: seconds of a probe", seconds, "s")


def main() -> None:
    """Measure or read each case, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="some of the cases")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="FOLDER")
    where.add_argument("--from", type=Path, metavar="FOLDER", dest="source")
    json_option(parser)
    given = parser.parse_args()
    print(
        "hosts-ratio-rtt    racks               uplink: median   worst  told  held out"
    )
    every, times = [], []
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        for case in CASES:
            if given.names and case.name not in given.names:
                continue
            if given.source:
                snapshot = load_snapshot(given.source / f"{case.name}.snap")
                truth = json.loads((given.source / f"{case.name}.json").read_text())
                every.append(compared(case, snapshot, truth))
                print(row(case, every[-1]), flush=True)
                continue
            snapshot, racks, seconds = probe(case)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                snapshot.save(given.keep / f"{case.name}.snap")
                (given.keep / f"{case.name}.json").write_text(json.dumps(racks))
            every.append(compared(case, snapshot, racks))
            times.append(seconds)
            print(row(case, every[-1]), f"{seconds:6.1f} s", flush=True)
    write_figures(figures(every, times), given.json)


if __name__ == "__main__":
    main()
