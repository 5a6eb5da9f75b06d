"""Let SimGrid judge the orders: VMs on half of the slots of a cloud of three levels.

Racks of 16 slots at 4:1 in pods of 4 racks at 2:1, or as `--ratios` says. The VMs
have every other slot of each rack (regular), or 3 to 13 of a rack (ragged); names are
dealt at random. With `--seen probe`, both sides have the same simulated probe with
10 % noise: SciPy's linkage its round trips, the search the fabric inferred from it.
With `--seen fabric`, both have the true network: linkage its round trips, the search
its links. SimGrid
(Casanova et al. 2014) replays the messages, each as soon as its ranks are done with
those before; pipelined trees go in 32 segments. ``leaves / bound`` is how much can be
gained at most over SciPy's order of leaves, by the cost model.

Needs `apt-get install libsimgrid-dev g++`; CPLUS_INCLUDE_PATH, LIBRARY_PATH and
LD_LIBRARY_PATH may say where SimGrid is instead.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.stats import spearmanr

from benchmarks.record import Figure, json_option, write_figures
from benchmarks.simgrid.replay import compiled, replayed
from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe
from cloudcoll.model.contention import contended_seconds
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import solve
from cloudcoll.solve.bounds import lower_bound

NIC = 1.25e9
SIZE = 64 << 20
SLOTS, RACKS = 16, 4
"""Slots of a rack, racks of a pod."""
UNEVEN = 3, 13
"""Fewest and most VMs of a ragged rack."""
SAMPLES, ROUNDS = 20, 16
"""Of the simulated probe: round trips of each pair, loaded rounds."""
HOSTS = (64, 96, 128, 192, 256)
SCHEDULES = {
    "ring": ("allreduce", "ring"),
    "halving-doubling": ("allreduce", "gloo_halving_doubling"),
    "rabenseifner": ("allreduce", "rabenseifner"),
    "recursive doubling": ("allreduce", "recursive_doubling"),
    "double tree": ("allreduce", "nccl_tree"),
    "LightGBM": ("allreduce", "lightgbm"),
    "Bruck allgather": ("allgather", "bruck"),
    "halving": ("reduce_scatter", "recursive_halving"),
}


def plant(
    hosts: int, ragged: bool, ratios: list[float], generator: np.random.Generator
) -> Fabric:
    """Plant VMs on half of the slots."""
    names = iter(generator.permutation([f"vm-{i:03d}" for i in range(hosts)]).tolist())
    sizes = np.full(2 * hosts // SLOTS, SLOTS // 2)
    while ragged and (sizes.sum() != hosts or (sizes == sizes[0]).all()):
        sizes = generator.integers(*UNEVEN, len(sizes), endpoint=True)
    rack_rate = SLOTS * NIC / ratios[0]
    pods: dict[int, list[Node]] = {}
    for number, size in enumerate(sizes.tolist()):
        cards = tuple(Node(next(names), (), NIC, NIC, 5e-6) for _ in range(size))
        rack = Node(f"rack-{number}", cards, rack_rate, rack_rate, 10e-6)
        pods.setdefault(number // RACKS, []).append(rack)
    rate = RACKS * rack_rate / ratios[1]
    nodes = [Node(f"pod-{i}", tuple(p), rate, rate, 30e-6) for i, p in pods.items()]
    return Fabric(Node("core", tuple(nodes)), origin="synthetic")


def orders_of(
    snapshot: NetworkSnapshot,
    trips: Floats,
    fabric: Fabric,
    schedule: Schedule,
    seed: int,
) -> dict[str, Ints]:
    """Return orders by name, as positions in the true fabric.

    Linkage has the round trips, shape (hosts, hosts), our search the snapshot.
    """
    leaves = leaves_list(linkage(squareform(trips), "average")).tolist()
    names = [host.name for host in snapshot.hosts]
    given = np.random.default_rng([seed, 1]).permutation(names).tolist()
    # The order of leaves puts any host in front, so ours may, too.
    found = solve(snapshot, schedule, given=given, seed=seed, free_rank0=True)
    orders = {
        "given": given,
        "sorted": sorted(names),
        "leaves": [names[i] for i in leaves],
        "cloudcoll": found.order,
    }
    return {
        name: np.array([fabric.position(host) for host in order])
        for name, order in orders.items()
    }


def measured(snapshot: NetworkSnapshot) -> Floats:
    """Return the median round trip of each pair."""
    hosts = len(snapshot.hosts)
    trips = np.zeros((hosts, hosts))
    rtt = snapshot.rtt
    trips[rtt.src, rtt.dst] = np.median(rtt.seconds.reshape(-1, SAMPLES), axis=1)
    return trips + trips.T


class Case(NamedTuple):
    """SimGrid's seconds, those of flows and of the cost model, shape (orders,).

    And what no order can beat by the cost model, in seconds.
    """

    simgrid: list[float]
    flows: list[float]
    loads: list[float]
    bound: float


def measure(
    program: Path, instance: int, ragged: bool, options: argparse.Namespace
) -> dict[str, Case]:
    """Return each schedule's figures of the orders given, sorted, leaves, ours."""
    hosts = HOSTS[instance % len(HOSTS)]
    ratios = [float(ratio) for ratio in options.ratios.split(",")]
    fabric = plant(hosts, ragged, ratios, np.random.default_rng(instance))
    snapshot = observe(fabric, samples=SAMPLES, rounds=ROUNDS, noise=0.1, seed=instance)
    if options.seen == "probe":
        known, trips = infer_fabric(snapshot), measured(snapshot)
    else:
        place = [fabric.position(host.name) for host in snapshot.hosts]
        known, trips = fabric, fabric.links.pair_rtt()[np.ix_(place, place)]
        np.fill_diagonal(trips, 0.0)
    snapshot = replace(snapshot, fabric=known)
    cases = {}
    for name in options.schedules.split(","):
        whole = build_schedule(*SCHEDULES[name], hosts, SIZE)
        # SimGrid's messages do not take turns.
        whole = replace(whole, turns=np.inf)
        orders = orders_of(snapshot, trips, fabric, whole, instance)
        steps = [replace(s, repeat=min(s.repeat, options.repeats)) for s in whole.steps]
        part = replace(whole, steps=tuple(steps))
        model = CostModel(part, fabric, [1] * hosts)
        cases[name] = Case(
            [replayed(program, fabric.links, part, o) for o in orders.values()],
            [contended_seconds(model, order) for order in orders.values()],
            [model.seconds(order) for order in orders.values()],
            lower_bound(model) or 0.0,
        )
    return cases


def summary(kind: str, name: str, cases: list[Case]) -> str:
    """Return a row of medians over instances."""
    times = np.array([case.simgrid for case in cases])
    flows = np.array([case.flows for case in cases]) / times
    loads = np.array([case.loads for case in cases]) / times
    gains = times[:, :3] / times[:, 3:]
    ranks = [spearmanr(case.simgrid, case.flows).statistic for case in cases]
    figures = [
        *np.median(gains, axis=0),
        gains[:, 2].min(),
        gains[:, 2].max(),
        np.median([case.loads[2] / case.bound for case in cases]),
        np.median(flows),
        100 * np.median(abs(flows - 1)),
        100 * np.median(abs(loads - 1)),
        np.median(ranks),
    ]
    return f"{kind:>8} {name:>17} {len(cases):5} " + " ".join(
        f"{figure:8.3f}" for figure in figures
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20, help="half are ragged")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument(
        "--repeats", type=int, default=8, help="of a step that recurs, at most"
    )
    parser.add_argument(
        "--schedules", default=",".join(SCHEDULES), help="by name, all by default"
    )
    parser.add_argument("--ratios", default="4,2", help="of racks and pods")
    parser.add_argument("--seen", choices=("fabric", "probe"), default="probe")
    json_option(parser)
    options = parser.parse_args()
    rows: dict[tuple[str, str], list[Case]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for number in range(options.first, options.first + options.instances):
            ragged = number % 2 == 1
            kind = "ragged" if ragged else "regular"
            found = measure(program, number // 2, ragged, options)
            for name, case in found.items():
                rows.setdefault((kind, name), []).append(case)
                times = " ".join(f"{1e3 * seconds:.1f}" for seconds in case.simgrid)
                print(f"{number} {kind} {name}: {times} ms", file=sys.stderr)
    print(
        f"{'':>33}{'SimGrid: seconds / those of cloudcoll':<44} {'leaves':>8} "
        f"{'flows / SimGrid':>17} {'loads':>8}\n"
        f"{'cases':>32} {'given':>8} {'sorted':>8} {'leaves':>8} {'least':>8} "
        f"{'most':>8} {'/ bound':>8} {'ratio':>8} {'error %':>8} {'error %':>8} "
        f"{'Spearman':>8}"
    )
    for (kind, name), cases in sorted(rows.items()):
        print(summary(kind, name, cases))
    write_figures(figures(rows, options.seen), options.json)


def figures(rows: dict[tuple[str, str], list[Case]], seen: str) -> Iterator[Figure]:
    """Yield SciPy's seconds over ours; of the instances the least and the most."""
    for (kind, name), cases in sorted(rows.items()):
        gains = [case.simgrid[2] / case.simgrid[3] for case in cases]
        what = f"{name}, {kind}, seen by {seen}: leaves over cloudcoll"
        ends, count = (min(gains), max(gains)), f"range of {len(gains)}"
        middle = float(np.median(gains))
        yield Figure(what, middle, *ends, unit="x", interval=count)


if __name__ == "__main__":
    main()
