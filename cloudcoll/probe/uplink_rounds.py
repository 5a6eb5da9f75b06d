"""Rounds that fill the uplinks of groups, once these are known.

A tournament loads all links at once, so that the slowest hide the others. Uplinks are
filled on purpose: 1, 2, 4, ... of a group's members send out at the same time, each to
a host of its own elsewhere, until they get no more through together; then the same
inward. Nothing here touches a network.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.extra_rounds import REPEATS, Pair
from cloudcoll.probe.plan import ProbePlan, Round

GROWTH = 1.10
"""A link is full when twice the senders get less than this much more through."""
SHARE = 3
"""One in so many of a level's uplinks is loaded at a time: what crosses them
then fills a third of the other groups' links, which so hold nothing back."""
LARGE = 4
"""A large group begins with one in so many of its hosts: fewer rounds, and a
link that they overfill already is seen to be full in the round after."""

Pairs = tuple[Pair, ...]


@dataclass(frozen=True)
class Uplink:
    """One direction of a group's link, with who can fill it.

    Attributes
    ----------
    members : tuple of int
        Positions of the group's hosts in the order in which they join: spread
        over the group's own parts, whose links must not be the narrow ones.
    others : tuple of int
        Positions of the hosts elsewhere, spread over all other groups.
    outward : bool
        Whether the members send; else they receive.
    depth : int
        Links between the group and the core, its own included.
    at_once : int
        Uplinks of this depth that may be loaded at the same time.
    """

    members: tuple[int, ...]
    others: tuple[int, ...]
    outward: bool
    depth: int
    at_once: int

    @property
    def most(self) -> int:
        """Flows that can cross the link with each host in one of them."""
        return min(len(self.members), len(self.others))


def find_uplinks(fabric: Fabric, names: Sequence[str]) -> list[Uplink]:
    """Return both directions of each group's link, those near the core first.

    At any number of levels; hosts are positions in `names`. Links that two flows cannot
    cross at the same time are left out.
    """
    position = {name: i for i, name in enumerate(names)}
    found: list[tuple[int, int, list[int], list[list[int]]]] = []

    def walk(node: Node, depth: int, elsewhere: list[list[int]]) -> None:
        spread = [_spread(child, position) for child in node.children]
        for place, child in enumerate(node.children):
            if child.children:
                branches = [*spread[:place], *spread[place + 1 :], *elsewhere]
                found.append((depth, place, spread[place], branches))
                walk(child, depth + 1, branches)

    walk(fabric.root, 1, [])
    # Neighbours in the list are loaded together: they come from other parents.
    found.sort(key=lambda group: group[:2])
    depths = [depth for depth, *_ in found]
    uplinks = []
    for turn, (depth, _, members, branches) in enumerate(found):
        first = turn % max(1, len(branches))
        # Each begins with another branch, else all would meet in the first.
        others = _interleave(branches[first:] + branches[:first])
        at_once = max(1, depths.count(depth) // SHARE)
        for outward in (True, False):
            uplink = Uplink(tuple(members), tuple(others), outward, depth, at_once)
            uplinks.append(uplink)
    uplinks.sort(key=lambda link: (link.depth, not link.outward))
    return [uplink for uplink in uplinks if uplink.most > 1]


def next_load(most: int, carried: Sequence[float]) -> int:
    """Return how many hosts send in an uplink's next round, 0 if it needs none.

    At most `most` can at the same time. `carried` has the bytes/s of the rounds so far,
    each with twice the senders of the one before; NaN where a flow gave no result.
    """
    first = max(1, most // LARGE)
    if not carried:
        return min(first, most)
    senders = min(first << (len(carried) - 1), most)
    before = carried[-2] if len(carried) > 1 else 0.0
    grows = carried[-1] > GROWTH * before  # never of NaN
    return min(2 * senders, most) if grows and senders < most else 0


def arrange(
    asked: Iterable[tuple[Uplink, int]], without: Collection[int] = ()
) -> list[list[tuple[Uplink, Pairs]]]:
    """Return loads, links with flows to cross each, as rounds without a host twice.

    A load that there are too few hosts for `without` some is left out.
    """
    rounds: list[list[tuple[Uplink, Pairs]]] = []
    waiting = list(asked)
    while waiting:
        first, _ = waiting[0]
        kind = (first.depth, first.outward)
        alike = [a for a in waiting if (a[0].depth, a[0].outward) == kind]
        # What fits in no round, not even alone, is for nobody to wait for.
        loads = _together(alike[: first.at_once], without)
        loads = loads or _together(alike[:1], without)
        rounds += [loads] if loads else []
        gone = {uplink for uplink, _ in loads} or {first}
        waiting = [a for a in waiting if a[0] not in gone]
    return rounds


def _together(
    asked: Sequence[tuple[Uplink, int]], without: Collection[int]
) -> list[tuple[Uplink, Pairs]]:
    """Return the loads that fit into one round, with their flows."""
    ends = [
        [host for host in uplink.members if host not in without][:count]
        for uplink, count in asked
    ]
    # A host that is to send from its own group is nobody else's other end.
    busy = set(without).union(*ends)
    loads = []
    for (uplink, count), inside in zip(asked, ends, strict=True):
        outside = [host for host in uplink.others if host not in busy][:count]
        if min(len(inside), len(outside)) == count:
            busy.update(outside)
            flow = (inside, outside) if uplink.outward else (outside, inside)
            loads.append((uplink, tuple(zip(*flow, strict=True))))
    return loads


class Escalation:
    """The second phase of a probe, turn by turn, within the plan's budget.

    The plan's `uplink_s` and `uplink_flows` are never exceeded; rounds are numbered
    from `first` on.

    Attributes
    ----------
    rounds : int
        Rounds given out so far.
    carried : dict of Uplink to list of float
        Bytes/s that crossed each link, by round; see `next_load`.
    """

    def __init__(self, uplinks: Sequence[Uplink], plan: ProbePlan, first: int) -> None:
        self.rounds = 0
        self.first = first
        self.carried: dict[Uplink, list[float]] = {link: [] for link in uplinks}
        self._plan = plan
        self._repeated = dict.fromkeys(uplinks, 0)
        self._left = plan.uplink_s
        self._flows = 0
        self._asked: list[tuple[int, Uplink, Pairs]] = []

    def turn(self, without: Collection[int] = ()) -> list[Round]:
        """Return the next rounds, with `start` in seconds after the turn's own.

        Every link that is not full yet is loaded once, `without` the hosts that failed.
        Nothing is left to do, or to spend, when the list is empty.
        """
        asked = [(link, next_load(link.most, c)) for link, c in self.carried.items()]
        step = self._plan.length("load")
        self._asked = []
        self._left -= self._plan.lead_s
        turn: list[Round] = []
        for loads in arrange([load for load in asked if load[1]], without):
            pairs = tuple(pair for _, some in loads for pair in some)
            if step > self._left + 1e-9:
                break
            if self._flows + len(pairs) > self._plan.uplink_flows:
                break
            number = self.first + self.rounds
            turn.append(Round(number, "load", len(turn) * step, pairs))
            self._asked += [(number, link, some) for link, some in loads]
            self.rounds += 1
            self._left -= step
            self._flows += len(pairs)
        return turn

    def learn(self, flows: LoadedFlows, starved: Collection[int] = ()) -> None:
        """Take what the flows of the last turn's rounds carried.

        A flow that `flows` does not have makes its link's figure NaN: the link
        is not loaded again. What was loaded in a round among `starved`, in
        which a host had too little CPU, is asked for again, as often as
        `REPEATS` says.
        """
        meetings = zip(flows.round, flows.src, flows.dst, strict=True)
        rate = dict(zip(meetings, flows.bytes_per_s, strict=True))
        for number, link, pairs in self._asked:
            if number in starved and self._repeated[link] < REPEATS:
                self._repeated[link] += 1
                continue
            carried = [rate.get((number, *pair), math.nan) for pair in pairs]
            self.carried[link].append(float(sum(carried)))

    @property
    def complete(self) -> bool:
        """Whether each link was loaded until it was full or hosts ran out."""
        return not any(next_load(link.most, c) for link, c in self.carried.items())


def _spread(node: Node, position: dict[str, int]) -> list[int]:
    """Return the hosts of a node, neighbours from different parts of it."""
    if not node.children:
        return [position[node.name]]
    return _interleave([_spread(child, position) for child in node.children])


def _interleave(parts: Sequence[Sequence[int]]) -> list[int]:
    """Return the first of each part, then the second of each, and so on."""
    return [item for row in zip_longest(*parts) for item in row if item is not None]
