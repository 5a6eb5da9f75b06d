"""Measure how well planted fabrics are found, seen through noise and loss.

Prints a row per fabric: adjusted Rand index of racks and pods, how many groups
were missed and how many found that are none, the median and the worst relative
error of group links and of NICs, how many of the group links were told, the
held-out error, seconds and peak memory of the process so far. Errors are over all
group links that were planted: one that was not found or not told counts as 100 %.
They are against what a link sustains: the noise slows each window of a flow,
by 23 % on average at the most. Uplinks are loaded on purpose, as in a standard
probe.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe import plan_probes
from cloudcoll.probe.uplink_rounds import Escalation, find_uplinks

NIC = 50e6
WINDOWS = 10
SAMPLES = 20
TRIPS = {2: (50e-6, 200e-6), 3: (50e-6, 150e-6, 400e-6)}


@dataclass(frozen=True)
class Case:
    """What is planted, and through how much noise it is seen.

    Attributes
    ----------
    hosts, levels : int
    oversubscription : float
        Members' rates over their group's.
    noise : float
        Mean extra time of a round trip or a window, as a share of it.
    loss, dead : float
        Share of the packets and of the hosts.
    """

    hosts: int
    levels: int
    oversubscription: float
    noise: float
    loss: float
    dead: float


CASES = [
    Case(0, 2, 2.0, 0.10, 0.00, 0.00),
    Case(0, 2, 4.0, 0.25, 0.02, 0.02),
    Case(0, 2, 8.0, 0.40, 0.05, 0.02),
    Case(0, 3, 4.0, 0.10, 0.00, 0.02),
    Case(0, 3, 4.0, 0.40, 0.05, 0.02),
]


def plant(case: Case, generator: np.random.Generator) -> Fabric:
    """Plant uneven racks, in pods where there are three levels."""
    names = generator.permutation([f"vm-{i:04d}" for i in range(case.hosts)]).tolist()
    trips = np.diff((0.0, *TRIPS[case.levels])) / 4
    racks = []
    while names:
        size = min(int(generator.integers(2, max(case.hosts // 8, 6) + 1)), len(names))
        size = min(size, 32)
        hosts = tuple(Node(names.pop(), (), NIC, NIC, trips[0]) for _ in range(size))
        racks.append(_group(f"rack-{len(racks)}", hosts, case, trips[1]))
    if case.levels == 2:
        return Fabric(Node("core", tuple(racks)), origin="synthetic")
    share = max(len(racks) // 3, 2)
    pods = [
        _group(f"pod-{i}", tuple(racks[i : i + share]), case, trips[2])
        for i in range(0, len(racks), share)
    ]
    return Fabric(Node("core", tuple(pods)), origin="synthetic")


def _group(name: str, children: tuple[Node, ...], case: Case, latency: float) -> Node:
    total = sum(child.uplink_bytes_per_s for child in children)
    # A card can always fill the way out: nothing narrower is ever built.
    rate = max(total / case.oversubscription, NIC)
    return Node(name, children, rate, rate, latency)


def probed(fabric: Fabric, case: Case, seed: int) -> NetworkSnapshot:
    """Return what a standard probe would see, dead hosts and lost packets too."""
    generator = np.random.default_rng(seed)
    whole = observe(fabric, samples=SAMPLES, noise=case.noise, seed=seed)
    dead = generator.choice(case.hosts, round(case.dead * case.hosts), replace=False)
    rtt = whole.rtt
    lost = generator.random(len(rtt.seconds)) < case.loss
    lost |= np.repeat(np.isin(rtt.src, dead) | np.isin(rtt.dst, dead), SAMPLES)
    left = (~lost).reshape(-1, SAMPLES).sum(axis=1)
    kept = RttSamples(rtt.src, rtt.dst, rtt.sent, left.cumsum(), rtt.seconds[~lost])
    plan = plan_probes(whole.hosts, mode="standard", seed=seed)
    loads = [round_ for round_ in plan.rounds() if round_.kind != "rtt"]
    flows = np.array(
        [(n, *pair) for n, r in enumerate(loads) for pair in r.pairs], dtype=np.int64
    )
    flows = flows[~np.isin(flows[:, 1:], dead).any(axis=1)]
    failed = {whole.names[host]: "no answer" for host in dead.tolist()}
    load = _streams(fabric, whole.names, flows, case, generator)
    seen = replace(whole, rtt=kept, flows=load, failed=failed)
    uplinks = find_uplinks(infer_fabric(seen), whole.names)
    escalation = Escalation(uplinks, plan, plan.count)
    parts = [load]
    while turn := escalation.turn(set(dead.tolist())):
        flows = np.array([(r.number, *pair) for r in turn for pair in r.pairs])
        parts.append(_streams(fabric, whole.names, flows, case, generator))
        escalation.learn(parts[-1])
    return replace(seen, flows=joined(parts))


def joined(parts: Sequence[LoadedFlows]) -> LoadedFlows:
    """Return flows of several phases as one."""
    lengths = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
    windows = np.concatenate([part.window_bytes for part in parts])
    columns = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("round", "src", "dst")
    )
    return LoadedFlows(*columns, np.cumsum(lengths), windows, parts[0].window_s, 0)


def _streams(
    fabric: Fabric,
    names: tuple[str, ...],
    flows: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    case: Case,
    generator: np.random.Generator,
) -> LoadedFlows:
    column = np.array([fabric.position(name) for name in names])
    number, src, dst = flows.T
    rate, _ = fair_rounds(fabric.links, number, column[src], column[dst])
    slowed = 1 + generator.exponential(case.noise, (len(rate), WINDOWS))
    windows = (rate[:, None] * 0.025 / slowed).astype(np.int64).ravel()
    ends = np.arange(1, len(rate) + 1) * WINDOWS
    return LoadedFlows(number, src, dst, ends, windows, 0.025, 0)


def labels(fabric: Fabric, names: Iterable[str], below: int) -> list[int]:
    """Return each host's group: 0 the core's children, -1 the host's parent."""
    paths: dict[str, tuple[Node, ...]] = {}

    def walk(node: Node, path: tuple[Node, ...]) -> None:
        if not node.children:
            paths[node.name] = path
        for child in node.children:
            walk(child, (*path, child))

    walk(fabric.root, (fabric.root,))
    # The host itself ends its path: on the core it is a group of its own.
    chosen = [
        paths[name][1] if below == 0 or len(paths[name]) == 2 else paths[name][-2]
        for name in names
    ]
    return [id(node) for node in chosen]


def rand_index(one: list[int], other: list[int]) -> float:
    """Return the adjusted Rand index (Hubert and Arabie 1985)."""
    a, b = (np.unique(x, return_inverse=True)[1] for x in (one, other))
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def pairs(counts: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, first, second = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    chance = first * second / math.comb(len(one), 2)
    middle = (first + second) / 2
    return 1.0 if middle == chance else (both - chance) / (middle - chance)


Links = dict[frozenset[str], tuple[float, float]]
"""Hosts below a link -> its rates up and down."""


def group_links(fabric: Fabric) -> Links:
    """Return the links of all groups of several hosts, the core not among them."""
    nodes = [node for level in fabric.groups()[:-1] for node in level]
    links = {frozenset(node.leaves()): _rates(node) for node in nodes}
    return {leaves: rates for leaves, rates in links.items() if len(leaves) > 1}


def _rates(node: Node) -> tuple[float, float]:
    return node.uplink_bytes_per_s, node.downlink_bytes_per_s


def link_errors(true: Links, got: Links, sustained: float = 1.0) -> list[float]:
    """Return the relative error of each true link, up and down.

    One that was not found, or of which no rate was told, counts as 1.
    """
    unknown = (math.nan, math.nan)
    return [
        abs(have / want / sustained - 1) if math.isfinite(have) else 1.0
        for leaves, rates in true.items()
        for want, have in zip(rates, got.get(leaves, unknown), strict=True)
    ]


def misfound(true: Links, got: Links) -> tuple[int, int]:
    """Return how many groups were not found, and how many found are none."""
    return len(true.keys() - got.keys()), len(got.keys() - true.keys())


def card_errors(planted: Fabric, found: Fabric, sustained: float) -> list[float]:
    """Return relative errors of the cards whose rate was told."""

    def cards(fabric: Fabric) -> dict[str, tuple[float, float]]:
        members = [h for group in fabric.groups() for n in group for h in n.children]
        return {h.name: _rates(h) for h in members if not h.children}

    got = cards(found)
    return [
        abs(have / want / sustained - 1)
        for name, rates in cards(planted).items()
        for want, have in zip(rates, got[name], strict=True)
        if math.isfinite(have)
    ]


@dataclass(frozen=True)
class Found:
    """How well a fabric was found; errors are shares, seconds those of inference."""

    rands: list[float]
    missed: int
    extra: int
    groups: list[float]
    cards: list[float]
    told: int
    holdout: float
    seconds: float
    memory: float


def run(case: Case, seed: int) -> Found:
    """Plant, probe, infer, compare."""
    planted = plant(case, np.random.default_rng(seed))
    snapshot = probed(planted, case, seed)
    start = time.perf_counter()
    found = infer_fabric(snapshot)
    seconds = time.perf_counter() - start
    alive = [name for name in snapshot.names if name not in snapshot.failed]
    rands = [
        rand_index(labels(planted, alive, level), labels(found, alive, level))
        for level in (-1, 0)[: case.levels - 1]
    ]
    kept = planted.restrict(alive), found.restrict(alive)
    slowed = 1 + np.random.default_rng(0).exponential(case.noise, 100_000)
    sustained = float(np.mean(1 / slowed))
    true, got = map(group_links, kept)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return Found(
        rands,
        *misfound(true, got),
        groups=link_errors(true, got, sustained),
        cards=card_errors(*kept, sustained),
        told=sum(np.isfinite(got[key]).sum() for key in true.keys() & got.keys()),
        holdout=found.holdout_error,
        seconds=seconds,
        memory=memory,
    )


def row(case: Case, found: Found) -> str:
    """Return a line of the table."""
    rands = [*found.rands, math.nan]
    return (
        f"{case.hosts:6} {case.levels:6} {case.oversubscription:4.0f}:1 "
        f"{case.noise:6.0%} {case.loss:5.0%} {case.dead:5.0%}  "
        f"{rands[0]:6.3f} {rands[1]:6.3f} {found.missed:6} {found.extra:5}  "
        f"{_spread(found.groups)} {found.told:4}/{len(found.groups):<4} "
        f"{_spread(found.cards)}  "
        f"{found.holdout:8.1%} {found.seconds:7.2f} {found.memory:5.2f}"
    )


def figures(found: list[tuple[Case, Found]]) -> Iterator[Figure]:
    """Yield what is said of all cases together."""
    every = [one for _, one in found]
    rands = [rand for one in every for rand in one.rands]
    yield Figure("planted: least adjusted Rand index", min(rands))
    exact = sum(one.missed == one.extra == 0 for one in every)
    yield Figure("planted: all groups exact", exact, unit=f"of {len(every)}")
    yield Figure("planted: groups missed", sum(one.missed for one in every))
    yield Figure("planted: groups too many", sum(one.extra for one in every))
    middles = sorted(100 * float(np.median(one.groups)) for one in every)
    kind = f"range of {len(middles)} fabrics"
    name = "planted: error of an uplink, median of a fabric"
    ends = middles[0], middles[-1]
    yield Figure(name, float(np.median(middles)), *ends, unit="%", interval=kind)
    errors = np.array([error for one in every for error in one.groups])
    yield Figure("planted: error of an uplink, worst", 100 * errors.max(), unit="%")
    close = 100 * np.quantile(errors, 0.99)
    yield Figure("planted: error of an uplink, 99 of 100", close, unit="%")
    largest = max(case.hosts for case, _ in found)
    last = [one for case, one in found if case.hosts == largest]
    name = f"planted: seconds of inference, {largest} hosts"
    yield median_of(name, [one.seconds for one in last], "s")
    name = f"planted: memory of inference, {largest} hosts"
    yield Figure(name, max(one.memory for one in last), unit="GiB")


def _spread(errors: list[float]) -> str:
    if not errors:
        return "    -     -"
    return f"{np.median(errors):5.0%} {max(errors):5.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64,256,1024")
    parser.add_argument("--seed", type=int, default=0)
    json_option(parser)
    options = parser.parse_args()
    print(
        f"{'hosts':>6} {'levels':>6} {'over':>6} {'noise':>6} {'loss':>5} {'dead':>5}  "
        f"{'racks':>6} {'pods':>6} {'missed':>6} {'extra':>5}  "
        f"{'uplinks':>11} {'known':>9} {'NICs':>11}  "
        f"{'held out':>8} {'seconds':>7} {'GiB':>5}"
    )
    found = []
    for hosts in map(int, options.hosts.split(",")):
        for case in CASES:
            here = replace(case, hosts=hosts)
            found.append((here, run(here, options.seed)))
            print(row(*found[-1]), flush=True)
    write_figures(figures(found), options.json)


if __name__ == "__main__":
    main()
