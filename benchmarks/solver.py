"""Time the search for an order and say how good the orders are.

Three levels: racks of uneven sizes at 2:1 in pods at 4:1, host names dealt at
random. A row per schedule and number of hosts: predicted milliseconds of the
order given, of the orders side by side by racks and pods, of the search without
the engine and of the one with it; their CPU seconds and costs of orders a second.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.engine import library
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import search
from cloudcoll.solve.kernel import Kernel
from cloudcoll.solve.orders import partitioned
from cloudcoll.solve.rules import Rules

NIC = 1.25e9
SIZE = 64 << 20
ALGORITHMS = ("rabenseifner", "ring")
TRIED = 2000
"""Moves whose time is taken for a rate."""


def plant(hosts: int, generator: np.random.Generator) -> Fabric:
    """Plant racks of 2 to 32 hosts, and pods of 2 to 5 racks."""
    names = generator.permutation([f"vm-{i:04d}" for i in range(hosts)]).tolist()
    racks: list[Node] = []
    while names:
        most = min(max(hosts // 6, 4), 32)
        size = min(int(generator.integers(2, most + 1)), len(names))
        cards = [Node(names.pop(), (), NIC, NIC, 5e-6) for _ in range(size)]
        racks.append(group(f"rack-{len(racks)}", cards, 2.0, 10e-6))
    pods: list[Node] = []
    while racks:
        few = int(generator.integers(2, 6))
        pods.append(group(f"pod-{len(pods)}", racks[:few], 4.0, 30e-6))
        racks = racks[few:]
    return Fabric(Node("core", tuple(pods)), origin="synthetic")


def group(name: str, children: list[Node], ratio: float, latency: float) -> Node:
    """Return a group whose uplink is `ratio` narrower than its members' links."""
    rate = max(sum(child.uplink_bytes_per_s for child in children) / ratio, NIC)
    return Node(name, tuple(children), rate, rate, latency)


@dataclass(frozen=True)
class Run:
    """What one search came to.

    Attributes
    ----------
    seconds : float
        Predicted, of the order found.
    took : float
        Seconds of the search.
    """

    seconds: float
    took: float


def stays(start: Ints) -> Rules:
    """Return the rules by which the first host keeps rank 0."""
    return Rules.only(len(start), {0: int(start[0])})


def timed(solver: search.Search, model: CostModel, starts: list[Ints]) -> Run:
    begin = time.process_time()
    _, (seconds, _) = solver(model, starts, stays(starts[0]), 0)
    return Run(seconds, time.process_time() - begin)


def rates(model: CostModel, start: Ints) -> tuple[float, float]:
    """Return how many orders are judged in a second, without the engine and with."""
    few = TRIED // 20
    begin = time.process_time()
    for _ in range(few):
        model.cost(start)
    middle = time.process_time()
    engine = library()
    assert engine is not None, "the engine was not built: pip install -e ."
    kernel = Kernel(engine, model.flat())
    kernel.cost(start)
    ready = time.process_time()
    kernel.search(start, steps=TRIED, rules=stays(start))
    return few / (middle - begin), TRIED / (time.process_time() - ready)


def row(hosts: int, algorithm: str, plain: bool) -> str:
    generator = np.random.default_rng(hosts)
    fabric = plant(hosts, generator)
    schedule = build_schedule("allreduce", algorithm, hosts, SIZE)
    model = CostModel(schedule, fabric, [1] * hosts)
    given = generator.permutation(hosts)
    grouped = np.roll(np.arange(hosts), -int(given[0]))
    starts = [given, grouped, partitioned(model.flat(), int(given[0]))]
    slow = timed(search.plain_search, model, starts) if plain else None
    fast = timed(search.local_search, model, starts)
    judged = rates(model, grouped)
    without = f"{1e3 * slow.seconds:8.1f} {slow.took:7.2f}" if slow else " " * 16
    return (
        f"{algorithm:>12} {hosts:5} {1e3 * model.seconds(given):8.1f} "
        f"{1e3 * model.seconds(grouped):8.1f} {without} "
        f"{1e3 * fast.seconds:8.1f} {fast.took:7.2f} {judged[0]:9.0f} {judged[1]:9.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64,256,1024", help="comma-separated")
    parser.add_argument("--no-plain", action="store_true", help="the engine alone")
    options = parser.parse_args()
    print(
        f"{'':>12} {'':5} {'given':>8} {'grouped':>8} {'without engine':>16} "
        f"{'with engine':>16} {'orders/s':>19}\n"
        f"{'':>12} {'hosts':>5} {'ms':>8} {'ms':>8} {'ms':>8} {'s':>7} "
        f"{'ms':>8} {'s':>7} {'without':>9} {'with':>9}"
    )
    for algorithm in ALGORITHMS:
        for hosts in map(int, options.hosts.split(",")):
            print(row(hosts, algorithm, not options.no_plain), flush=True)


if __name__ == "__main__":
    main()
