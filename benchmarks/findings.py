"""Whether a probe finds the slow card and the late host, and names no healthy host.

In each network of `benchmarks.grid` that has 16 hosts, one card is at half its rate,
and another host's round trips take 100 us longer: a fresh lab and one quick probe each,
as `run` makes it. A line for each network: whether both were found, and which other
hosts were called slow or late. Hosts short of CPU are neither healthy nor sick, nor is
one that is alone behind its rack's link.

    python -m benchmarks.findings [--count 100] [--kept FOLDER]

Snapshots stay in the folder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from benchmarks.grid import CARD_MBIT, LAB, Network, fresh_lab, grid, probe
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.report.findings import honest_fabric, worst_hosts

HOSTS = 16
SLOW_MBIT = CARD_MBIT / 2
LATE = "100us"

LEAST = 0.95
"""Wanted of sick hosts: the share that is found."""
ALARMS = 1 / 500
"""And of healthy ones: the share that is called slow or late, at most."""


@dataclass(frozen=True)
class Outcome:
    """What a probe said of the hosts of one network.

    Attributes
    ----------
    slow, late : bool
        Whether the slow card, and the late host, were called so.
    healthy : int
        Hosts of which nothing is wrong.
    alarms : tuple of str
        Those of them that were called slow or late.
    """

    slow: bool
    late: bool
    healthy: int
    alarms: tuple[str, ...]


def networks(count: int) -> Iterator[Network]:
    """Return the first networks of the grid that have `HOSTS` hosts."""
    small = (one for one in grid(2 * count, 0) if one.hosts == HOSTS)
    return islice(small, count)


def measured(network: Network, snapshot: Path) -> Outcome:
    """Return what a probe says in a fresh lab with two sick hosts; write it."""
    with fresh_lab(network) as (_, cloudcoll):
        lab = json.loads(cloudcoll("lab", "status", "--name", LAB, "--json"))
        racks = (rack for rack in lab["groups"] if len(rack) > 1)
        well = {*chain.from_iterable(racks)} - {*lab["hogged"]}
        drawn = np.random.default_rng(network.seed).permutation(sorted(well))
        slow, late = map(str, drawn[:2])
        fault = ("lab", "fault")
        cloudcoll(*fault, "slow", "--name", LAB, slow, f"{SLOW_MBIT:g}mbit")
        cloudcoll(*fault, "late", "--name", LAB, late, LATE)
        probe(cloudcoll, snapshot)
    known = load_snapshot(snapshot)
    said = worst_hosts(known, honest_fabric(known))
    return Outcome(
        slow in {host.name for host in said if host.is_slow},
        late in {host.name for host in said if host.is_late},
        len(well) - 2,
        tuple(host.name for host in said if host.name in well - {slow, late}),
    )


def row(network: Network, found: Outcome) -> str:
    """Return a line of the table."""
    slow = "slow card found " if found.slow else "slow card missed"
    late = "late host found " if found.late else "late host missed"
    alarms = ", ".join(found.alarms) or "none"
    return f"{network.name:38} {slow}  {late}  healthy ones named: {alarms}"


def figures(found: Iterable[Outcome]) -> Iterator[Figure]:
    """Yield how many were found, and how many alarms were false."""
    outcomes = list(found)
    of = f"of {len(outcomes)}"
    least = LEAST * len(outcomes)
    slow, late = sum(o.slow for o in outcomes), sum(o.late for o in outcomes)
    yield Figure("findings: half cards found", slow, unit=of, least=least)
    yield Figure("findings: late hosts found", late, unit=of, least=least)
    healthy = sum(o.healthy for o in outcomes)
    alarms = sum(len(o.alarms) for o in outcomes)
    name = "findings: healthy hosts called slow or late"
    yield Figure(name, alarms, unit=f"of {healthy}", most=ALARMS * healthy)


def main() -> None:
    """Measure each network, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="networks")
    parser.add_argument("--kept", type=Path, help="folder for the snapshots")
    json_option(parser)
    given = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        kept = given.kept or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        for network in networks(given.count):
            outcome = measured(network, kept / f"{network.seed}.snap")
            print(row(network, outcome), flush=True)
            outcomes.append(outcome)
    write_figures(figures(outcomes), given.json)


if __name__ == "__main__":
    main()
