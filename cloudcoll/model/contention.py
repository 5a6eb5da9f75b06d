"""How long a schedule takes where ranks go on as soon as they can.

`CostModel` lets all ranks begin a step together and sees its busiest link. Here a
message begins when both its ranks are done with their earlier ones, whatever the
others do, and is a flow. Flows under way share full links max-min fairly (progressive
filling, Bertsekas and Gallager 1992), each in proportion to one over its round trip, as
TCP does (CM02, Casanova and Marchal 2002), and change their speed whenever one ends or
begins. So ranks that fall behind delay those they trade with, and two orders of the
same busiest links may differ by 10 %. Of a workload, which is done over and over, what
counts is how long after one step's end the next one's comes: ranks that are done early
begin early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.model.cost import CostModel, FlatSteps
from cloudcoll.network.fair import fair_rates
from cloudcoll.network.tree import Links

SEGMENTS = 32
"""In which the data of a pipelined schedule goes through its steps. No schedule says;
NCCL's trees cut 64 MiB into some 16 to 64 on each channel."""

CALLS = 4
"""In which an operation's calls are replayed one after another, at most: each stands
for a share of them, as if ranks waited for each other only between shares."""

TOGETHER = 1e-5
"""Relative difference below which two times are one: less to look at, as good."""


@dataclass(frozen=True)
class Replay:
    """Messages of one order of hosts, each waiting for earlier ones of its ranks.

    Attributes
    ----------
    rank, host : ndarray of int64, shape (2, messages)
        Senders, then receivers; hosts are columns of `links`.
    phase : ndarray of int64, shape (messages,)
        Never falls; a rank is done with one phase before it begins the next.
    size : ndarray of float64, shape (messages,)
        Bytes.
    weight : ndarray of float64, shape (messages,)
        What its flow gets of a full link is in proportion to that.
    delay, least : ndarray of float64, shape (messages,)
        Seconds after its ranks are free at which its flow begins, and before which
        it does not end.
    lead : int
        So many of the first messages only bring the ranks apart: time counts from
        the end of the last of them.
    """

    links: Links
    ranks: int
    rank: Ints
    host: Ints
    phase: Ints
    size: Floats
    weight: Floats
    delay: Floats
    least: Floats
    lead: int


def replay_of(model: CostModel, order: Ints | Sequence[int]) -> Replay:
    """Return the messages to replay of one call, or of one step of a workload.

    A flow begins after what the cost model lets its message wait beside (the path's
    latency, the other's turn). Steps of a pipelined phase flow together, their
    latencies add up, and the first of `SEGMENTS` takes one step after the other. With
    figures of pairs a message takes its flow or its pair's time, whichever is longer.
    A workload's step is replayed twice; see `CALLS`. The order is as of
    `CostModel.seconds`.
    """
    flat, host = model.flat(), model.host_of_rank(order)
    wait = model.waits(order) * flat.wait_weight[flat.step]
    piped, filling, waits = _pipelines(model, order, flat, wait)
    wait = np.where(piped, waits, wait)
    played = _played(model.schedule, flat)
    number, share = played.number, played.share
    rank = np.stack([flat.src, flat.dst])[:, number]
    delay = filling + (wait if flat.pairs is None else 0.0)
    return Replay(
        links=flat.links,
        ranks=flat.ranks,
        rank=rank,
        host=host[rank],
        phase=played.phase,
        size=flat.size[number] * share,
        weight=_weights(flat.links, host[rank]),
        delay=delay[number] * share,
        least=(filling + wait)[number] * share,
        lead=played.lead,
    )


def replayed_work(model: CostModel) -> int:
    """Return how many messages `replay_of` has, times how many are under way at once.

    For any order. Whenever one ends, the rates of the others change. Each rank is in
    one phase at a time, in which it may send to all others together.
    """
    phase = _played(model.schedule, model.flat()).phase
    widest = int(np.bincount(phase).max(initial=0))
    return len(phase) * max(model.schedule.ranks, widest)


class _Played(NamedTuple):
    """What is replayed: numbers of messages, their phases, and what part of each."""

    number: Ints
    phase: Ints
    share: Floats
    lead: int


def _played(sent: Schedule | Workload, flat: FlatSteps) -> _Played:
    """Return a schedule's messages, or those of a workload's step and of the next.

    Operations that are all called more than once take turns: only how much oftener
    one is called than another tells how it is cut.
    """
    phase = flat.phase[flat.step]
    if isinstance(sent, Schedule):
        return _Played(np.arange(len(phase)), phase, np.ones(len(phase)), 0)
    common = math.gcd(*(calls for calls, _ in sent.parts))
    steps = np.cumsum([0, *(len(part.steps) for _, part in sent.parts)])
    ends = np.searchsorted(flat.step, steps)
    numbers: list[Ints] = []
    for (calls, _), begin, end in zip(sent.parts, ends[:-1], ends[1:], strict=True):
        numbers += [np.arange(begin, end)] * min(calls // common, CALLS)
    numbers = [own for own in numbers if len(own)] * 2
    number = np.concatenate(numbers)
    first, last = np.array([phase[own[[0, -1]]] for own in numbers]).T
    past = np.cumsum(last - first + 1) - last - 1
    lengths = [len(own) for own in numbers]
    times = np.bincount(number, minlength=len(phase)) / 2
    return _Played(
        number,
        phase[number] + np.repeat(past, lengths),
        1 / times[number],
        len(number) // 2,
    )


def _weights(links: Links, host: Ints) -> Floats:
    """Return the weight of each message's flow: TCP prefers short round trips.

    1 where a path's latency is not known.
    """
    out, into = links.member[:, host[0]], links.member[:, host[1]]
    hops = links.latency[out] + links.latency[into]
    one_way = np.where(out != into, hops, 0.0).sum(axis=0)
    known = one_way > 0
    weight = np.ones(len(one_way))
    weight[known] = one_way[known].min(initial=np.inf) / one_way[known]
    return weight


def _pipelines(
    model: CostModel, order: Ints | Sequence[int], flat: FlatSteps, wait: Floats
) -> tuple[Bools, Floats, Floats]:
    """Return which messages are of a pipeline, its time to fill, and its latency.

    The first segment takes one step after the other, each with its flows alone.
    """
    longest, waits = np.zeros(len(flat.phase)), np.zeros(flat.phases)
    np.maximum.at(longest, flat.step, wait)
    np.add.at(waits, flat.phase, longest)
    busy = model.busy(order)
    alone, together = np.zeros(flat.phases), np.zeros((flat.phases, busy.shape[1]))
    np.add.at(alone, flat.phase, busy.max(axis=1, initial=0.0))
    np.add.at(together, flat.phase, busy)
    filling = (alone - together.max(axis=1, initial=0.0)) / SEGMENTS
    phase = flat.phase[flat.step]
    piped = np.bincount(flat.phase, minlength=flat.phases)[phase] > 1
    return piped, np.where(piped, filling[phase], 0.0), waits[phase]


def contended_seconds(model: CostModel, order: Ints | Sequence[int]) -> float:
    """Return the seconds of one call, or one of many steps of a workload, as flows.

    Of one call never less than any link needs for all its bytes. The order is as of
    `CostModel.seconds`.
    """
    replay = replay_of(model, order)
    ends = message_ends(replay)
    return float(ends.max(initial=0.0) - ends[: replay.lead].max(initial=0.0))


def message_ends(replay: Replay) -> Floats:
    """Return when each message ends, in seconds, shape (messages,).

    Looks at all messages whenever one begins or ends. `cloudcoll.solve.finalists`
    does the same in C.
    """
    count = len(replay.size)
    ends, begins = np.full(count, np.inf), np.full(count, np.inf)
    least, left = replay.least.copy(), replay.size.copy()
    left[replay.host[0] == replay.host[1]] = 0.0
    done = np.zeros(count, dtype=bool)
    now = 0.0
    while not done.all():
        ready = _ready(replay, done) & np.isinf(begins)
        begins[ready] = now + replay.delay[ready]
        least[ready] += now
        begun = ~done & (begins <= now * (1 + TOGETHER))
        flows = np.flatnonzero(begun & (left > 0))
        src, dst = replay.host[:, flows]
        rates = fair_rates(replay.links, src, dst, replay.weight[flows])
        need = left[flows] / rates
        ended = begun & (left <= 0)
        later = np.concatenate([begins[~begun & ~done], least[ended], now + need])
        now, before = max(now, later.min()), now
        over = need <= now - before + now * TOGETHER
        left[flows[over]] = 0.0
        left[flows[~over]] -= rates[~over] * (now - before)
        ending = begun & (left <= 0) & (least <= now * (1 + TOGETHER))
        ends[ending], done = now, done | ending
    return ends


def _ready(replay: Replay, done: Bools) -> Bools:
    """Return which messages have both ranks done with all earlier phases."""
    at = np.full(replay.ranks, np.iinfo(np.int64).max)
    for rank in replay.rank[:, ~done]:
        np.minimum.at(at, rank, replay.phase[~done])
    ready: Bools = ~done & (replay.phase == at[replay.rank]).all(axis=0)
    return ready
