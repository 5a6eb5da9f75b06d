"""Load all that a schedule sends at once, in several orders of hosts.

What a model predicts of two orders is then seen: each step's messages run at
the same time, as TCP flows between the hosts' agents, turn about.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule
from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.probe.agents import Agents, prepare
from cloudcoll.probe.frames import Frame
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.results import RAMP_UP
from cloudcoll.probe.runner import GRACE_SECONDS
from cloudcoll.probe.transport import RemoteShell

SECONDS = 5.0
"""How long the rounds of a rehearsal take in all, the agents' start apart."""

FLOW_BYTES = 16 << 30
"""Most that a flow sends: a round's length ends it before, at up to 60 GB/s. One
that ended early would have no whole windows after its ramp-up."""


@dataclass(frozen=True)
class Pattern:
    """Hosts that send at the same time, each to one other at most.

    Attributes
    ----------
    pairs : tuple of (int, int)
        Positions of sender and receiver.
    size : ndarray of float64, shape (pairs,)
        Bytes that each pair trades in one call.
    """

    pairs: tuple[tuple[int, int], ...]
    size: Floats


@dataclass(frozen=True)
class Load:
    """What one round of a rehearsal measured.

    Attributes
    ----------
    rates : ndarray of float64, shape (pairs,)
        Bytes/s of each pair of the pattern, 0 where nothing arrived.
    starved : bool
        Whether a host had too little CPU to measure.
    """

    rates: Floats
    starved: bool


def patterns(
    parts: Sequence[tuple[int, Schedule]], places: Sequence[int]
) -> list[Pattern]:
    """Return what is under way at once in a job, the most bytes first.

    Steps between the same pairs are one pattern; what stays inside a host is
    left out. Of several peers that a host has at a time each has a pattern of
    its own: its card serves them in turn either way. `parts` has how often each
    schedule is called; `places` the position of each rank's host.
    """
    where = np.asarray(places)
    found: dict[tuple[tuple[int, int], ...], Floats] = {}
    for calls, schedule in parts:
        steps = zip(schedule.phases, schedule.steps, strict=True)
        for _, phase in groupby(steps, key=lambda item: item[0]):
            own = [step for _, step in phase]
            src = where[np.concatenate([step.src for step in own])]
            dst = where[np.concatenate([step.dst for step in own])]
            size = np.concatenate([step.size * step.repeat for step in own]) * calls
            across = (src != dst) & (size > 0)
            ends = np.stack([src[across], dst[across]], axis=1)
            pairs, which = np.unique(ends, axis=0, return_inverse=True)
            sizes = np.zeros(len(pairs))
            np.add.at(sizes, which.ravel(), size[across])
            for chosen in _matchings(pairs, sizes):
                key = tuple((int(a), int(b)) for a, b in pairs[chosen])
                found[key] = found.get(key, np.zeros(len(key))) + sizes[chosen]
    made = [Pattern(pairs, size) for pairs, size in found.items()]
    return sorted(made, key=lambda one: -float(one.size.max()))


def _matchings(pairs: Ints, size: Floats) -> Iterator[Ints]:
    """Yield indices of pairs in which no host sends, or receives, twice.

    Together all pairs. The largest come first; among equals those equally far
    apart, so that an all-to-all falls into its shifts.
    """
    shift = (pairs[:, 1] - pairs[:, 0]) % (pairs.max(initial=0) + 1)
    left = np.lexsort((*pairs.T, shift, -size))
    while len(left):
        _, once = np.unique(pairs[left, 0], return_index=True)
        once.sort()
        _, both = np.unique(pairs[left[once], 1], return_index=True)
        chosen = once[both]
        yield np.sort(left[chosen])
        left = np.delete(left, chosen)


def alike(one: Sequence[Pattern], other: Sequence[Pattern]) -> bool:
    """Return whether two orders load the very same pairs with the same bytes."""
    seen = [{p.pairs: p.size.tolist() for p in each} for each in (one, other)]
    return seen[0] == seen[1]


def rehearse(
    hosts: tuple[Host, ...],
    orders: Mapping[str, Sequence[Pattern]],
    transport: RemoteShell,
    *,
    seconds: float = SECONDS,
) -> dict[str, float]:
    """Return the seconds that each order's transfers take at the rates measured.

    Orders, by a name of the caller's, take turns. Where there is no time for all
    patterns, those with the most bytes are measured and the others taken to be as fast.
    UnusableError if an agent did not come up, or a pair got nothing through.
    """
    if reason := transport.available():
        raise UnusableError(f"cannot load links via {transport.name}: {reason}")
    plan = replace(
        plan_probes(hosts),
        passes=(("rtt", 0, False),),
        sure_s=0.0,
        uplink_s=seconds,
        flow_bytes=FLOW_BYTES,
    )
    most = max(1, int(seconds / (plan.length("load") + plan.lead_s) / len(orders)))
    chosen = {name: tuple(each)[:most] for name, each in orders.items()}
    seen: dict[tuple[str, int], list[Load]] = {}
    turns = _turns(chosen, most // max(1, *map(len, chosen.values())))
    with transport.starts(hosts) as starts, Agents(starts) as agents:
        prepare(agents, hosts, plan, force=False)
        agents.send_all("go", after_s=0.0)
        agents.collect("done", GRACE_SECONDS)
        for number, (name, place) in enumerate(turns):
            load = _load(agents, plan, chosen[name][place], number)
            seen.setdefault((name, place), []).append(load)
    return {
        name: math.fsum(
            seconds_of(pattern, seen[name, place], hosts)
            for place, pattern in enumerate(each)
        )
        * (_largest(orders[name]) / _largest(each) if each else 1.0)
        for name, each in chosen.items()
    }


def _turns(
    chosen: Mapping[str, Sequence[Pattern]], repeats: int
) -> list[tuple[str, int]]:
    """Return which pattern of which order is loaded in each round, in turn."""
    return [
        (name, place)
        for _ in range(repeats)
        for place in range(max(map(len, chosen.values())))
        for name, each in chosen.items()
        if place < len(each)
    ]


def _largest(each: Sequence[Pattern]) -> float:
    """Return the bytes of the busiest pair of each pattern together."""
    return math.fsum(float(pattern.size.max()) for pattern in each)


def seconds_of(pattern: Pattern, loads: Sequence[Load], hosts: Sequence[Host]) -> float:
    """Return how long a pattern takes: its slowest pair's bytes over its rate.

    The median of the rounds counts, for TCP shares a link unevenly in each;
    rounds in which a host was starved of CPU count only if there are no others.
    """
    good = [load.rates for load in loads if not load.starved]
    rates = np.median(good or [load.rates for load in loads], axis=0)
    for (src, dst), rate in zip(pattern.pairs, rates.tolist(), strict=True):
        if not rate:
            raise UnusableError(
                f"next to nothing came from {hosts[src].name} to {hosts[dst].name}"
            )
    return float((pattern.size / rates).max())


def _load(agents: Agents, plan: ProbePlan, pattern: Pattern, number: int) -> Load:
    """Have all pairs of a pattern send at once."""
    receives_from = {dst: src for src, dst in pattern.pairs}
    seen: dict[int, float] = {}
    starved: set[int] = set()

    def take(position: int, frame: Frame) -> None:
        if frame["type"] == "flow" and frame["slot"] == number:
            windows = frame["windows"][RAMP_UP:]
            seen[position] = sum(windows) / plan.window_s / max(1, len(windows))
        elif frame["type"] == "starved":
            starved.add(position)

    start = time.monotonic() + plan.lead_s
    sends_to = dict(pattern.pairs)
    for position in agents.alive:
        to, source = sends_to.get(position), receives_from.get(position)
        both = to is not None and source is not None
        peer = source if to is None else to
        agents.send(
            position,
            "rounds",
            # Who does both reports what arrives, whoever sends it.
            kind="duplex" if both else "load",
            after_s=max(0.0, start - time.monotonic()),
            first=number,
            meetings=[] if peer is None else [(0, peer, to is not None, 0)],
        )
    end = start + plan.length("load") + GRACE_SECONDS
    agents.collect("done", end - time.monotonic(), take)
    for agent in agents.agents:
        if agent.failed:
            raise UnusableError(f"{agent.name}: {agent.failed}")
    rates = [seen.get(dst, 0.0) for _, dst in pattern.pairs]
    return Load(np.array(rates), bool(starved))
