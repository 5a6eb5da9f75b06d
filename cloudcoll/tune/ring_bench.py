"""A short bench of rings, which tells what messages cost the ranks of a job."""

from __future__ import annotations

import time

import numpy as np

from cloudcoll.bench.compare import start_seconds
from cloudcoll.bench.job import BenchPace, NamedOrder, run_bench
from cloudcoll.errors import CloudcollError
from cloudcoll.model import fabric_of, network_of
from cloudcoll.model.message_costs import MessageCosts
from cloudcoll.solve.orders import grouped_order
from cloudcoll.tune.calls import Call
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import TuningJob
from cloudcoll.tune.decide import TuningBench
from cloudcoll.tune.measure import MIN_S, TIMEOUT_S, Numbers, plan_groups, times_of
from cloudcoll.tune.sheet import Predictor

BLOCKS = (1 << 10, 64 << 10)
"""Bytes of the messages that are measured: of the small ones the bytes count for
nothing, and the large ones are still sent at once (`cloudcoll.libraries.open_mpi`)."""

SECONDS = 2.0
"""For all measurements, at most, the job's start apart."""

SHARE = 0.15
"""Of the time of all that is measured, with the job's start."""

RING = "ring"

LEAST, MOST, NARROW = 4, 20, 0.05
"""Repeats of each size, and the half width of its interval at which it ends."""


def measured_costs(job: TuningJob, bench: TuningBench) -> MessageCosts:
    """Return what messages cost the ranks of a job: small and large ones in a ring.

    Raises
    ------
    CloudcollError
        Nothing was measured: there is no time, the library can't be told to run a
        ring, or the bench failed.
    """
    candidates, ranks = job.candidates, job.ranks
    fabric = fabric_of(job.snapshot).restrict(job.given)
    network = network_of(job.snapshot, job.given, fabric=fabric)
    predictor = Predictor(network, dict(zip(job.given, job.slots, strict=True)))
    # Hosts of a group side by side: no link between groups is to be in the way.
    order = grouped_order(job.given, network.fabric)
    place = np.array([network.fabric.position(name) for name in order])
    calls = [Call("allgather", block * ranks) for block in BLOCKS]
    rings = [_ring(candidates, call, bench.numbers) for call in calls]
    predicted = [
        float(predictor.seconds(call, ring, [place])[0])
        for call, ring in zip(calls, rings, strict=True)
    ]
    start, left = start_seconds(ranks), bench.until - time.monotonic()
    box = min(SECONDS, SHARE * left - start)
    if box < (LEAST + 1) * sum(predicted):
        raise CloudcollError("there is no time for it")
    pace = BenchPace(MOST, box, NARROW, LEAST, min_seconds=MIN_S)
    # What it takes by itself may be a ring at one of the sizes alone.
    told = next((ring.settings for ring in rings if not ring.is_own), {})
    groups = [(NamedOrder(RING, order), told)]
    sizes = [call.size for call in calls]
    plan, asked = plan_groups(
        "allgather", sizes, groups, bench.request, bench.numbers, pace
    )
    done = run_bench(plan, bench.env, left + TIMEOUT_S, bench.on_row)
    times = times_of(groups, done, asked)
    longer = []
    for call, seconds in zip(calls, predicted, strict=True):
        repeats = times.get((call.size, RING))
        if not repeats:
            raise CloudcollError("its job ended too early")
        longer.append((np.median(list(repeats.values())) - seconds) / (ranks - 1))
    return costs_of(*zip(BLOCKS, map(float, longer), strict=True))


def _ring(candidates: Candidates, call: Call, numbers: Numbers) -> Candidate:
    """Return what runs a ring for a call."""
    known = [
        candidates.own(call.collective, call.size),
        *candidates.others(call.collective, call.size),
    ]
    for one in known:
        if one.selection.algorithm == "ring" and numbers.knows(one):
            return one
    raise CloudcollError(f"{candidates.library} can't be told to run a ring")


def costs_of(small: tuple[float, float], large: tuple[float, float]) -> MessageCosts:
    """Return what explains how much longer messages of two sizes took, no less than 0.

    Each is bytes and seconds.
    """
    per_byte = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
    return MessageCosts(max(0.0, small[1] - per_byte * small[0]), per_byte)
