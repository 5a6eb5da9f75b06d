"""Solve on random fabrics, and look for answers worse than an order without search.

Each case draws a fabric of 2 to 300 hosts in uneven groups of one to three levels,
links of any rate and latency, some not known, slots, an order given, and a schedule
family; all families take turns. The answer is compared, under the model, with
every baseline that keeps the first host in front, and with the bound. A row per
collective: cases, the worst ratio of answer to baseline (never above 1), the median
gain over the order given, and how often the answer is known to be perfect, or at
most 20 % from it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.collectives import SCHEDULES, Schedule, build_schedule
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import search, solve
from cloudcoll.solve.orders import baseline_orders

MESSAGES = 100_000
"""At most of a case's schedule; all-to-alls of many hosts are left to bounds.py."""


@dataclass(frozen=True)
class Case:
    """One answer.

    Attributes
    ----------
    worst : float
        Its seconds over those of the best baseline.
    gain : float
        Seconds of the order given over its own.
    gap : float
        NaN where no bound is known.
    """

    worst: float
    gain: float
    gap: float


def plant(hosts: int, generator: np.random.Generator) -> Fabric:
    """Plant uneven groups in groups, up to three levels."""

    def link(name: str, children: list[Node], rate: float) -> Node:
        up, down = rate * generator.choice([1.0, 1.0, 1.0, 0.5, np.nan], 2)
        latency = float(generator.choice([np.nan, 0.0, 5e-6, 2e-5, 1e-4]))
        return Node(name, tuple(children), float(up), float(down), latency)

    rates = generator.choice([1.25e8, 1.25e9, 1.25e9, 1.25e9], hosts)
    names = generator.permutation([f"vm-{i}" for i in range(hosts)]).tolist()
    nodes = [link(n, [], r) for n, r in zip(names, rates.tolist(), strict=True)]
    for level in range(int(generator.integers(0, 4))):
        groups: list[Node] = []
        while nodes:
            size = int(generator.integers(1, max(2, int(len(nodes) ** 0.7)) + 1))
            own, nodes = nodes[:size], nodes[size:]
            total = 1.25e9 * sum(len(list(node.leaves())) for node in own)
            rate = total / float(generator.choice([1, 2, 4, 8]))
            groups.append(link(f"group-{level}-{len(groups)}", own, rate))
        nodes = groups
    return Fabric(Node("core", tuple(nodes)), origin="measured")


def draw_schedule(number: int, ranks: int, generator: np.random.Generator) -> Schedule:
    """Return a schedule of the family whose turn it is, or of the next that fits."""
    families = [(c, a, f) for c, fs in SCHEDULES.items() for a, f in fs.items()]
    while True:
        collective, algorithm, family = families[number % len(families)]
        if family.only in (None, ranks):
            size = int(generator.choice([8, 1 << 14, 1 << 20, 64 << 20]))
            schedule = build_schedule(collective, algorithm, ranks, size)
            if sum(len(step.src) for step in schedule.steps) <= MESSAGES:
                return schedule
        number += 1


def solved(number: int, largest: int) -> tuple[str, Case]:
    generator = np.random.default_rng(number)
    hosts = int(np.exp(generator.uniform(np.log(2), np.log(largest + 1))))
    fabric = plant(hosts, generator)
    slots = [1] * hosts
    if number % 3 == 0:
        slots = generator.integers(1, 4, hosts).tolist()
    schedule = draw_schedule(number, sum(slots), generator)
    given = [fabric.hosts[i] for i in generator.permutation(hosts)]
    snapshot = NetworkSnapshot(tuple(map(Host, given)), fabric=fabric)
    found = solve(snapshot, schedule, slots=slots, seed=number)
    slots_of = dict(zip(given, slots, strict=True))
    model = CostModel(schedule, fabric, [slots_of[name] for name in fabric.hosts])

    def seconds(order: tuple[str, ...]) -> float:
        return model.seconds([fabric.position(name) for name in order])

    mine = seconds(found.order)
    rivals = [
        order
        for baseline in baseline_orders(given, fabric).values()
        for order in in_front(baseline, given[0])
    ]
    best = min(map(seconds, rivals))
    gain = seconds(tuple(given)) / mine if mine else 1.0
    assert found.lower_bound is not None
    assert found.lower_bound <= mine * (1 + 1e-9), f"case {number} beats its bound"
    return schedule.collective, Case(mine / best if best else 1.0, gain, found.gap)


def in_front(order: tuple[str, ...], first: str) -> Iterator[tuple[str, ...]]:
    """Yield an order with a host in front: as a rotation, and by a swap."""
    place = order.index(first)
    yield order[place:] + order[:place]
    swapped = list(order)
    swapped[0], swapped[place] = swapped[place], swapped[0]
    yield tuple(swapped)


def row(name: str, cases: list[Case]) -> str:
    gaps = np.array([case.gap for case in cases if not np.isnan(case.gap)])
    return (
        f"{name:>14} {len(cases):6} {max(case.worst for case in cases):12.9f} "
        f"{np.median([case.gain for case in cases]):7.2f}x "
        f"{100 * np.mean(gaps < 1e-6):8.0f} % {100 * np.mean(gaps <= 0.2):8.0f} % "
        f"{1 + np.median(gaps):8.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--largest", type=int, default=300, help="hosts of a case")
    parser.add_argument("--moves", type=int, default=2000, help="that a search tries")
    json_option(parser)
    options = parser.parse_args()
    # The promise holds for any budget; a small one tests it harder.
    search.EVALUATIONS = options.moves
    begin = time.perf_counter()
    found: dict[str, list[Case]] = defaultdict(list)
    numbers = range(options.cases)
    with ProcessPoolExecutor() as pool:
        for collective, case in pool.map(solved, numbers, repeat(options.largest)):
            found[collective].append(case)
            found["all"].append(case)
    print(
        f"{'collective':>14} {'cases':>6} {'worst':>12} {'gain':>8} {'perfect':>10} "
        f"{'<= 20 %':>10} {'bound':>8}"
    )
    for name in sorted(found, key=lambda name: (name == "all", name)):
        print(row(name, found[name]))
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"{time.perf_counter() - begin:.0f} s, at most {most:.2f} GiB of memory")
    slower = sum(case.worst > 1 + 1e-8 for case in found["all"])
    close = [case.gap <= 0.2 for case in found["all"] if not np.isnan(case.gap)]
    share = 100 * float(np.mean(close))
    figures = [
        Figure("answers slower than a baseline", slower, unit=f"of {options.cases}"),
        Figure("answers at most 20 % from perfect", share, unit="%"),
    ]
    write_figures(figures, options.json)
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
