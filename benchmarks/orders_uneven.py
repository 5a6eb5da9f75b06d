"""Print the share of bytes that leaves a rack, for orders on racks of uneven sizes.

Uplinks carry as much as one card. Medians of the search over `--seeds`; *grouped* is
rack after rack, *parts* where the search starts from by what ranks send each other;
then the worst seed of the search, and how many seeds miss the share asked for.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.arrays import Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.solve.orders import partitioned
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import local_search

NIC = 1.25e9
UNEVEN = (11, 3, 9, 7, 13, 5, 10, 6)
EVEN = (8,) * 8
CASES = (
    ("allreduce", "nccl_tree", UNEVEN, 64 << 20, 0.20),
    ("allreduce", "lightgbm", UNEVEN, 1 << 20, 0.24),
    ("allreduce", "rabenseifner", UNEVEN, 64 << 20, 0.24),
    ("allgather", "bruck", EVEN, 1 << 20, 0.36),
)
"""Collective, algorithm, hosts of the racks, bytes, the share asked for."""


def crossing(model: CostModel, order: Ints) -> float:
    """Return the share of all bytes between hosts of different racks."""
    flat = model.flat()
    rack = flat.links.member[0][order]
    return float(flat.size[rack[flat.src] != rack[flat.dst]].sum() / flat.size.sum())


def row(
    collective: str,
    algorithm: str,
    sizes: tuple[int, ...],
    size: int,
    asked: float,
    seeds: int,
) -> tuple[str, list[Figure]]:
    hosts = sum(sizes)
    schedule = build_schedule(collective, algorithm, hosts, size)
    shares = []
    for seed in range(seeds):
        fabric = racks(sizes, nic=NIC, uplink=NIC, seed=seed)
        model = CostModel(schedule, fabric, [1] * hosts)
        given = np.array([fabric.position(name) for name in sorted(fabric.hosts)])
        first = int(given[0])
        grouped = np.roll(np.arange(hosts), -first)
        parts, stays = partitioned(model.flat(), first), Rules.only(hosts, {0: first})
        best, _ = local_search(model, [given, grouped, parts], stays, seed)
        shares.append([crossing(model, o) for o in (given, grouped, parts, best)])
    figures = " ".join(f"{share:8.3f}" for share in np.median(shares, axis=0))
    found = [share[-1] for share in shares]
    missed = sum(share > asked for share in found)
    what = f"{algorithm}, racks {','.join(map(str, sizes))}: bytes that leave a rack"
    named = {"rack after rack": 1, "cloudcoll": 3}
    said = [
        median_of(f"{what}, {name}", [100 * share[at] for share in shares], "%")
        for name, at in named.items()
    ]
    return f"{algorithm:>14} {figures} {max(found):8.3f} {missed:4} of {seeds}", said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    json_option(parser)
    options = parser.parse_args()
    heads = ("sorted", "grouped", "parts", "found", "worst", "missed")
    print(" " * 15 + " ".join(f"{head:>8}" for head in heads))
    for case in CASES:
        text, figures = row(*case, options.seeds)
        print(text, flush=True)
        write_figures(figures, options.json)


if __name__ == "__main__":
    main()
