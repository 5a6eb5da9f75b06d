"""Rounds that a probe adds to its tournament, once it has seen the first results.

In a tournament nearly all flows cross the full links of large groups. Two hosts of a
small one then send so little that their own link is never full: nobody can say whether
they have one. So both send at the same time, to hosts in different groups, and
nobody else does.

Who is in which group is then a question between a few answers. The rounds that decide
it soonest are those in which they have flows run differently fast.

Most flows of the tournament tell little of cards, either: groups' links hold them back.
Inside a group hosts meet at the speed of their cards.

Meetings are repeated where a host had no CPU left to measure with: a virtual machine
whose CPUs the hypervisor takes away, or whose other programs do, reports its own
delays for the network's. Nothing here touches a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric
from cloudcoll.probe.plan import ProbePlan, Round, tournament_round


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

WITHIN = 6
"""Rounds inside groups: in racks of four each host sends to each other one."""

MOST = 15
"""Pairs that are tried, at most: those of six hosts."""

RESERVED_S = 2.0
"""Seconds of the time to be sure that are kept for this, and for rounds in groups."""

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
    return _duplex(plan, found, first)


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
    fit = min(TOLD_AT_ONCE, int(seconds / plan.length("duplex")))
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
    told = _most_telling(share, apart, fit)
    return _duplex(plan, [np.array(hosts)[drawn[best]].T for best in told], first)


def opposed_rounds(
    plan: ProbePlan,
    line: Ints,
    first: int,
    seconds: float,
    without: Collection[int] = (),
) -> list[Round]:
    """Return rounds in which one half of the hosts meets the other.

    Links between two groups that carry what half of their hosts send are full only
    where most pairs cross them, which they seldom do by chance. So before it is sure
    that there are no groups, those meet who least likely are of one.

    Parameters
    ----------
    line : ndarray of int64
        Positions of hosts; the halves are its ends.
    first, seconds, without
        As of `telling_rounds`.
    """
    hosts = line[~np.isin(line, list(without))]
    half = len(hosts) // 2
    if half < 2:
        return []
    fit = min(TOLD_AT_ONCE, int(seconds / plan.length("duplex")))
    generator = np.random.default_rng([plan.seed, first])
    ends = hosts[:half], hosts[-half:]
    met = [np.stack([ends[0], generator.permutation(ends[1])], 1) for _ in range(fit)]
    return _duplex(plan, met, first)


def inner_rounds(
    plan: ProbePlan,
    fabric: Fabric,
    names: Sequence[str],
    first: int,
    seconds: float,
    without: Collection[int] = (),
) -> list[Round]:
    """Return rounds in which hosts meet inside their groups, one way and then back.

    What a host acknowledges waits behind what it sends: one way, each flow is as fast
    as the two cards, whatever their queues are. At most `WITHIN` rounds, none where
    there are no groups; the parameters are as of `telling_rounds`.
    """
    place = {name: i for i, name in enumerate(names)}
    members = ([place[name] for name in node.leaves()] for node in fabric.lowest())
    alive = ([host for host in group if host not in without] for group in members)
    groups = [group for group in alive if len(group) > 1]
    step = plan.length("load")
    fit = min(WITHIN, int(seconds / step)) if groups else 0
    rounds = []
    for turn in range(fit):
        pairs = _within(groups, turn // 2)
        met = tuple(pair[::-1] for pair in pairs) if turn % 2 else pairs
        rounds.append(Round(first + turn, "load", turn * step, met))
    return rounds


def _within(groups: Sequence[Sequence[int]], turn: int) -> tuple[Pair, ...]:
    """Return who meet inside their groups in a turn.

    Of two hosts that are a group the slow one is slow with others, too: after the first
    turn one of them, by turns, meets a host of a larger group, and nobody else of both
    pairs sends.
    """
    met = [
        [(group[one], group[other]) for one, other in _meetings(len(group), turn)]
        for group in groups
    ]
    larger = [pairs for group, pairs in zip(groups, met, strict=True) if len(group) > 2]
    for at, group in enumerate(groups):
        # Of another group each time, as far as there are any: nobody shares a link.
        most = max(larger, key=len, default=[])
        if turn and len(group) == 2 and most:
            guest, _ = most.pop()
            met[at] = [(group[turn % 2], guest)]
    return tuple(itertools.chain(*met))


def _meetings(count: int, turn: int) -> Iterator[Pair]:
    """Yield who meet of so many in a turn; one has a rest where they are odd."""
    players = count + count % 2
    for one, other in tournament_round(players, turn % (players - 1)):
        if max(one, other) < count:
            yield one, other


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


def _duplex(
    plan: ProbePlan, found: Iterable[Sequence[Pair] | Ints], first: int
) -> list[Round]:
    """Return rounds, numbered from `first` on, in which these pairs send both ways."""
    step, rounds = plan.length("duplex"), []
    for turn, met in enumerate(found):
        one, other = np.transpose(met).tolist()
        pairs = tuple(zip(one + other, other + one, strict=True))
        rounds.append(Round(first + turn, "duplex", turn * step, pairs))
    return rounds


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
