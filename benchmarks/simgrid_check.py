"""Let SimGrid judge the orders: VMs on half of the slots of a cloud of three levels.

Racks of 16 slots at 4:1 in pods of 4 racks at 2:1, or as `--ratios` says. The VMs
have every other slot of each rack (regular), or 3 to 13 of a rack (ragged); names are
dealt at random. Leaves come from round trips with 10 % noise, the search has the true
fabric, or what was inferred from a simulated probe (`--seen probe`). SimGrid
(Casanova et al. 2014) replays the messages, each as soon as its ranks are done with
those before; pipelined trees go in 32 segments. The network model is CM02 without its
traffic of acknowledgements. ``leaves / bound`` is how much can be gained at most over
SciPy's order of leaves, by the cost model.

Needs `apt-get install libsimgrid-dev g++`; CPLUS_INCLUDE_PATH, LIBRARY_PATH and
LD_LIBRARY_PATH may say where SimGrid is instead.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
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

from cloudcoll.contention import SEGMENTS, contended_seconds
from cloudcoll.cost import CostModel, Ints
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.links import Links
from cloudcoll.fabric.synth import observe
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.schedule import Schedule, Step, build_schedule
from cloudcoll.snapshot import NetworkSnapshot
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
PINNED = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0")
REPLAY_S = 300.0


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


class Message(NamedTuple):
    """One of a replay: its hosts, bytes, and the earlier ones that it waits for."""

    src: int
    dst: int
    size: float
    waits: list[int]


def in_order(steps: list[Step], host: Ints) -> Iterator[Message]:
    """Yield messages that begin when both ranks are done with all before."""
    last: dict[int, list[int]] = {}
    number = 0
    for step in steps:
        now: dict[int, list[int]] = {}
        ends = zip(step.src.tolist(), step.dst.tolist(), strict=True)
        for (src, dst), size in zip(ends, step.size.tolist(), strict=True):
            waits = {*last.get(src, []), *last.get(dst, [])}
            yield Message(int(host[src]), int(host[dst]), size, sorted(waits))
            now.setdefault(src, []).append(number)
            now.setdefault(dst, []).append(number)
            number += 1
        last |= now


def pipelined(steps: list[Step], host: Ints) -> Iterator[Message]:
    """Yield messages in segments: each waits for what its sender needs of it.

    And for the segment before on the same way.
    """
    before: dict[tuple[int, int, int], int] = {}
    number = 0
    for _ in range(SEGMENTS):
        come: dict[int, list[int]] = {}
        for place, step in enumerate(steps):
            arrived: dict[int, list[int]] = {}
            ends = zip(step.src.tolist(), step.dst.tolist(), strict=True)
            for (src, dst), size in zip(ends, step.size.tolist(), strict=True):
                way = (place, src, dst)
                waits = {*come.get(src, []), *([before[way]] if way in before else [])}
                part = size / SEGMENTS
                yield Message(int(host[src]), int(host[dst]), part, sorted(waits))
                before[way] = number
                arrived.setdefault(dst, []).append(number)
                number += 1
            for rank, numbers in arrived.items():
                come.setdefault(rank, []).extend(numbers)


def replayed(program: Path, links: Links, schedule: Schedule, order: Ints) -> float:
    """Return SimGrid's seconds of a schedule's messages."""
    steps = [step for step in schedule.steps for _ in range(step.repeat)]
    piped = any(step.overlaps for step in schedule.steps)
    messages = pipelined if piped else in_order
    count = len(links.up)
    fields: list[str] = [str(2 * count)]
    for rates in (links.up, links.down):
        known = np.where(np.isfinite(rates), rates, 1e15)
        pairs = zip(known.tolist(), links.latency.tolist(), strict=True)
        fields += [f"{rate!r} {latency!r}" for rate, latency in pairs]
    lines = []
    for message in messages(steps, order):
        out, into = links.member[:, message.src], links.member[:, message.dst]
        path = [*out[out != into].tolist(), *(into[out != into] + count).tolist()]
        row = [len(path), *path, len(message.waits), *message.waits]
        ends = f"{message.src} {message.dst} {message.size!r}"
        lines.append(f"{ends} {' '.join(map(str, row))}")
    done = subprocess.run(
        [program, *PINNED, "--log=root.thres:warning"],
        input="\n".join([*fields, str(len(lines)), *lines]),
        capture_output=True,
        text=True,
        timeout=REPLAY_S,
        check=True,
    )
    return float(done.stdout)


def orders_of(
    snapshot: NetworkSnapshot, fabric: Fabric, schedule: Schedule, seed: int
) -> dict[str, Ints]:
    """Return orders by name, as positions in the true fabric."""
    hosts = len(fabric.hosts)
    trips = np.zeros((hosts, hosts))
    rtt = snapshot.rtt
    trips[rtt.src, rtt.dst] = np.median(rtt.seconds.reshape(-1, SAMPLES), axis=1)
    leaves = leaves_list(linkage(squareform(trips + trips.T), "average")).tolist()
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
    known = infer_fabric(snapshot) if options.seen == "probe" else fabric
    snapshot = replace(snapshot, fabric=known)
    cases = {}
    for name in options.schedules.split(","):
        whole = build_schedule(*SCHEDULES[name], hosts, SIZE)
        # SimGrid's messages do not take turns.
        whole = replace(whole, turns=np.inf)
        orders = orders_of(snapshot, fabric, whole, instance)
        steps = [replace(s, repeat=min(s.repeat, options.repeats)) for s in whole.steps]
        part = replace(whole, steps=tuple(steps))
        model = CostModel(part, fabric, [1] * hosts)
        cases[name] = Case(
            [replayed(program, fabric.links(), part, o) for o in orders.values()],
            [contended_seconds(model, order) for order in orders.values()],
            [model.seconds(order) for order in orders.values()],
            lower_bound(model) or 0.0,
        )
    return cases


def compiled(folder: Path) -> Path:
    """Build the program that replays.

    Raises
    ------
    SystemExit
        There is no compiler, or no SimGrid.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise SystemExit("no g++: apt-get install g++ libsimgrid-dev")
    source = Path(__file__).with_name("simgrid_replay.cpp")
    program = folder / "replay"
    command: list[str | Path] = [
        compiler,
        "-std=c++17",
        "-O2",
        source,
        "-lsimgrid",
        "-o",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit("SimGrid is missing: apt-get install libsimgrid-dev")
    return program


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
    parser.add_argument("--seen", choices=("fabric", "probe"), default="fabric")
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


if __name__ == "__main__":
    main()
