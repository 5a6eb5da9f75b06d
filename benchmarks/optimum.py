"""Compare the search with the proven optimum on small random fabrics.

Each fabric has 4 to `--hosts` hosts in racks in pods, no two links alike; schedules
of every library take turns. Branch and bound starts from a random order, not from
what the search found. Prints how often the search ends with an optimum, the worst it
is off, and seconds of both.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable

import numpy as np

from benchmarks.exact import branch_and_bound
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import local_search

COLLECTIVES = ("allreduce", "allgather", "bcast", "reduce", "alltoall")
FAMILIES = [(name, key) for name in COLLECTIVES for key in SCHEDULES[name]]


def instance(seed: int, most: int) -> CostModel:
    """Draw a tree of 4 to `most` hosts and the next schedule that fits."""
    generator = np.random.default_rng(seed)
    hosts = int(generator.integers(4, most + 1))
    rates = iter(generator.uniform(1e7, 1e8, 6 * hosts).tolist())

    def link(name: str, latency: float, *children: Node) -> Node:
        return Node(name, children, next(rates), next(rates), latency)

    def joined(name: str, latency: float, nodes: list[Node]) -> list[Node]:
        cuts = sorted({0, len(nodes), *generator.integers(0, len(nodes), 2).tolist()})
        ends = itertools.pairwise(cuts)
        return [link(f"{name}-{i}", latency, *nodes[i:j]) for i, j in ends]

    cards = [link(f"vm-{i}", 1e-5) for i in range(hosts)]
    pods = joined("pod", 1e-4, joined("rack", 5e-5, cards))
    fabric, size = (
        Fabric(Node("core", tuple(pods))),
        int(generator.choice([8192, 1 << 20])),
    )
    fitting = [
        family
        for family in FAMILIES
        if SCHEDULES[family[0]][family[1]].only in (None, hosts)
    ]
    collective, algorithm = fitting[seed % len(fitting)]
    schedule = build_schedule(collective, algorithm, hosts, size)
    return CostModel(schedule, fabric, [1] * hosts)


def compare(
    seeds: Iterable[int], most: int
) -> tuple[list[float], list[float], list[float]]:
    """Return how much worse the search is, and seconds of it and of the referee."""
    worse, searched, proved = [], [], []
    for seed in seeds:
        model = instance(seed, most)
        start = np.random.default_rng(seed).permutation(len(model.slots))
        stays = Rules.only(len(start), {0: int(start[0])})
        begin = time.perf_counter()
        _, (seconds, _) = local_search(model, [start], stays, seed)
        middle = time.perf_counter()
        _, (least, _) = branch_and_bound(model, [start], 1)
        searched.append(middle - begin)
        proved.append(time.perf_counter() - middle)
        worse.append(seconds / least - 1)
    return worse, searched, proved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--hosts", type=int, default=9, help="at most")
    json_option(parser)
    options = parser.parse_args()
    worse, searched, proved = compare(range(options.instances), options.hosts)
    optima = sum(share < 1e-8 for share in worse)
    print(
        f"{len(worse)} instances of 4 to {options.hosts} hosts: optimum in "
        f"{optima / len(worse):.1%}, worst {max(worse):.2%} off\n"
        f"search: median {np.median(searched):.3f} s, longest {max(searched):.3f} s; "
        f"proof: median {np.median(proved):.3f} s, longest {max(proved):.3f} s"
    )
    figures = [
        Figure("searches that end with an optimum", optima, unit=f"of {len(worse)}"),
        Figure("a search off its optimum, worst", 100 * max(worse), unit="%"),
    ]
    write_figures(figures, options.json)


if __name__ == "__main__":
    main()
