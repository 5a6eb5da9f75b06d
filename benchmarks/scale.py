"""A probe of a thousand agents, simulated: it keeps its budgets of time and bytes.

Each agent's part is worked out by the agent's own code from the plan's few
numbers, as on a real host, and run in simulated time against a planted fabric:
uneven racks in pods, links half as wide as what is below them, which flows
share max-min fairly. Prints a row per size and mode:

    rounds     of latency, under load, and those that filled uplinks
    seconds    the whole probe without the agents' start, and what its plan allows
    moved, all TB that crossed the network and what the plan allows
    host, link most GB that one card and one group's link carried, one way
    twice      hosts that two meetings claimed at the same time
    racks, pods  adjusted Rand index of the groups found
    uplinks    largest relative error of a group link's rate; 100 % if it was missed

and ends in 1 if a host was claimed twice or a budget was not kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from benchmarks.planted import NIC as SLOW_NIC
from benchmarks.planted import (
    Case,
    group_links,
    joined,
    labels,
    link_errors,
    plant,
    rand_index,
)
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.arrays import Floats, Ints
from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.plan import MODES, RTT_PACKET, ProbePlan, Round, plan_probes
from cloudcoll.probe.runner import meetings_of
from cloudcoll.probe.uplink_rounds import Escalation, find_uplinks
from probes import agent

NIC = 25e9 / 8
NOISE = 0.10
SAMPLES = 20
KINDS = agent.KINDS
BUDGET_S = {"quick": 4.0, "standard": 90.0, "full": 600.0}


@dataclass(frozen=True)
class Meetings:
    """What all agents together do; one row for each flow or ping.

    Attributes
    ----------
    number, src, dst : ndarray of int64, shape (meetings,)
        Round, who asks or sends, and the other.
    load : ndarray of bool, shape (meetings,)
    twice : int
        Ends of a meeting that began before the same host's last had ended, or
        that the other end knew nothing of.
    end_s : float
        When the last of them ends.
    """

    number: Ints
    src: Ints
    dst: Ints
    load: npt.NDArray[np.bool_]
    twice: int
    end_s: float


def faster(node: Node, factor: float) -> Node:
    """Return the node with all link rates below it, and its own, multiplied."""
    return replace(
        node,
        children=tuple(faster(child, factor) for child in node.children),
        uplink_bytes_per_s=node.uplink_bytes_per_s * factor,
        downlink_bytes_per_s=node.downlink_bytes_per_s * factor,
    )


def meetings(plan: ProbePlan) -> Meetings:
    """Let each agent work out its slots; see that these fit together."""
    columns: list[Ints] = []
    twice, end_s = 0, 0.0
    for position in range(plan.hosts):
        slots = list(agent.slots(_task(plan, position)))
        twice += sum(b.start < a.end for a, b in pairwise(slots))
        end_s = max(end_s, slots[-1].end)
        rows = [
            (s.number, position, s.peer, s.asks, KINDS.index(s.kind)) for s in slots
        ]
        columns.append(np.array(rows, dtype=np.int64))
    number, me, peer, asks, kind = np.concatenate(columns).T
    first, other = asks == 1, asks == 0
    one, two = (np.stack((number, me, peer)), np.stack((number, peer, me)))
    ends = [np.lexsort(one[:, first]), np.lexsort(two[:, other])]
    matched = (one[:, first][:, ends[0]] == two[:, other][:, ends[1]]).all(axis=0)
    twice += int((~matched).sum())
    # Each meeting once, by who asks; what sends both ways, both ways.
    both = kind == KINDS.index("duplex")
    order = np.flatnonzero(first | both)
    order = order[np.argsort(number[order], kind="stable")]
    load = kind[order] != KINDS.index("rtt")
    return Meetings(number[order], me[order], peer[order], load, twice, end_s)


def _task(plan: ProbePlan, position: int) -> agent.Task:
    frame = {
        **plan.parameters(),
        "passes": [list(item) for item in plan.passes],
        "position": position,
        "key": "00" * 16,
        "address": "",
        "life_s": plan.most_seconds + 60.0,
        "force": False,
    }
    return agent.read_task(frame)


class Network:
    """A planted fabric, on which flows run in simulated time.

    Attributes
    ----------
    carried : ndarray of float64, shape (2 links,)
        Bytes that went up each link, then those that came down.
    """

    def __init__(
        self, fabric: Fabric, plan: ProbePlan, generator: np.random.Generator
    ) -> None:
        names = sorted(fabric.hosts)
        self.links = fabric.links
        self._column = np.array([fabric.position(name) for name in names])
        self._plan = plan
        self._generator = generator
        self.carried = np.zeros(2 * len(self.links.up))
        self.bytes = 0.0

    def trips(self, met: Meetings) -> RttSamples:
        """Return round trips of the pairs that met for them."""
        chosen = ~met.load
        pairs, count = np.unique(
            np.stack((met.src[chosen], met.dst[chosen])), axis=1, return_counts=True
        )
        src, dst = pairs
        packets = self._plan.samples + self._plan.warm_up * self._plan.ports
        self._carry(src, dst, count * packets * RTT_PACKET)
        self._carry(dst, src, count * packets * RTT_PACKET)
        rtt = self.links.pair_rtt()[self._column[src], self._column[dst]]
        floor = np.repeat(rtt, SAMPLES)
        noise = self._generator.exponential(NOISE, len(floor))
        ends = np.arange(1, len(src) + 1) * SAMPLES
        sent = np.full(len(src), SAMPLES)
        return RttSamples(src, dst, sent, ends, floor * (1 + noise))

    def flows(self, number: Ints, src: Ints, dst: Ints) -> LoadedFlows:
        """Return what flows carry, each round a slot long or to the byte cap."""
        plan = self._plan
        rate = np.empty(len(number))
        for part in np.array_split(np.unique(number), len(number) // 20_000 + 1):
            mine = np.isin(number, part)
            ends = self._column[src[mine]], self._column[dst[mine]]
            rate[mine] = fair_rounds(self.links, number[mine], *ends)[0]
        # A flow at its cap ends early; that the others then speed up is left out.
        total = np.minimum(rate * plan.load_s, plan.flow_bytes)
        self._carry(src, dst, total)
        windows = (total / rate / plan.window_s + 1e-6).astype(np.int64)
        noise = 1 + self._generator.exponential(NOISE, int(windows.sum()))
        seen = np.repeat(rate * plan.window_s, windows) / noise
        ends = np.cumsum(windows)
        window_bytes = seen.astype(np.int64)
        return LoadedFlows(number, src, dst, ends, window_bytes, plan.window_s, 0)

    def _carry(self, src: Ints, dst: Ints, size: Floats | Ints) -> None:
        self.bytes += float(size.sum())
        count = len(self.links.up)
        out = self.links.member[:, self._column[src]]
        into = self.links.member[:, self._column[dst]]
        for up, down in zip(out, into, strict=True):
            crosses, weight = up != down, np.asarray(size, dtype=np.float64)
            for links in (up[crosses], count + down[crosses]):
                self.carried += np.bincount(links, weight[crosses], 2 * count)


def fill_uplinks(
    fabric: Fabric, plan: ProbePlan, network: Network
) -> tuple[list[LoadedFlows], int, float]:
    """Run the second phase; return its flows, double claims and its seconds."""
    names = sorted(fabric.hosts)
    escalation = Escalation(find_uplinks(fabric, names), plan, plan.count)
    tasks = [_task(plan, position) for position in range(plan.hosts)]
    found: list[LoadedFlows] = []
    twice, seconds = 0, 0.0
    while rounds := escalation.turn():
        twice += sum(_claims(rounds, task) for task in tasks)
        rows = np.array([(r.number, *pair) for r in rounds for pair in r.pairs])
        found.append(network.flows(*rows.T))
        escalation.learn(found[-1])
        seconds += plan.lead_s + rounds[-1].start + plan.length("load")
    return found, twice, seconds


def _claims(rounds: Iterable[Round], task: agent.Task) -> int:
    """Return 1 if the agent would refuse its part: two meetings in a slot."""
    part = [list(meeting) for meeting in meetings_of(rounds, task.position)]
    try:
        agent.read_rounds({"kind": "load", "first": 0, "meetings": part}, task)
    except ValueError:
        return 1
    return 0


def run(hosts: int, mode: str, seed: int) -> tuple[str, bool, float]:
    """Simulate one probe; return its row, whether it kept its budgets, seconds."""
    generator = np.random.default_rng(seed)
    case = Case(hosts, levels=3, oversubscription=2.0, noise=NOISE, loss=0.0, dead=0.0)
    slow = plant(case, generator)
    planted = replace(slow, root=faster(slow.root, NIC / SLOW_NIC))
    names = tuple(Host(name) for name in sorted(planted.hosts))
    plan = plan_probes(names, mode=mode, seed=seed)
    network = Network(planted, plan, generator)
    met = meetings(plan)
    chosen = met.load
    flows = [network.flows(met.number[chosen], met.src[chosen], met.dst[chosen])]
    snapshot = NetworkSnapshot(names, rtt=network.trips(met), flows=flows[0])
    found = infer_fabric(snapshot)
    twice, seconds = met.twice, plan.lead_s + met.end_s
    if plan.uplink_s:
        more, claims, spent = fill_uplinks(found, plan, network)
        twice, seconds, flows = twice + claims, seconds + spent, flows + more
        found = infer_fabric(replace(snapshot, flows=joined(flows)))
    filled = sum(len(np.unique(part.round)) for part in flows[1:])
    kept = twice == 0 and network.bytes <= plan.bytes
    kept = kept and seconds <= plan.most_seconds <= BUDGET_S[mode]
    rounds = [len(np.unique(met.number[part])) for part in (~chosen, chosen)]
    columns = (
        f"{hosts:5} {mode:8} {rounds[0]:5} {rounds[1]:4} {filled:4}",
        f"{seconds:6.1f} {plan.most_seconds:6.1f}",
        f"{network.bytes / 1e12:8.3f} {plan.bytes / 1e12:8.3f}",
        f"{_most(planted, network)}  {twice:5}",
        _quality(planted, found),
    )
    return "  ".join(columns), kept, seconds


def _most(fabric: Fabric, network: Network) -> str:
    """Return the most GB that a card and that a group's link carried."""
    cards = network.links.member[-1]
    carried = network.carried.reshape(2, -1).max(axis=0) / 1e9
    groups = np.setdiff1d(np.arange(len(carried)), cards)
    return f"{carried[cards].max():8.1f} {carried[groups].max():8.1f}"


def _quality(planted: Fabric, found: Fabric) -> str:
    names = sorted(planted.hosts)
    rands = [
        rand_index(labels(planted, names, level), labels(found, names, level))
        for level in (-1, 0)
    ]
    slowed = 1 + np.random.default_rng(0).exponential(NOISE, 100_000)
    true, got = group_links(planted), group_links(found)
    worst = max(link_errors(true, got, float(np.mean(1 / slowed))))
    return f"{rands[0]:6.3f} {rands[1]:6.3f}  {worst:7.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", default="64,256,1000")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seed", type=int, default=0)
    json_option(parser)
    options = parser.parse_args()
    print(
        "hosts mode       rtt load fill  seconds  most  TB moved   at most  "
        "GB: host     link  twice   racks   pods  uplinks"
    )
    kept = True
    for hosts in map(int, options.hosts.split(",")):
        for mode in options.modes.split(","):
            row, within, seconds = run(hosts, mode, options.seed)
            print(row, flush=True)
            name = f"{hosts} simulated agents: {mode} probe"
            write_figures([Figure(name, seconds, unit="s")], options.json)
            kept = kept and within
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
