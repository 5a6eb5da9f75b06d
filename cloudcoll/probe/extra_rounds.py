"""Rounds that a probe adds to its tournament, once it has seen the first results.

In a tournament nearly all flows cross the full links of large groups. Two hosts of a
small one then send so little that their own link is never full: nobody can say whether
they have one. So both send at the same time, to hosts in different groups, and
nobody else does.

Meetings are repeated where a host had no CPU left to measure with: a virtual machine
whose CPUs the hypervisor takes away, or whose other programs do, reports its own
delays for the network's. Nothing here touches a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.plan import ProbePlan, Round


def repeat_trips(
    plan: ProbePlan, pairs: Iterable[Pair], first: int, seconds: float
) -> list[Round]:
    """Return latency rounds for these pairs, as many as there is time for.

    Parameters
    ----------
    plan : ProbePlan
        Its `concurrency` is kept.
    pairs : iterable of (int, int)
        Positions of the host that asks and of the other.
    first : int
        Number of the first round.
    seconds : float
        What the rounds may take together.
    """
    step = plan.length("rtt")
    rounds: list[list[Pair]] = []
    for pair in pairs:
        room = (r for r in rounds if len(r) < plan.concurrency and _apart(r, pair))
        if found := next(room, None):
            found.append(pair)
        elif (len(rounds) + 1) * step <= seconds:
            rounds.append([pair])
    return [
        Round(first + turn, "rtt", turn * step, tuple(met))
        for turn, met in enumerate(rounds)
    ]


def repeat_loads(
    plan: ProbePlan,
    loads: Iterable[Round],
    without: Collection[int],
    first: int,
    seconds: float,
) -> list[Round]:
    """Return rounds under load again, each as a whole: its flows share links.

    Parameters
    ----------
    plan : ProbePlan
    loads : iterable of Round
        The first ones of these, as many as there is time for.
    without : collection of int
        Positions of the hosts that failed.
    first, seconds
        As of `repeat_trips`.
    """
    step = plan.length("load")
    fit = int(seconds / step + 1e-9)
    return [
        Round(first + turn, load.kind, turn * step, _alive(load.pairs, without))
        for turn, load in enumerate(list(loads)[:fit])
    ]


def _apart(met: Iterable[Pair], pair: Pair) -> bool:
    return all(set(pair).isdisjoint(other) for other in met)


def _alive(pairs: Iterable[Pair], without: Collection[int]) -> tuple[Pair, ...]:
    return tuple(pair for pair in pairs if not set(pair) & set(without))


WIDE = 1.5
"""Times what the faster of two cards carries that both together got through, from
which a link that they share, if any, holds neither back by more than a quarter."""

REPEATS = 2
"""Times that what a starved host measured is repeated, at most, and rounds in which
two hosts send alone: any flow may stall."""

MOST = 15
"""Pairs that are tried, at most: those of six hosts."""

RESERVED_S = 2.0
"""Seconds of the time to be sure that are kept for this."""

Pair = tuple[int, int]


def untested(flows: LoadedFlows, fabric: Fabric, names: Sequence[str]) -> list[Pair]:
    """Return which two hosts may share a link that nothing has filled yet.

    Parameters
    ----------
    flows : LoadedFlows
    fabric : Fabric
        What was found in them.
    names : sequence of str
        Host names; a host's place here is its position.

    Returns
    -------
    list of (int, int)
        Positions of hosts that stand in no group, if there are groups at all; of too
        many pairs none.
    """
    place = {name: i for i, name in enumerate(names)}
    lone = sorted(place[n.name] for n in fabric.root.children if not n.children)
    if len(fabric.root.children) < 3 or len(lone) == len(names):
        return []
    pairs = list(itertools.combinations(lone, 2))
    if len(pairs) > MOST:
        return []
    rate = np.nan_to_num(flows.bytes_per_s)
    fastest = np.zeros(len(names))
    for end in (flows.src, flows.dst):
        np.maximum.at(fastest, end, rate)
    rounds = int(flows.round.max(initial=-1)) + 1
    sent, got = np.zeros((2, rounds, len(names)))
    # What two of them may have sent each other crosses no link that they share.
    across = ~(np.isin(flows.src, lone) & np.isin(flows.dst, lone))
    np.add.at(sent, (flows.round[across], flows.src[across]), rate[across])
    np.add.at(got, (flows.round[across], flows.dst[across]), rate[across])

    def through(one: int, other: int) -> float:
        """Return what both got through together, of the worse direction."""
        return float(min((way[:, one] + way[:, other]).max() for way in (sent, got)))

    return [
        (one, other)
        for one, other in pairs
        if through(one, other) < WIDE * max(fastest[one], fastest[other])
    ]


def lone_rounds(
    plan: ProbePlan,
    pairs: Sequence[Pair],
    fabric: Fabric,
    names: Sequence[str],
    first: int,
    without: Collection[int] = (),
) -> list[Round]:
    """Return rounds in which each of these pairs sends, both ways, to others.

    Parameters
    ----------
    plan : ProbePlan
    pairs : sequence of (int, int)
        See `untested`.
    fabric : Fabric
    names : sequence of str
    first : int
        Number of the first round.
    without : collection of int
        Positions of the hosts that failed.
    """
    place = {name: i for i, name in enumerate(names)}
    alive = [pair for pair in pairs if not {*pair} & {*without}]
    tested = set().union(*alive)
    # One host of each group, so that no group's link is full: another every time.
    groups = [
        [h for h in _members(node, place) if h not in without and h not in tested]
        for node in fabric.root.children
    ]
    found = _partners(alive * REPEATS, [group for group in groups if group])
    step = plan.length("duplex")
    return [
        Round(first + turn, "duplex", turn * step, met + tuple((b, a) for a, b in met))
        for turn, met in enumerate(found)
    ]


def _members(node: Node, place: dict[str, int]) -> list[int]:
    return [place[name] for name in node.leaves()]


def _partners(
    pairs: Sequence[Pair], groups: Sequence[Sequence[int]]
) -> Iterator[tuple[Pair, ...]]:
    """Yield flows from disjoint pairs to hosts of groups, each group once a round."""
    turn, waiting = 0, list(pairs)
    while waiting and len(groups) > 1:
        busy: set[int] = set()
        free, flows, left = list(groups), [], []
        for pair in waiting:
            if {*pair} & busy or len(free) < 2:
                left.append(pair)
                continue
            busy |= {*pair}
            for host in pair:
                group = free.pop(turn % len(free))
                flows.append((host, group[turn % len(group)]))
        yield tuple(flows)
        turn, waiting = turn + 1, left
