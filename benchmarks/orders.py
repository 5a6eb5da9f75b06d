"""Say how good the orders are that a noisy view of a regular cloud leads to.

Hosts in racks at 2:1 in pods at 4:1, all alike, names dealt at random. What the
solver sees has `--noise` on every figure: on round trips of pairs, from which groups
are inferred where hosts are few (``probe``), or on the rate and the latency of every
link of a fabric whose groups are known (``fabric``). Judged on the fabric without
noise, against the planted order: the ranks on hosts as the tree has them. Beside it
SciPy's linkage of the same noisy round trips, its leaves as they come and in optimal
order. Medians over `--seeds`, one core; seconds of all of `solve`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.readymade import ready_made
from cloudcoll.collectives.workload import Workload
from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import solve

NIC = 1.25e9
CLOUDS = {64: (2, 4, 8), 1024: (8, 8, 16), 1000: (5, 10, 20), 4096: (16, 16, 16)}
"""Hosts -> pods, racks of a pod, hosts of a rack."""

PROBED = 1024
"""Hosts up to which the view is a probe's."""

OPTIMAL = 1024
"""Hosts up to which leaves are put in optimal order: its time grows as N^2 to N^3."""

ROUNDS = 12
SAMPLES = 4


def plant(hosts: int, generator: np.random.Generator) -> Fabric:
    """Plant a regular cloud, names dealt at random."""
    pods, racks, cards = CLOUDS[hosts]
    names = iter(generator.permutation([f"vm-{i:04d}" for i in range(hosts)]).tolist())

    def rack(name: str) -> Node:
        nodes = tuple(Node(next(names), (), NIC, NIC, 5e-6) for _ in range(cards))
        return Node(name, nodes, cards * NIC / 2, cards * NIC / 2, 10e-6)

    def pod(name: str) -> Node:
        rate = racks * cards * NIC / 8
        nodes = tuple(rack(f"{name}-{number}") for number in range(racks))
        return Node(name, nodes, rate, rate, 30e-6)

    return Fabric(Node("core", tuple(pod(f"pod-{i}") for i in range(pods))))


def blurred(node: Node, noise: float, generator: np.random.Generator) -> Node:
    """Return the tree with a normal error on the figures of every link."""
    factor = np.maximum(1 + noise * generator.standard_normal(3), 0.2).tolist()
    return replace(
        node,
        children=tuple(blurred(child, noise, generator) for child in node.children),
        uplink_bytes_per_s=node.uplink_bytes_per_s * factor[0],
        downlink_bytes_per_s=node.downlink_bytes_per_s * factor[1],
        latency_s=node.latency_s * factor[2],
    )


class Case(NamedTuple):
    """What is asked for, on how many hosts, and how it is seen."""

    name: str
    hosts: int
    view: str
    sent: Callable[[int], Schedule | Workload]


class Result(NamedTuple):
    """Seconds over those of the planted order, of all orders; and what solving took."""

    found: float
    grouped: float
    leaves: float
    optimal: float
    random: float
    took: float


def allreduce(algorithm: str, size: int) -> Callable[[int], Schedule]:
    return lambda hosts: build_schedule("allreduce", algorithm, hosts, size)


def hybrid(hosts: int) -> Workload:
    return ready_made("megatron", hosts, f"tp=8,pp=4,dp={hosts // 32}")


def cases(sizes: list[int]) -> Iterator[Case]:
    for hosts in sizes:
        for view in ("fabric", "probe") if hosts <= PROBED else ("fabric",):
            yield Case("rabenseifner", hosts, view, allreduce("rabenseifner", 64 << 20))
            doubling = allreduce("recursive_doubling", 1 << 20)
            yield Case("recursive doubling", hosts, view, doubling)
            if hosts % 32 == 0 and hosts <= PROBED:
                yield Case("tp=8, pp=4, dp", hosts, view, hybrid)


def measure(case: Case, noise: float, seed: int) -> Result:
    generator = np.random.default_rng(seed)
    fabric, sent = plant(case.hosts, generator), case.sent(case.hosts)
    snapshot = observe(fabric, samples=SAMPLES, rounds=ROUNDS, noise=noise, seed=seed)
    trips = np.zeros((case.hosts, case.hosts))
    rtt = snapshot.rtt
    trips[rtt.src, rtt.dst] = np.median(rtt.seconds.reshape(-1, SAMPLES), axis=1)
    if case.view == "probe":
        seen = infer_fabric(snapshot)
    else:
        seen = Fabric(blurred(fabric.root, noise, generator), holdout_error=noise)
    given = generator.permutation(fabric.hosts).tolist()
    hosts = tuple(Host(name) for name in given)
    begin = time.process_time()
    rank_map = solve(NetworkSnapshot(hosts, fabric=seen), sent, given=given, seed=seed)
    took = time.process_time() - begin
    truth = CostModel(sent, fabric, [1] * case.hosts)
    planted = truth.seconds(np.arange(case.hosts))
    place = np.array([fabric.position(host.name) for host in snapshot.hosts])

    def ratio(order: Ints) -> float:
        return truth.seconds(order) / planted

    first = fabric.position(given[0])
    tree = linkage(distances := squareform(trips + trips.T), "average")
    best = optimal_leaf_ordering(tree, distances) if case.hosts <= OPTIMAL else None
    return Result(
        found=ratio(np.array([fabric.position(name) for name in rank_map.order])),
        grouped=ratio(np.roll(np.arange(case.hosts), -first)),
        leaves=ratio(place[leaves_list(tree)]),
        optimal=np.nan if best is None else ratio(place[leaves_list(best)]),
        random=ratio(np.array([fabric.position(name) for name in given])),
        took=took,
    )


def one_core() -> None:
    """Keep to one core, where the system lets a process choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="64,1024", help=f"of {list(CLOUDS)}")
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=3)
    json_option(parser)
    options = parser.parse_args()
    one_core()
    print(
        f"{'seconds / those of the planted order':>42} {'found':>8} {'worst':>7} "
        f"{'rolled':>7} {'leaves':>7} {'optimal':>7} {'random':>7} {'solve':>8}"
    )
    for case in cases([int(hosts) for hosts in options.hosts.split(",")]):
        runs = [measure(case, options.noise, seed) for seed in range(options.seeds)]
        middle = Result(*np.median(runs, axis=0).tolist())
        print(
            f"{case.name:>20} {case.hosts:5} {case.view:>14} {middle.found:9.3f} "
            f"{max(run.found for run in runs):7.3f} {middle.grouped:7.3f} "
            f"{middle.leaves:7.3f} {middle.optimal:7.3f} {middle.random:7.3f} "
            f"{middle.took:6.2f} s",
            flush=True,
        )
        write_figures(figures(case, runs), options.json)


def figures(case: Case, runs: list[Result]) -> Iterator[Figure]:
    """Yield what is said of one case; of all seeds the least and the most."""
    what = f"{case.name}, {case.hosts} hosts, {case.view}"
    names = {
        "found": "cloudcoll over planted",
        "leaves": "leaves over planted",
        "random": "random over planted",
    }
    for key, name in names.items():
        values = [getattr(run, key) for run in runs]
        yield median_of(f"{what}: {name}", values, "x")
    took = [run.took for run in runs]
    yield median_of(f"{what}: CPU of solve", took, "s")


if __name__ == "__main__":
    main()
