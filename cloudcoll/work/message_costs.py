"""What messages cost a job's library, measured once and kept in the snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cloudcoll import units
from cloudcoll.bench.job import bench_command
from cloudcoll.errors import UnusableError
from cloudcoll.files import read_stored
from cloudcoll.launch import LaunchRequest, parse_launch
from cloudcoll.libraries import library_key, local_ranks
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.message_costs import costs_in, with_costs
from cloudcoll.tune.calls import Asked
from cloudcoll.tune.candidates import TOLD, Candidates
from cloudcoll.tune.choose import TuningJob
from cloudcoll.tune.decide import TuningBench
from cloudcoll.tune.measure import Numbers
from cloudcoll.tune.ring_bench import RING, box_s, measured_costs
from cloudcoll.work.sent import AUTO


def with_known_costs(
    job: TuningJob, bench: TuningBench, path: Path, *, forced: bool = False
) -> TuningJob:
    """Return a job whose snapshot says what messages cost its library.

    That is measured unless it is known, and kept in the snapshot's file as long as it
    is still the one at `path`. The job is told of it; CloudcollError if nothing could
    be measured. `bench` and `forced` are as of `measured_costs`.
    """
    known, library = job.snapshot, job.candidates.key
    if costs_in(known, library, job.slots):
        return job
    job.tell("measuring what a message costs")
    costs = measured_costs(job, bench, forced=forced)
    told = (
        f"one of {units.size(int(size))} {units.seconds(seconds)}"
        for size, seconds in zip(costs.sizes, costs.each, strict=True)
    )
    job.tell(f"beside what the network takes, messages cost: {', '.join(told)}")
    found = with_costs(known, library, job.slots, costs)
    try:
        read_stored(path, known.digest)
        found = found.save(path)
    except UnusableError as error:
        job.tell(f"that is not kept: {error}")
        found = replace(found, digest=known.digest)
    return replace(job, snapshot=found)


def with_costs_of_launch(
    snapshot: NetworkSnapshot,
    launcher: Sequence[str],
    request: LaunchRequest,
    path: Path,
    until: float,
) -> NetworkSnapshot:
    """Return a snapshot with what messages cost the library of a bench's launch.

    The same where that can't be known: a library that can't be told to run a ring,
    ranks that are dealt over the hosts in turn, a single host, or too little time until
    the monotonic clock is `until`. CloudcollError if it could not be measured.

    Parameters
    ----------
    launcher : sequence of str
        The command line without a program.
    request : LaunchRequest
        With the bench's program, which hosts are known to have: it runs the rings, too.
    """
    ranks, env, program = sum(request.slots), os.environ, request.argv[request.start :]
    forced = library_key(request.library) == "openmpi"
    # Of others only our program in C can tell a communicator what to run.
    can_tell = library_key(request.library) in TOLD and len(program) == 1
    if (
        not (forced or can_tell)
        or request.cyclic
        or len(request.used) < 2
        or box_s(ranks, until - time.monotonic()) <= 0
    ):
        return snapshot
    runs = RING if forced else AUTO
    argv = bench_command(launcher, "allgather", runs, program)
    local = local_ranks(request.slots)
    candidates = Candidates(request.library, ranks, local, request.settings)
    job = TuningJob(snapshot, candidates, request.used, request.slots, Asked(()))
    bench = TuningBench(parse_launch(argv, env), env, Numbers(program[0], env), until)
    return with_known_costs(job, bench, path, forced=forced).snapshot
