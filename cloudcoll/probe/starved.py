"""Which meetings to repeat, because a host had no CPU left to measure with.

A virtual machine whose CPUs the hypervisor takes away, or whose other programs
do, reports its own delays for the network's. An agent says so of each meeting;
here these become rounds again. Nothing here touches a network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cloudcoll.probe.plan import ProbePlan, Round

REPEATS = 2
"""Times that a meeting is repeated, at most."""

Pair = tuple[int, int]


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
