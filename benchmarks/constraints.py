"""What constraints cost, and whether every answer keeps them.

    python benchmarks/constraints.py [--small N] [--any N] [--hosts 64,256,1024]

Small random problems against every order; random ones of up to 300 hosts, kept or
not and never worse than a baseline that keeps them; then, on racks of 8 to 40 hosts
behind 4:1 uplinks with every tenth card at a fifth of its rate:

* take: three quarters of the hosts, against the first ones listed and against the
  fastest cards, rack by rack;
* rooms: groups of four ranks in one rack each, against no such rule.

Predicted seconds, by the cost model; seconds of the solver in brackets.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.readymade import ready_made
from cloudcoll.collectives.workload import Workload
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import Constraints, solve
from cloudcoll.solve.orders import baseline_orders, grouped_order

NIC = 1.25e9
ALGORITHMS = ("ring", "rabenseifner", "nccl_tree", "recursive_doubling", "lightgbm")


def plant(hosts: int, generator: np.random.Generator, racks: tuple[int, int]) -> Fabric:
    """Return racks of uneven size, some hosts slow, names dealt at random."""
    names = [f"vm-{number:04}" for number in generator.permutation(hosts)]
    groups: list[Node] = []
    while names:
        size = int(generator.integers(*racks, endpoint=True))
        mine, names = names[:size], names[size:]
        slow = generator.random(len(mine)) < 0.1
        rates = NIC * np.where(slow, 0.2, generator.uniform(0.9, 1.0, len(mine)))
        cards = [
            Node(name, (), rate, rate, 5e-6)
            for name, rate in zip(mine, rates.tolist(), strict=True)
        ]
        uplink = max(len(mine) * NIC / 4, NIC)
        groups.append(Node(f"rack-{len(groups)}", tuple(cards), uplink, uplink, 2e-5))
    return Fabric(Node("core", tuple(groups)))


def asked(
    hosts: int, order: list[str], rack: dict[str, str], generator: np.random.Generator
) -> Constraints:
    """Draw constraints that the first hosts of an order keep."""
    take = int(generator.integers(max(2, hosts // 2), hosts, endpoint=True))
    pins = generator.choice(take, min(2, take), replace=False).tolist()
    drawn = generator.choice(take, take // 2, replace=False).tolist()
    rooms = [
        tuple(sorted(chunk))
        for name in sorted(set(rack.values()))
        if len(chunk := [r for r in drawn if rack[order[r]] == name][:4]) > 1
    ]
    return Constraints(tuple((r, order[r]) for r in pins), take, 0.0, tuple(rooms))


def snapshot_of(fabric: Fabric) -> NetworkSnapshot:
    return NetworkSnapshot(tuple(map(Host, sorted(fabric.hosts))), fabric=fabric)


def keeps(order: tuple[str, ...], wanted: Constraints, rack: dict[str, str]) -> bool:
    return all(order[rank] == host for rank, host in wanted.pins) and all(
        len({rack[order[rank]] for rank in group}) == 1 for group in wanted.same_rack
    )


def seconds(sent: Schedule | Workload, fabric: Fabric, order: tuple[str, ...]) -> float:
    part = fabric.restrict(order)
    model = CostModel(sent, part, [1] * len(order))
    return model.seconds([part.position(name) for name in order])


def draw(
    seed: int, least: int, most: int
) -> tuple[Fabric, dict[str, str], Constraints, Schedule]:
    """Return a random problem that some order solves."""
    generator = np.random.default_rng(seed)
    hosts = int(generator.integers(least, most, endpoint=True))
    fabric = plant(hosts, generator, (1, 2 + hosts // 3))
    rack = {
        name: group.name for group in fabric.root.children for name in group.leaves()
    }
    order = [fabric.hosts[i] for i in generator.permutation(hosts)]
    wanted = asked(hosts, order, rack, generator)
    algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
    return (
        fabric,
        rack,
        wanted,
        build_schedule("allreduce", algorithm, wanted.take, 1 << 24),
    )


def small(count: int) -> str:
    gaps = []
    for seed in range(count):
        fabric, _, wanted, schedule = draw(seed, 4, 7)
        exact, local = (
            solve(
                snapshot_of(fabric),
                schedule,
                free_rank0=True,
                seed=seed,
                solver=solver,
                constraints=wanted,
            ).predicted["cloudcoll"]
            for solver in ("exact", "local")
        )
        gaps.append(local / exact - 1)
    optima = np.mean(np.array(gaps) <= 1e-8)
    return (
        f"{count} problems of 4 to 7 hosts: optimum in {optima:.1%}, "
        f"worst {max(gaps):.2%} above"
    )


def any_size(count: int) -> str:
    kept = worse = 0
    for seed in range(count):
        fabric, rack, wanted, schedule = draw(10_000 + seed, 9, 300)
        found = solve(
            snapshot_of(fabric), schedule, free_rank0=True, constraints=wanted
        )
        kept += keeps(found.order, wanted, rack)
        orders = baseline_orders(sorted(fabric.hosts), fabric).values()
        rivals = [order[: wanted.take] for order in orders]
        worse += any(
            keeps(rival, wanted, rack)
            and seconds(schedule, fabric, rival)
            < seconds(schedule, fabric, found.order)
            for rival in rivals
        )
    return (
        f"{count} problems of 9 to 300 hosts: constraints kept in {kept}, worse than "
        f"a baseline that keeps them in {worse}"
    )


def large(hosts: int) -> str:
    generator = np.random.default_rng(hosts)
    fabric = plant(hosts, generator, (8, 40))
    snapshot = snapshot_of(fabric)
    take = hosts * 3 // 4 // 4 * 4
    words = [f"{hosts:5}"]
    for algorithm in ("ring", "rabenseifner"):
        schedule = build_schedule("allreduce", algorithm, take, 64 << 20)
        found, took = timed(snapshot, schedule, Constraints(take=take))
        rates = {
            n.name: n.uplink_bytes_per_s
            for g in fabric.root.children
            for n in g.children
        }
        rates = {
            card.name: card.uplink_bytes_per_s
            for rack in fabric.root.children
            for card in rack.children
        }
        fast = sorted(sorted(rates, key=lambda name: -rates[name])[:take])
        peer = grouped_order(fast, fabric.restrict(fast))
        words.append(
            f"{1e3 * found.predicted['given']:9.1f} "
            f"{1e3 * seconds(schedule, fabric, peer):9.1f} "
            f"{1e3 * found.predicted['cloudcoll']:9.1f} ({took:4.1f})"
        )
    job = ready_made("megatron", take, f"tp=4,dp={take // 4}")
    groups = tuple(tuple(range(i, i + 4)) for i in range(0, take, 4))
    for rooms in ((), groups):
        found, took = timed(snapshot, job, Constraints(take=take, same_rack=rooms))
        words.append(f"{found.predicted['cloudcoll']:8.2f} ({took:4.1f})")
    return " ".join(words)


def timed(
    snapshot: NetworkSnapshot, sent: Schedule | Workload, wanted: Constraints
) -> tuple[RankMap, float]:
    begin = time.perf_counter()
    # The host given first may be a slow one.
    found = solve(snapshot, sent, constraints=wanted, free_rank0=True)
    return found, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=500)
    parser.add_argument("--any", type=int, default=200)
    parser.add_argument("--hosts", default="64,256,1024", help="comma-separated")
    options = parser.parse_args()
    print(small(options.small), flush=True)
    print(any_size(options.any), flush=True)
    print(
        "hosts   ring, ms: listed     fast cloudcoll  rabenseifner: listed, fast, "
        "cloudcoll   tp=4, s: free, rooms"
    )
    for hosts in map(int, options.hosts.split(",")):
        print(large(hosts), flush=True)


if __name__ == "__main__":
    main()
