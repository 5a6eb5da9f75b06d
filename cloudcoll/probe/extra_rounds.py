"""Rounds that a probe adds to its tournament, once it has seen the first results.

In a tournament nearly all flows cross the full links of large groups. Two hosts of a
small one then send so little that their own link is never full: nobody can say whether
they have one. So both send at the same time, to hosts in different groups, and
nobody else does.

Who is in which group is then a question between a few answers. The rounds that decide
it soonest are those in which they have flows run differently fast.

Meetings are repeated where a host had no CPU left to measure with: a virtual machine
whose CPUs the hypervisor takes away, or whose other programs do, reports its own
delays for the network's.

The tournament loads all links at once, so that the slowest hide the others. Uplinks
are then filled on purpose: 1, 2, 4, ... of a group's members send out at the same
time, each to a host of its own elsewhere, until they get no more through together;
then the same inward. Nothing here touches a network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.plan import ProbePlan, Round


def repeat_trips(
    plan: ProbePlan, pairs: Iterable[Pair], first: int, seconds: float
) -> list[Round]:
    """Return latency rounds for these pairs, as many as there is time for.

    A pair is the positions of the host that asks and of the other. The rounds are
    numbered from `first` on; together they take no more than `seconds`.
    """
    step = plan.length("rtt")
    rounds: list[list[Pair]] = []
    for pair in pairs:
        apart = (met for met in rounds if not {*pair} & {*itertools.chain(*met)})
        room = (met for met in apart if len(met) < plan.concurrency)
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

    The first ones of `loads`, as many as there is time for, without the hosts that
    failed; `first` and `seconds` are as of `repeat_trips`.
    """
    step = plan.length("load")
    fit = int(seconds / step + 1e-9)
    return [
        Round(
            first + turn,
            load.kind,
            turn * step,
            tuple(pair for pair in load.pairs if not {*pair} & {*without}),
        )
        for turn, load in enumerate(list(loads)[:fit])
    ]


WIDE = 1.5
"""Times what the faster of two cards carries that both together got through, from
which a link that they share, if any, holds neither back by more than a quarter."""

REPEATS = 2
"""Times that what a starved host measured is repeated, at most, and rounds in which
two hosts send alone: any flow may stall."""

TRIED = 256
"""Rounds of which those are taken that tell most."""

TOLD_AT_ONCE = 6
"""Of them that are taken before all that was measured is looked at again."""

ERROR = 0.1
"""Log error of a flow that is no surprise: a rate twice that far off tells little more
than one that is this far off. Its median is .02 to .2 in emulated networks."""

MOST = 15
"""Pairs that are tried, at most: those of six hosts."""

RESERVED_S = 2.0
"""Seconds of the time to be sure that are kept for this."""

Pair = tuple[int, int]


def untested(flows: LoadedFlows, fabric: Fabric, names: Sequence[str]) -> list[Pair]:
    """Return which two hosts may share a link that nothing has filled yet.

    By position in `names`, hosts that stand in no group of `fabric`, which was found in
    `flows`, if there are groups at all; of too many pairs none.
    """
    place = {name: i for i, name in enumerate(names)}
    lone = sorted(place[n.name] for n in fabric.root.children if not n.children)
    if len(fabric.root.children) < 3 or len(lone) == len(names):
        return []
    pairs = list(itertools.combinations(lone, 2))
    if len(pairs) > MOST:
        return []
    rate, fastest = np.nan_to_num(flows.bytes_per_s), flows.fastest(len(names))
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

    The pairs are of `untested`, the rounds numbered from `first` on, without the hosts
    that failed.
    """
    place = {name: i for i, name in enumerate(names)}
    alive = [pair for pair in pairs if not {*pair} & {*without}]
    tested = set().union(*alive)
    # One host of each group, so that no group's link is full: another every time.
    groups = [
        [h for n in node.leaves() if (h := place[n]) not in {*without, *tested}]
        for node in fabric.root.children
    ]
    found = _partners(alive * REPEATS, [group for group in groups if group])
    step = plan.length("duplex")
    return [
        Round(first + turn, "duplex", turn * step, _both_ways(np.array(met).T))
        for turn, met in enumerate(found)
    ]


def telling_rounds(
    plan: ProbePlan,
    fabric: Fabric,
    names: Sequence[str],
    first: int,
    seconds: float,
    without: Collection[int] = (),
) -> list[Round]:
    """Return rounds that tell a fabric from what it may be instead.

    Some pairs send both ways and nobody else does. Of many such rounds, drawn by
    chance, those are taken in which the speed of flows differs most between `fabric`
    and its alternatives. An alternative counts the more, the likelier it is and the
    less the rounds taken before tell of it. None where nothing would differ.

    Parameters
    ----------
    names : sequence of str
        Hosts by position.
    first : int
        The number of the first of the rounds, of at most `TOLD_AT_ONCE`.
    seconds : float
        That they take together, at most.
    without : collection of int
        Positions of hosts that failed.
    """
    step = plan.length("duplex")
    fit = min(TOLD_AT_ONCE, int(seconds / step))
    known = set(fabric.hosts)
    hosts = [i for i, n in enumerate(names) if n in known and i not in without]
    (_, likeliest), *others = fabric.drawn()
    if not others or len(hosts) < 4 or fit < 1:
        return []
    generator = np.random.default_rng([plan.seed, first])
    drawn = []
    for _ in range(TRIED):
        pairs = generator.integers(2, len(hosts) // 2, endpoint=True)
        drawn.append(generator.permutation(len(hosts))[: 2 * pairs].reshape(2, -1))
    heard = [names[host] for host in hosts]
    share = np.array([share for share, _ in others])
    apart = _apart(likeliest, [tree for _, tree in others], heard, drawn)
    found = [drawn[best] for best in _most_telling(share, apart, fit)]
    return [
        Round(first + turn, "duplex", turn * step, _both_ways(np.array(hosts)[met]))
        for turn, met in enumerate(found)
    ]


def _apart(
    likeliest: Fabric,
    others: Sequence[Fabric],
    names: Sequence[str],
    rounds: Sequence[Ints],
) -> Floats:
    """Return how different each round is in other fabrics, shape (others, rounds).

    A round is positions in `names`, shape (2, pairs).
    """
    number = np.repeat(np.arange(len(rounds)), [met.shape[1] for met in rounds])
    one, other = np.concatenate(rounds, axis=1)
    turn = np.tile(number, 2)

    def rates(tree: Fabric) -> Floats:
        column = np.array([tree.position(name) for name in names])
        src, dst = column[np.append(one, other)], column[np.append(other, one)]
        found, _ = fair_rounds(tree.links, turn, src, dst)
        return np.log(np.minimum(found, np.finfo(float).max))

    usual = rates(likeliest)
    off = [np.log1p(np.abs(rates(tree) - usual) / ERROR) for tree in others]
    return np.array([np.bincount(turn, each, len(rounds)) for each in off])


def _most_telling(share: Floats, apart: Floats, count: int) -> list[int]:
    """Return the rounds that tell most together; `apart` as of `_apart`."""
    told, chosen = np.zeros(len(share)), list[int]()
    for _ in range(count):
        worth = share / (1.0 + told) @ apart
        worth[chosen] = 0.0
        best = int(worth.argmax())
        if worth[best] <= 0.0:
            break
        chosen.append(best)
        told += apart[:, best]
    return chosen


def _both_ways(met: Ints) -> tuple[Pair, ...]:
    """Return pairs, shape (2, pairs), and the same the other way."""
    one, other = met.tolist()
    return tuple(zip(one + other, other + one, strict=True))


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
