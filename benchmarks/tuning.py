"""Is what `cloudcoll tune` chooses the fastest there is? Everything measured as oracle.

A lab, of 16 hosts in uneven racks unless others are asked for, measured by a standard
probe. A cell is a collective of one size. In it `tune` chooses; then one job times,
taking turns, the choice, the library's own algorithm and every other one, each in the
order given and in its own best order. Candidates of which even the best order is
predicted to take more than ``--hopeless`` times as long as the fastest are left out. At
the end: in how many cells the choice is within 10 % of the fastest, and by how much it
is slower than the library's own in the order given at worst.

Which one is the fastest is told by every other repeat, and how much faster by the rest:
of twenty that are alike, the one with the least median has been lucky.

    python -m benchmarks.tuning [--keep FOLDER] [--mpi PREFIX] [--seconds 20]
        [--racks 4,4,4,4] [--slots 2] [--draw 12 --seed 1]

Cells in FOLDER are not measured again: it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.byte_audit.launching import LIBRARY_ENVIRONMENT
from benchmarks.emulated import command_in
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.job import BenchPace, NamedOrder, run_bench
from cloudcoll.bench.native import mpi_program
from cloudcoll.launch import LaunchRequest, parse_launch
from cloudcoll.libraries import local_ranks
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.model import problem_of
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import solve
from cloudcoll.tune import tune
from cloudcoll.tune.calls import Asked, Call, asked_of_sizes
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import Chooser, TuningJob
from cloudcoll.tune.decide import TuningBench, tune_by_bench
from cloudcoll.tune.measure import Group, Numbers, plan_groups, times_of
from cloudcoll.units import parse_size
from cloudcoll.work.message_costs import with_known_costs
from cloudcoll.work.sent import schedule_by

LAB = "tuning"
COLLECTIVES = "allreduce,allgather,reduce_scatter,bcast,alltoall,reduce"
SIZES = "1K,4K,16K,64K,256K,1M,8M,32M"
CLOSE = 1.10
"""Times as long as the fastest that a choice may take."""

LIMITED = 8 << 20
"""Bytes from which latency is little beside what links carry."""

USUAL_S = 60.0
"""Seconds that `tune` has, of which it spends some on what messages cost."""

CHOICE, OWN_GIVEN = "choice", "own, given"
OWN_BEST = re.compile("own: .*, best")
IN_LAB = (
    *("UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER"),
    "MPIR_CVAR_ENABLE_HEAVY_YIELD",
)
"""What keeps MPICH from finding that all hosts are one machine, and lets them share its
cores."""

Cell = dict[str, Any]
Times = Mapping[str, Sequence[float]]


def measured_inside(options: argparse.Namespace) -> None:
    """Measure, in the lab, all cells that are not there yet."""
    os.environ.update({k: LIBRARY_ENVIRONMENT[k] for k in IN_LAB})
    keep, prefix = options.keep, Path(options.mpi).absolute()
    # Open MPI 4.1 starts the daemons of the prefix that it is called by.
    os.environ["PATH"] = f"{prefix / 'bin'}:{os.environ['PATH']}"
    mpirun = prefix / "bin" / "mpirun"
    ranks = options.slots * len(options.inside.read_text().splitlines())
    hosts = ("--hostfile", str(options.inside), "-n", str(ranks))
    (program,) = mpi_program("c", str(mpirun), os.environ)
    request = parse_launch((str(mpirun), *hosts, program), os.environ)
    snapshot = load_snapshot(keep / "network.snap")
    numbers = Numbers(program, os.environ)
    snapshot = _with_costs(snapshot, request, numbers, keep / "network.snap")
    done = {(c["library"], c["collective"], c["size"]) for c in cells(keep)}
    for collective, size in _asked(options):
        if (request.library, collective, size) in done:
            continue
        print(f"{request.library} {collective} of {size}", file=sys.stderr)
        cell = _cell(snapshot, request, numbers, collective, size, options)
        with (keep / "cells.jsonl").open("a") as file:
            print(json.dumps(cell), file=file)


def _with_costs(
    snapshot: NetworkSnapshot, request: LaunchRequest, numbers: Numbers, path: Path
) -> NetworkSnapshot:
    """Return a snapshot with what messages cost the library, measured as by `tune`."""
    slots = request.slots
    candidates = Candidates(request.library, sum(slots), local_ranks(slots))
    job = TuningJob(snapshot, candidates, request.used, slots, Asked(()))
    bench = TuningBench(request, os.environ, numbers, time.monotonic() + USUAL_S)
    return with_known_costs(job, bench, path).snapshot


def _asked(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return the collectives and sizes to measure: all, or some that a seed draws."""
    sizes = [parse_size(size) for size in options.sizes.split(",")]
    every = [*itertools.product(options.collectives.split(","), sizes)]
    if options.draw is None:
        return every
    return random.Random(options.seed).sample(every, min(options.draw, len(every)))


def _cell(
    snapshot: NetworkSnapshot,
    request: LaunchRequest,
    numbers: Numbers,
    collective: str,
    size: int,
    options: argparse.Namespace,
) -> Cell:
    """Choose, then measure the choice beside all others."""
    ranks = sum(request.slots)
    local = local_ranks(request.slots)
    candidates = Candidates(request.library, ranks, local, request.settings)
    asked = asked_of_sizes([collective], [size], ranks, "a cell")
    job = TuningJob(snapshot, candidates, request.used, request.slots, asked)
    begun = time.monotonic()
    if options.seconds:
        until = begun + options.seconds
        answer = tune_by_bench(job, TuningBench(request, os.environ, numbers, until))
    else:
        answer = tune(job)
    took = time.monotonic() - begun
    groups = _groups(job, answer.rank_map, Call(collective, size), numbers, options)
    box = options.box
    plan, real = plan_groups(
        collective,
        [size],
        groups,
        request,
        numbers,
        BenchPace(options.repeats, box, 0.0, min(3, options.repeats)),
    )
    done = run_bench(plan, os.environ, 10 * box + 300.0)
    times = times_of(groups, done, real)
    return {
        "library": request.library,
        "collective": collective,
        "size": size,
        "racks": options.racks,
        "ranks": ranks,
        "local": local,
        "tuned in": took,
        "chosen": str(_chosen(answer.rank_map, candidates, collective, size)),
        "left out": done.left_out,
        "times": {
            name: [series[at] for at in sorted(series)]
            for (_, name), series in times.items()
        },
    }


def off_fastest(times: Times) -> tuple[float, str]:
    """Return how many times as long as the fastest a choice takes, and its name.

    Parameters
    ----------
    times : mapping of str to sequence of float
        Seconds by repeat; those of one repeat are neighbours in time.
    """
    first = {name: statistics.median(series[::2]) for name, series in times.items()}
    fastest = min(first, key=first.__getitem__)
    pairs = list(zip(times[CHOICE], times[fastest], strict=False))
    rest = pairs[1::2] or pairs
    return statistics.median(mine / theirs for mine, theirs in rest), fastest


def _chosen(
    rank_map: RankMap, candidates: Candidates, collective: str, size: int
) -> Candidate:
    """Return the candidate that a map says for a call."""
    own = candidates.own(collective, size)
    said = rank_map.tuning.at(collective, size) if rank_map.tuning else None
    if said is None or said.is_own:
        return own
    key = said.algorithm, tuple(sorted(said.parameters.items()))
    return next(one for one in candidates.others(collective, size) if one.key == key)


def _groups(
    job: TuningJob,
    rank_map: RankMap,
    call: Call,
    numbers: Numbers,
    options: argparse.Namespace,
) -> list[Group]:
    """Return the library's own, the choice, and all that is not hopeless."""
    candidates = job.candidates
    own = candidates.own(call.collective, call.size)
    others = candidates.others(call.collective, call.size)
    chooser = Chooser(replace(job, asked=replace(job.asked, calls=(call,))))
    best: dict[str, tuple[float, Candidate, tuple[str, ...]]] = {}
    by_shape: dict[object, tuple[str, ...]] = {}
    for one in (own, *(o for o in others if numbers.knows(o))):
        if one.shape not in by_shape:
            sent = chooser.predictor.schedule(call, one)
            found = solve(job.snapshot, sent, given=job.given, slots=job.slots)
            by_shape[one.shape] = found.order
        order = by_shape[one.shape]
        place = chooser.positions(order)
        seconds = float(chooser.predictor.seconds(call, one, [place])[0])
        name = f"own: {one}" if one.is_own else str(one)
        best[name] = seconds, one, order
    least = min(seconds for seconds, _, _ in best.values())
    chosen = _chosen(rank_map, candidates, call.collective, call.size)
    groups: list[Group] = [
        (NamedOrder(OWN_GIVEN, job.given), {}),
        (NamedOrder(CHOICE, rank_map.order), chosen.settings),
    ]
    for name, (seconds, one, order) in best.items():
        if not one.is_own and seconds > options.hopeless * least:
            continue
        if not one.is_own:
            groups.append((NamedOrder(f"{name}, given", job.given), one.settings))
        if order != job.given:
            groups.append((NamedOrder(f"{name}, best", order), one.settings))
    return _each_once(groups)


def _each_once(groups: Sequence[Group]) -> list[Group]:
    """Return groups that differ: one that is alike is another name of the first.

    Two of them would differ by chance, and the faster one be the fastest.
    """
    found: dict[object, Group] = {}
    for named, settings in groups:
        key = named.hosts, tuple(sorted(settings.items()))
        first, told = found.get(key, (named, settings))
        if first is not named:
            first = replace(first, same_as=(*first.same_as, named.name))
        found[key] = first, told
    return list(found.values())


def cells(folder: Path) -> list[Cell]:
    """Return the cells that a folder has."""
    path = folder / "cells.jsonl"
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def limit_s(snapshot: NetworkSnapshot, cell: Cell) -> float:
    """Return the seconds that the busiest link needs for its bytes.

    In the order and by the algorithm that need least, of all that the library has.
    """
    call = Call(cell["collective"], cell["size"])
    # Cells of before have one rank on each host.
    local: int = cell.get("local", 1)
    candidates = Candidates(cell["library"], cell["ranks"], local)
    slots = [local] * len(snapshot.names)
    found = []
    for one in (
        candidates.own(call.collective, call.size),
        *candidates.others(call.collective, call.size),
    ):
        sent = schedule_by(one.selection, call.collective, cell["ranks"], call.size)
        order = solve(snapshot, sent, slots=slots, free_rank0=True).order
        problem = problem_of(snapshot, sent, dict.fromkeys(order, local))
        busy = problem.model.busy(problem.positions(order))
        found.append(float(busy.sum(axis=0).max()))
    return min(found)


def figures(found: Sequence[Cell], snapshot: NetworkSnapshot) -> Iterator[Figure]:
    """Print a line for each cell; yield the shares and the worst, by library."""
    for library in dict.fromkeys(cell["library"] for cell in found):
        close, slower, gains, alone, limits = [], [], [], [], []
        for cell in (one for one in found if one["library"] == library):
            times: Times = cell["times"]
            if CHOICE not in times or OWN_GIVEN not in times:
                print(f"{library} {cell['collective']} {cell['size']}: not measured")
                continue
            seconds = {name: statistics.median(one) for name, one in times.items()}
            off, fastest = off_fastest(times)
            over = seconds[OWN_GIVEN] / seconds[CHOICE]
            print(
                f"{library} {cell['collective']:14} {cell['size']:9}  "
                f"{cell['chosen']:36} {seconds[CHOICE] * 1e3:9.2f} ms  "
                f"{off:5.2f} of the fastest ({fastest})  {over:5.2f}x over given"
            )
            close.append(off <= CLOSE)
            slower.append(1 / over)
            gains.append(over)
            ordered = (s for name, s in seconds.items() if OWN_BEST.fullmatch(name))
            alone.append(next(ordered, seconds[OWN_GIVEN]) / seconds[CHOICE])
            if cell["size"] >= LIMITED:
                limits.append(seconds[CHOICE] / limit_s(snapshot, cell))
        if not close:
            continue
        name = f"tuning by {library.replace('@', ' ')}"
        yield Figure(
            f"{name}: cells within 10 % of the fastest",
            100 * sum(close) / len(close),
            least=90.0,
            unit="%",
            note=f"of {len(close)}",
        )
        yield Figure(f"{name}: worst time over given", max(slower), most=1.03, unit="x")
        for what, ratios in (("given", gains), ("order alone", alone)):
            yield Figure(
                f"{name}: gain over {what}, median of the cells",
                statistics.median(ratios),
                *(min(ratios), max(ratios)),
                unit="x",
                interval=f"range of {len(ratios)}",
            )
        if limits:
            yield Figure(
                f"{name}: time over the physical limit, from 8 MiB on",
                statistics.median(limits),
                *(min(limits), max(limits)),
                most=1.5,
                unit="x",
                interval=f"range of {len(limits)}",
            )


def measured(options: argparse.Namespace) -> None:
    """Start a lab, probe it if that was not done, and measure in it."""
    keep = options.keep
    keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        cloudcoll = command_in(folder)
        cloudcoll(
            "lab", "up", "--name", LAB, "--preset", "tuned", "--racks", options.racks,
            "--nic", options.nic, "--uplink", options.nic,
        )  # fmt: skip
        try:
            snapshot = keep / "network.snap"
            if not snapshot.exists():
                # 1: some pairs gave no result, as may be on a busy machine.
                cloudcoll(
                    "probe", "--lab", LAB, "--standard", "-o", str(snapshot), good=1
                )
            # Hydra would take "slots" for a host's.
            lines = (Path(folder) / "lab" / LAB / "hosts").read_text().splitlines()
            hosts, names = Path(folder) / "names", [line.split()[0] for line in lines]
            open_mpi = (Path(options.mpi) / "bin/ompi_info").exists()
            slots = f" slots={options.slots}" if open_mpi else f":{options.slots}"
            hosts.write_text("".join(f"{name}{slots}\n" for name in names))
            cloudcoll(
                "lab", "exec", "--name", LAB, "--",
                sys.executable, "-m", "benchmarks.tuning",
                *sys.argv[1:], "--keep", str(keep.absolute()), "--inside", str(hosts),
            )  # fmt: skip
        finally:
            cloudcoll("lab", "down", "--name", LAB)


def main() -> None:
    """Print a line for each cell, and the figures over all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="to go on there another time"
    )
    parser.add_argument(
        "--mpi", default=str(Path(sys.executable).parents[1]), metavar="PREFIX"
    )
    parser.add_argument("--racks", default="5,3,6,2")
    parser.add_argument("--nic", default="400mbit")
    parser.add_argument("--slots", type=int, default=1, help="ranks on each host")
    parser.add_argument("--collectives", default=COLLECTIVES)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--draw", type=int, help="of them only as many")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each tuning")
    parser.add_argument("--box", type=float, default=120.0, help="of each cell's job")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--hopeless", type=float, default=6.0)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.inside:
        measured_inside(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        # What is not kept is of this commit, as the record has it.
        options.keep = options.keep or Path(folder)
        measured(options)
        snapshot = load_snapshot(options.keep / "network.snap")
        write_figures(figures(cells(options.keep), snapshot), options.json)


if __name__ == "__main__":
    main()
