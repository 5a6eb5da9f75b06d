"""A short bench of rings, which tells what messages cost the ranks of a job."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from cloudcoll.bench.compare import start_seconds
from cloudcoll.bench.job import BenchPace, NamedOrder, run_bench
from cloudcoll.errors import CloudcollError
from cloudcoll.model import fabric_of, network_of
from cloudcoll.model.message_costs import MessageCosts
from cloudcoll.solve.orders import grouped_order
from cloudcoll.tune.calls import Call
from cloudcoll.tune.candidates import Candidate, Candidates, Settings
from cloudcoll.tune.choose import TuningJob
from cloudcoll.tune.decide import TuningBench
from cloudcoll.tune.measure import (
    MIN_S,
    TIMEOUT_S,
    Group,
    Numbers,
    plan_groups,
    times_of,
)
from cloudcoll.tune.sheet import Predictor

BLOCKS = (1 << 10, 64 << 10, 256 << 10)
"""Bytes of the messages that are measured: of the small ones the bytes count for
nothing, the middle ones are sent at once, and the large ones are asked for
(`cloudcoll.libraries.open_mpi`). These are left out where there is no time."""

SECONDS = 5.0
"""For all measurements, at most, the job's start apart."""

SHARE = 0.2
"""Of the time of all that is measured, with the job's start."""

RING = "ring"
"""What runs, and the name of its order."""

LEAST, MOST, NARROW = 1, 20, 0.05
"""Repeats of each size, and the half width of its interval at which it ends. Were two
asked for, a job with time for few would give up the small sizes for a large one."""

LONGER = 3.0
"""Times as long as predicted that rings take behind short queues."""


def box_s(ranks: int, seconds: float) -> float:
    """Return the seconds for measurements, if all that is measured may take so many."""
    return min(SECONDS, SHARE * seconds - start_seconds(ranks))


def measured_costs(
    job: TuningJob, bench: TuningBench, *, forced: bool = False
) -> MessageCosts:
    """Return what messages of some sizes cost the ranks of a job, in a ring.

    Parameters
    ----------
    job : TuningJob
        What it asks for does not matter.
    bench : TuningBench
    forced : bool
        Whether its command line makes the library run rings; else that is told to each
        communicator.

    Raises
    ------
    CloudcollError
        Nothing was measured: there is no time, the library can't be told to run a
        ring, or the bench failed.
    """
    ranks, left = job.ranks, bench.until - time.monotonic()
    box = box_s(ranks, left)
    group, predicted = _rings(job, None if forced else bench.numbers, box)
    if len(predicted) < 2:
        raise CloudcollError("there is no time for it")
    plan, asked = plan_groups(
        "allgather",
        list(predicted),
        [group],
        bench.request,
        bench.numbers,
        BenchPace(MOST, box, NARROW, LEAST, min_seconds=MIN_S),
    )
    done = run_bench(plan, bench.env, left + TIMEOUT_S, bench.on_row)
    times = times_of([group], done, asked)
    longer = {
        size // ranks: (float(np.median(list(repeats.values()))) - seconds)
        / (ranks - 1)
        for size, seconds in predicted.items()
        if (repeats := times.get((size, RING)))
    }
    if len(longer) < 2:
        raise CloudcollError("its job ended too early")
    return costs_of(longer)


def _rings(
    job: TuningJob, numbers: Numbers | None, box: float
) -> tuple[Group, dict[int, float]]:
    """Return what runs a ring, and seconds that the network takes, by bytes of a call.

    Of as many of the sizes as there is time for in `box` seconds. Without `numbers`,
    nothing is told.
    """
    fabric = fabric_of(job.snapshot).restrict(job.given)
    network = network_of(job.snapshot, job.given, fabric=fabric)
    predictor = Predictor(network, dict(zip(job.given, job.slots, strict=True)))
    # Hosts of a group side by side: no link between groups is to be in the way.
    order = grouped_order(job.given, network.fabric)
    place = np.array([network.fabric.position(name) for name in order])
    predicted: dict[int, float] = {}
    told: Settings = {}
    for block in BLOCKS:
        call = Call("allgather", block * job.ranks)
        ring = _ring(job.candidates, call, numbers)
        seconds = float(predictor.seconds(call, ring, [place])[0])
        if LONGER * (sum(predicted.values()) + seconds) > box:
            break
        predicted[call.size] = seconds
        # What it takes by itself may be a ring at one of the sizes alone.
        told = told or (ring.settings if numbers else {})
    return (NamedOrder(RING, order), told), predicted


def _ring(candidates: Candidates, call: Call, numbers: Numbers | None) -> Candidate:
    """Return what runs a ring for a call."""
    for one in (
        candidates.own(call.collective, call.size),
        *candidates.others(call.collective, call.size),
    ):
        known = numbers is None or numbers.knows(one)
        if one.selection.algorithm == RING and known:
            return one
    raise CloudcollError(f"{candidates.library} can't be told to run a ring")


def costs_of(longer: Mapping[int, float]) -> MessageCosts:
    """Return the costs of messages by how much longer those of some sizes took.

    Nothing is taken off for what was faster than predicted. Larger messages may cost
    less than smaller ones: while the network carries one, ranks get their turns on a
    processor that they share.

    Parameters
    ----------
    longer : mapping of int to float
        Bytes, ascending -> seconds.
    """
    each = np.maximum(list(longer.values()), 0.0)
    return MessageCosts(tuple(map(float, longer)), tuple(each.tolist()))
