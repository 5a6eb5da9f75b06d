"""The background probe of a network, in beats: few hosts, a moment each.

In a cycle every host meets a few others twice: as a member of its group, each
member with a partner elsewhere, so that the group's uplink is filled; and as
the partner of another group's member. Over cycles that is a random regular
graph. Groups take turns in one order, so that none waits for much longer than a
cycle; each beat has a share of the time that is its share of the hosts, so that no
herd of timers ever forms.

What a host sends in a beat is a burst of so many bytes, all hosts' at the same
moment: it is over in milliseconds, or in four times as many where the uplink
has become four times slower.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from cloudcoll.probe import ProbePlan
from cloudcoll.probe.plan import labels, tournament_round

PAIRS = 32
"""Pairs of a beat, at most; larger groups take several."""
WINDOW_S = 0.001
"""In which bytes of a burst are counted together."""
JITTER = 0.1
"""Of its share of a cycle, in which the moment of a beat is random."""
ROUNDS = 3
"""Rounds of the tournament whose latency a beat takes."""
LOADED = 4
"""Rounds under load of a whole probe: the daemon has a share of the cards only."""
SHARE = 0.5
"""Of all pairs, those whose latency tells who shares a rack of 16 or more: of 1000
hosts a quick probe takes 4 %, and most hosts meet nobody of theirs."""
MEETINGS = 128_000
"""Of a probe of latencies, twice as many as pairs: with reports it takes 15 MB."""


@dataclass(frozen=True)
class HostGroup:
    """Hosts that share an uplink; a host on the core is by itself, without a name."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Beat:
    """A moment of the background probe.

    Attributes
    ----------
    due : float
        Seconds, by the clock of whoever plans.
    group : str
        Whose uplink it looks at; empty for hosts on the core.
    pairs : tuple of (str, str)
        A member and its partner.
    seed : int
        Of the other meetings.
    """

    due: float
    group: str
    pairs: tuple[tuple[str, str], ...]
    seed: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """All that take part, each once."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))

    @property
    def trips(self) -> int:
        """How many pairs' round trips it measures."""
        return len(self.pairs) * _rounds(2 * len(self.pairs))

    def without(self, names: frozenset[str]) -> Beat:
        """Return the beat without the pairs of which one is in `names`."""
        return replace(self, pairs=tuple(p for p in self.pairs if not names & {*p}))


def _rounds(hosts: int) -> int:
    """Return how many rounds of a beat of so many hosts measure latency."""
    return min(ROUNDS, hosts - 1)


def cycle(
    groups: Sequence[HostGroup], start: float, every: float, seed: int
) -> list[Beat]:
    """Return the beats of one cycle, in order of time.

    There are two hosts or more, each in one group; the cycle begins at `start` and
    takes `every` seconds.
    """
    source = random.Random(seed)
    mixed = [
        replace(group, hosts=tuple(source.sample(group.hosts, len(group.hosts))))
        for group in groups
    ]
    partner = _partners([group.hosts for group in mixed], source)
    pairs: list[tuple[str, list[tuple[str, str]]]] = []
    loose = [host for group in mixed if not group.name for host in group.hosts]
    named = [(group.name, group.hosts) for group in mixed if group.name]
    for name, members in (*named, ("", tuple(loose))):
        met = [(host, partner[host]) for host in members]
        chunks = range(0, len(met), PAIRS)
        pairs += [(name, met[first : first + PAIRS]) for first in chunks]
    beats = [(name, kept) for name, met in pairs if (kept := _once(met))]
    ends = list(accumulate(len(kept) for _, kept in beats))
    made = []
    for place, (name, kept) in enumerate(beats):
        moment = ends[place] - len(kept) * (0.5 + JITTER * (source.random() - 0.5))
        due = start + every * moment / ends[-1]
        made.append(Beat(due, name, kept, seed + place))
    return made


def _partners(
    blocks: Sequence[tuple[str, ...]], source: random.Random
) -> dict[str, str]:
    """Return a partner for each host, in another group; each is the partner of one.

    Where a group has more than half of all hosts, some stay among themselves.
    """
    block = {host: number for number, hosts in enumerate(blocks) for host in hosts}
    hosts = source.sample(list(block), len(block))
    partner = dict(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
    for host in hosts:
        mine = block[host]
        if block[partner[host]] != mine:
            continue
        for other in source.sample(hosts, len(hosts)):
            if block[other] != mine != block[partner[other]]:
                partner[host], partner[other] = partner[other], partner[host]
                break
    return partner


def _once(met: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of two hosts that are in no pair before."""
    seen: set[str] = set()
    kept = []
    for pair in met:
        if len({*pair} - seen) == 2:
            seen |= {*pair}
            kept.append(pair)
    return tuple(kept)


def seated(beat: Beat) -> tuple[str, ...]:
    """Return a beat's hosts so that the first round of their probe is its pairs.

    That is the round under load as well.
    """
    size = 2 * len(beat.pairs)
    player = labels(size, beat.seed)
    seats = [""] * size
    for met, pair in zip(tournament_round(size, 0), beat.pairs, strict=True):
        for place, name in zip(met, pair, strict=True):
            seats[player[place]] = name
    return tuple(seats)


def shortened(plan: ProbePlan, burst: int) -> ProbePlan:
    """Return a quick probe's plan with the rounds of a beat alone.

    It is one of the beat's hosts as `seated`, with its seed. Each sends `burst` bytes
    to find rates; of none, latency alone is measured.
    """
    latency = ("rtt", _rounds(plan.hosts), False)
    passes = (latency, ("duplex", 1, False)) if burst else (latency,)
    return replace(
        plan,
        passes=passes,
        # Agents refuse flows of nothing, even where there are none.
        flow_bytes=min(burst or plan.flow_bytes, plan.flow_bytes),
        window_s=WINDOW_S,
        repeat_s=0.0,
        sure_s=0.0,
        uplink_s=0.0,
        uplink_flows=0,
    )


def spared(plan: ProbePlan) -> ProbePlan:
    """Return a quick probe's plan with few rounds under load: hosts run jobs, too."""
    passes = tuple(
        (kind, rounds if kind == "rtt" else min(rounds, LOADED), flip)
        for kind, rounds, flip in plan.passes
    )
    return replace(plan, passes=passes, sure_s=0.0)


def latencies(plan: ProbePlan) -> tuple[ProbePlan, ...]:
    """Return plans that measure more latencies, to tell racks, and load nothing.

    With a quick probe's `plan` of the same hosts: they take `SHARE` of all pairs
    together, and there are none if that takes as many.
    """
    wanted = math.ceil(SHARE * plan.hosts)
    if wanted <= sum(count for kind, count, _ in plan.passes if kind == "rtt"):
        return ()
    rounds = min(wanted, MEETINGS // plan.hosts)
    # Each takes other pairs by chance: some are met again.
    count = round(math.log(1.0 - SHARE) / math.log(1.0 - rounds / plan.hosts) + 0.4)
    once = replace(plan, passes=(("rtt", rounds, False),), repeat_s=0.0, sure_s=0.0)
    # One sample a port: of 1000 hosts they are a million, and the least counts.
    once = replace(once, samples=plan.ports, uplink_s=0.0, uplink_flows=0)
    return tuple(replace(once, seed=plan.seed + n) for n in range(1, count + 1))
