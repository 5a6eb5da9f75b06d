"""Choose a job's algorithms together with its order: what ``tune`` does."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudcoll.bench.job import MPI_PROGRAM
from cloudcoll.bench.native import mpi_program
from cloudcoll.errors import CloudcollError, LaunchError, UsageError
from cloudcoll.launch import LaunchRequest, parse_launch
from cloudcoll.libraries import (
    forced_settings,
    library_key,
    local_ranks,
    parse_library,
)
from cloudcoll.libraries.question import dotted
from cloudcoll.libraries.tell import CHECKED, is_checked
from cloudcoll.measured.snapshot import latest_path
from cloudcoll.tune import Answer, best_in
from cloudcoll.tune import tune as tune_by_model
from cloudcoll.tune.calls import Asked, asked_of_sizes, asked_of_workload
from cloudcoll.tune.candidates import Candidates
from cloudcoll.tune.choose import SEARCHED_HOSTS, TuningJob
from cloudcoll.tune.decide import TuningBench, tune_by_bench
from cloudcoll.tune.measure import Numbers
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.message_costs import with_known_costs
from cloudcoll.work.request import OrderRequest
from cloudcoll.work.sent import AUTO, is_workload, named_workload
from cloudcoll.work.snapshots import measured_hosts, usable_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from cloudcoll.hosts import Host
    from cloudcoll.measured.snapshot import NetworkSnapshot
    from cloudcoll.rankmap import RankMap
    from cloudcoll.tuning import Tuning


@dataclass(frozen=True)
class TuneOptions:
    """What is to be tuned, and how long that may take.

    Attributes
    ----------
    library : str
        Whose algorithms to choose among, as ``NAME[@VERSION]``; empty for the
        launcher's own.
    collective : str or None
        One or several, with commas; allreduce if nothing else is asked for.
    size : int or None
        Bytes of one call; None for 1 KiB to 32 MiB.
    workload, parallel : str or None
        Several collectives instead: see `cloudcoll.work.sent`.
    snapshot_path : Path or None
        The snapshot to tune a launch from; the latest of its hosts by default.
    probe : bool
        Whether to measure when there is no fresh snapshot.
    free_rank0 : bool
        Let the host of rank 0 move.
    seed : int
        Of the search.
    seconds : float
        For all, a bench of what is close included; 0 for the model alone.
    """

    library: str = ""
    collective: str | None = None
    size: int | None = None
    workload: str | None = None
    parallel: str | None = None
    snapshot_path: Path | None = None
    probe: bool = True
    free_rank0: bool = False
    seed: int = 0
    seconds: float = 60.0


def tune_on(
    snapshot: NetworkSnapshot,
    hosts: tuple[Host, ...] = (),
    options: TuneOptions | None = None,
    reporter: Reporter = SILENT,
) -> Answer:
    """Choose order and algorithms for hosts of a snapshot, by the model alone.

    The hosts are in the order given, with their slots; the snapshot's if there are
    none. UsageError without a library, or with nothing that could be chosen.
    """
    options = options or TuneOptions()
    library = _known_library(options.library)
    given, slots = measured_hosts(hosts or snapshot.hosts, snapshot)
    candidates = _candidates(library, slots, forced_settings(library, os.environ))
    _say_of_nccl(candidates, reporter)
    asked, even = _asked(options, candidates, reporter)
    job = _job(snapshot, given, slots, asked, candidates, options, reporter)
    with reporter.waiting("choosing algorithms"):
        return tune_by_model(job, even=even)


def tune(
    launcher: Sequence[str],
    options: TuneOptions | None = None,
    reporter: Reporter = SILENT,
) -> Answer:
    """Choose order and algorithms for what a launcher starts, by measuring.

    By the model alone if there are no seconds for a bench, or no compiler for its
    program, which is MPI's, or for NCCL; the reporter hears which. LaunchError if the
    command line, with or without its program, deals ranks over the hosts in turn.
    """
    options = options or TuneOptions()
    until = time.monotonic() + options.seconds
    request = _request(launcher)
    candidates = _launch_candidates(request, options.library)
    wanted = OrderRequest(
        snapshot_path=options.snapshot_path,
        probe=options.probe,
        free_rank0=options.free_rank0,
    )
    snapshot = usable_snapshot(request, wanted, reporter)
    asked, even = _asked(options, candidates, reporter)
    place = snapshot, request.used, request.slots
    job = _job(*place, asked, candidates, options, reporter)
    if _say_of_nccl(candidates, reporter) or until <= time.monotonic():
        return tune_by_model(job, even=even)
    starter = request.argv[: request.start]
    try:
        (program,) = mpi_program("c", starter[0], os.environ)
    except LaunchError as error:
        reporter.say(f"{error}: by the model alone")
        return tune_by_model(job, even=even)
    with reporter.measuring() as on_row:
        bench = TuningBench(
            parse_launch((*starter, program), os.environ),
            os.environ,
            Numbers(program, os.environ),
            until,
            on_row,
        )
        path = options.snapshot_path or latest_path(request.hosts)
        try:
            job = with_known_costs(job, bench, path)
        except CloudcollError as error:
            reporter.say(f"what a message costs was not measured: {error}")
        return tune_by_bench(job, bench, even=even)


def tuned_order(
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    wanted: OrderRequest,
    reporter: Reporter = SILENT,
) -> RankMap | None:
    """Return the order of a launch with the algorithms for it, by the model alone.

    None where none is surely faster than the library's own, or none can be told; the
    reporter hears why.
    """
    try:
        job, even = _launch_job(request, snapshot, wanted, reporter)
    except CloudcollError as error:
        reporter.say(f"--tune: {error}")
        return None
    _say_of_nccl(job.candidates, reporter)
    with reporter.waiting("choosing algorithms"):
        found = tune_by_model(job, even=even)
    least = wanted.keep_below or 0.0
    tuning = found.rank_map.tuning
    if not tuning or not tuning.changes_anything or found.gain <= least:
        return None
    return found.rank_map


def tuning_in(
    rank_map: RankMap,
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    wanted: OrderRequest,
) -> Tuning | None:
    """Return what surely carries one call faster in the order of a map; None for none.

    Other orders are not looked at, so that a start takes no longer: the algorithm may
    gain more in one of its own.
    """
    if wanted.take or wanted.algorithm != AUTO or len(request.used) > SEARCHED_HOSTS:
        return None
    try:
        job, _ = _launch_job(request, snapshot, wanted, SILENT)
    except CloudcollError:
        # Nothing can be told to this job: there is nothing to say.
        return None
    if job.candidates.key == "nccl":
        return None
    return best_in(job, wanted.collective, wanted.size, rank_map.order)


def _launch_job(
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    wanted: OrderRequest,
    reporter: Reporter,
) -> tuple[TuningJob, bool]:
    """Return what is to be tuned of a launch, and whether all calls count alike."""
    several = is_workload(wanted.workload, wanted.parallel)
    options = TuneOptions(
        collective=None if several else wanted.collective,
        size=None if several else wanted.size,
        workload=wanted.workload,
        parallel=wanted.parallel,
        free_rank0=wanted.free_rank0,
    )
    _refuse_cyclic(request)
    candidates = _launch_candidates(request, wanted.library)
    asked, even = _asked(options, candidates, reporter)
    place = snapshot, request.used, request.slots
    return _job(*place, asked, candidates, options, reporter), even


def _request(launcher: Sequence[str]) -> LaunchRequest:
    """Return the launch that a command line names, of our program or its own."""
    request = parse_launch((*launcher, *MPI_PROGRAM), os.environ)
    if request.start < len(launcher):
        # The program's own words, of which only the launcher makes anything.
        request = parse_launch((*launcher[: request.start], *MPI_PROGRAM), os.environ)
    _refuse_cyclic(request)
    return request


def _refuse_cyclic(request: LaunchRequest) -> None:
    if request.cyclic:
        raise LaunchError(
            "ranks are dealt over the hosts in turn: tune needs them host by host "
            "(--map-by slot)"
        )


def _known_library(library: str) -> str:
    if not library:
        raise UsageError("whose algorithms? add --library openmpi@5.0, or mpich@5")
    return library


def _candidates(
    library: str, slots: tuple[int, ...], settings: Mapping[str, str]
) -> Candidates:
    if sum(slots) < 2:
        raise UsageError("a single rank sends nothing: there is nothing to tune")
    return Candidates(library, sum(slots), local_ranks(slots), settings)


def _launch_candidates(request: LaunchRequest, library: str) -> Candidates:
    """Return what a library can run in a launch: by default the launcher's own."""
    library = _known_library(library or request.library)
    settings = request.settings
    if library_key(library) != library_key(request.library):
        settings = forced_settings(library, os.environ)
    return _candidates(library, request.slots, settings)


def _say_of_nccl(candidates: Candidates, reporter: Reporter) -> bool:
    """Return whether NCCL is tuned, which no bench here can measure; say so."""
    if candidates.key != "nccl":
        return False
    reporter.say(
        "by the model alone; what NCCL takes by itself is not known: gains are over "
        "a ring"
    )
    if not is_checked(parse_library(candidates.library)[1]):
        oldest, newest = map(dotted, CHECKED)
        reporter.say(
            f"{candidates.library}: 'cloudcoll run' gives a tuner only to NCCL "
            f"{oldest} to {newest}, named as in --library nccl@{newest}"
        )
    return True


def _job(
    snapshot: NetworkSnapshot,
    given: tuple[str, ...],
    slots: tuple[int, ...],
    asked: Asked,
    candidates: Candidates,
    options: TuneOptions,
    reporter: Reporter,
) -> TuningJob:
    return TuningJob(
        snapshot,
        candidates,
        given,
        slots,
        asked,
        free_rank0=options.free_rank0,
        seed=options.seed,
        tell=reporter.say,
    )


def _asked(
    options: TuneOptions, candidates: Candidates, reporter: Reporter
) -> tuple[Asked, bool]:
    """Return what to tune, and whether all sizes are to count alike."""
    if options.workload or options.parallel:
        if options.collective or options.size is not None:
            raise UsageError(
                "--collective and --bytes are for one collective: a workload has "
                "its own"
            )
        workload = named_workload(options.workload, options.parallel, candidates.ranks)
        asked = asked_of_workload(workload, candidates)
        return _tunable(asked, candidates, reporter), False
    names = [one.strip() for one in (options.collective or "allreduce").split(",")]
    for name in names:
        if by := candidates.forced_by(name):
            reporter.say(f"{by} is set: {name} stays as that says")
        elif not candidates.is_tunable(name):
            raise UsageError(f"{candidates.library} can't be told which {name} to run")
    names = [name for name in names if candidates.is_tunable(name)]
    if not names:
        raise UsageError("nothing is left to choose: unset what chooses already")
    sizes = [] if options.size is None else [options.size]
    what = f"{', '.join(names)} of "
    what += "1 KiB to 32 MiB (as long in each)" if not sizes else "one size"
    return asked_of_sizes(names, sizes, candidates.ranks, what), not sizes


def _tunable(asked: Asked, candidates: Candidates, reporter: Reporter) -> Asked:
    """Return what is asked; say what of it stays the library's."""
    for name in dict.fromkeys(one.collective for one in asked.rest):
        if by := candidates.forced_by(name):
            reporter.say(f"{by} is set: {name} stays as that says")
    if not asked.calls:
        raise UsageError(
            f"{asked.name} calls nothing among all ranks that {candidates.library} "
            "can be told how to run: 'cloudcoll solve' finds its order"
        )
    return asked
