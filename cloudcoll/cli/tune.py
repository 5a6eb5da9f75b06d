"""``cloudcoll tune``: order and algorithms together."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.algorithm import LIBRARY_HELP
from cloudcoll.cli.bench import measuring_progress
from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import SIZE, Finite
from cloudcoll.cli.snapshots import usable_snapshot
from cloudcoll.cli.traffic import named_workload, workload_options
from cloudcoll.errors import LaunchError, UsageError
from cloudcoll.selection import forced_settings, local_ranks

if TYPE_CHECKING:
    from cloudcoll.launch import LaunchRequest
    from cloudcoll.snapshot import NetworkSnapshot
    from cloudcoll.tune.answer import Answer
    from cloudcoll.tune.calls import Asked
    from cloudcoll.tune.candidates import Candidates
    from cloudcoll.tune.choose import Job

MAGIC = b"cloudcoll-snapshot"


class _Tune(click.Command):
    """Options stand before a launcher, but on both sides of a snapshot."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        seen, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = seen.get("words")
        if isinstance(words, tuple) and words:
            ctx.allow_interspersed_args = _is_snapshot(words[0])
        return super().parse_args(ctx, args)


@click.command("tune", cls=_Tune, context_settings={"allow_interspersed_args": False})
@click.option("--library", default="", help=LIBRARY_HELP)
@click.option("--collective", help="One or several: allreduce,bcast.")
@click.option("--bytes", "size", type=SIZE, help="Size of its calls.")
@workload_options
@click.option(
    "--hostfile", type=click.Path(path_type=Path), help="Host list: order and slots."
)
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option(
    "--snapshot",
    "snapshot_path",
    type=click.Path(path_type=Path),
    help="Snapshot to tune from, if not the latest.",
)
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option(
    "--seconds",
    type=Finite(0),
    default=60.0,
    show_default=True,
    help="Seconds for all, with a bench of what is close; 0 for the model alone.",
)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the map.")
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
@click.argument("words", metavar="SNAP | LAUNCHER", nargs=-1, required=True)
def command(
    words: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    seconds: float,
    **options: Any,
) -> None:
    r"""Choose a job's algorithms together with its order.

    LAUNCHER is a command line, with or without its program; its library and
    what it is told are found out. SNAP is a snapshot, for which --library says
    whose algorithms to choose among: openmpi or mpich.

    For each collective and range of sizes the library's own algorithm stays,
    unless another one is surely faster. All calls of a job share one order, so
    that choice and order are sought together, for all that it calls: a workload
    or profile, or --collective and --bytes. Without any of these it is an
    allreduce of 1 KiB to 32 MiB, as much time spent in each size as in any other.

    The model says what is promising; a bench started by LAUNCHER, in which all
    take turns, decides. It needs an mpicc, and CloudColl's folder on all hosts.
    With a snapshot, or with --seconds 0, the model decides alone.

    \b
    cloudcoll tune mpirun --hostfile hosts -np 16
    cloudcoll tune --workload job.json -o map.json mpirun --hostfile hosts ./app
    cloudcoll tune cluster.snap --library openmpi@5.0.11
    cloudcoll tune cluster.snap --library mpich@5 --collective allreduce,bcast
    """
    from cloudcoll.report.tunings import tuning_json, tuning_lines
    from cloudcoll.tune.choose import Job

    begun = time.monotonic()
    wanted = _Wanted(**options)
    place = (
        _of_snapshot(words, wanted)
        if _is_snapshot(words[0])
        else _of_launch(words, wanted)
    )
    candidates = place.candidates
    asked, even = _asked(wanted, candidates)
    job = Job(
        place.snapshot,
        candidates,
        place.given,
        place.slots,
        asked,
        free_rank0=wanted.free_rank0,
        seed=wanted.seed,
        tell=say,
    )
    answer = _answer(job, place, begun + seconds, even=even)
    if output:
        answer.rank_map.save(output)
    if as_json:
        print_json(tuning_json(answer))
    else:
        print_lines(tuning_lines(answer))


def _answer(job: Job, place: _Place, until: float, *, even: bool) -> Answer:
    """Return what to run, measured where that is asked for and can be done."""
    from cloudcoll.tune.answer import tune

    if place.request is None or until <= time.monotonic():
        return tune(job, even=even)
    from cloudcoll.bench.native import mpi_program
    from cloudcoll.launch import parse_launch
    from cloudcoll.tune.decide import Bench, tune_by_bench
    from cloudcoll.tune.measure import Numbers

    launcher = place.request.argv[: place.request.start]
    try:
        (program,) = mpi_program("c", launcher[0], os.environ)
    except LaunchError as error:
        say(f"{error}: by the model alone")
        return tune(job, even=even)
    with measuring_progress() as on_row:
        bench = Bench(
            parse_launch((*launcher, program), os.environ),
            os.environ,
            Numbers(program, os.environ),
            until,
            on_row,
        )
        return tune_by_bench(job, bench, even=even)


@dataclass(frozen=True)
class _Wanted:
    library: str
    collective: str | None
    size: int | None
    workload: str | None
    parallel: str | None
    hostfile: Path | None
    names: str | None
    snapshot_path: Path | None
    probe: bool
    free_rank0: bool
    seed: int


@dataclass(frozen=True)
class _Place:
    """Where a job runs, and by what."""

    snapshot: NetworkSnapshot
    given: tuple[str, ...]
    slots: tuple[int, ...]
    candidates: Candidates
    request: LaunchRequest | None = None


def _of_snapshot(words: Sequence[str], wanted: _Wanted) -> _Place:
    """Return the place that a snapshot and the options beside it name."""
    from cloudcoll.cli.probing import named_hosts
    from cloudcoll.hosts import matched_names
    from cloudcoll.launch.own_host import addresses_of
    from cloudcoll.snapshot import load_snapshot

    if len(words) > 1:
        raise UsageError(f"{words[0]} is a snapshot: leave out {words[1]!r}")
    if not wanted.library:
        raise UsageError("whose algorithms? add --library openmpi@5.0, or mpich@5")
    snapshot = load_snapshot(Path(words[0]))
    hosts = named_hosts(wanted.hostfile, wanted.names) or snapshot.hosts
    addresses = {name: snapshot.addresses.get(name, name) for name in snapshot.names}
    given = tuple(matched_names(hosts, addresses, addresses_of))
    slots = tuple(host.slots or 1 for host in hosts)
    settings = forced_settings(wanted.library, os.environ)
    found = _candidates(wanted.library, slots, settings)
    return _Place(snapshot, given, slots, found)


def _of_launch(words: Sequence[str], wanted: _Wanted) -> _Place:
    """Return the place that a launcher's command line names."""
    from cloudcoll.bench.plan import MPI_PROGRAM
    from cloudcoll.launch import parse_launch

    if wanted.hostfile or wanted.names:
        raise UsageError("the launcher says which hosts: leave out --hostfile and -w")
    request = parse_launch((*words, *MPI_PROGRAM), os.environ)
    if request.start < len(words):
        # The program's own words, of which only the launcher makes anything.
        request = parse_launch((*words[: request.start], *MPI_PROGRAM), os.environ)
    if request.cyclic:
        raise LaunchError(
            "ranks are dealt over the hosts in turn: tune needs them host by host "
            "(--map-by slot)"
        )
    library = wanted.library or request.library
    if not library:
        raise UsageError("whose algorithms? add --library openmpi@5.0, or mpich@5")
    wish = Wish(
        snapshot_path=wanted.snapshot_path,
        probe=wanted.probe,
        free_rank0=wanted.free_rank0,
    )
    found = _candidates(library, request.slots, request.settings)
    snapshot = usable_snapshot(request, wish)
    return _Place(snapshot, request.used, request.slots, found, request)


def _candidates(
    library: str, slots: tuple[int, ...], settings: Mapping[str, str]
) -> Candidates:
    from cloudcoll.tune.candidates import Candidates

    if sum(slots) < 2:
        raise UsageError("a single rank sends nothing: there is nothing to tune")
    return Candidates(library, sum(slots), local_ranks(slots), settings)


def _asked(wanted: _Wanted, candidates: Candidates) -> tuple[Asked, bool]:
    """Return what to tune, and whether all sizes are to count alike."""
    from cloudcoll.tune.calls import asked_of_sizes, asked_of_workload

    if wanted.workload or wanted.parallel:
        if wanted.collective or wanted.size is not None:
            raise UsageError(
                "--collective and --bytes are for one collective: a workload has "
                "its own"
            )
        workload = named_workload(wanted.workload, wanted.parallel, candidates.ranks)
        asked = asked_of_workload(workload, candidates)
        return _tunable(asked, candidates), False
    names = [one.strip() for one in (wanted.collective or "allreduce").split(",")]
    for name in names:
        if by := candidates.forced_by(name):
            say(f"{by} is set: {name} stays as that says")
        elif not candidates.is_tunable(name):
            raise UsageError(f"{candidates.library} can't be told which {name} to run")
    names = [name for name in names if candidates.is_tunable(name)]
    if not names:
        raise UsageError("nothing is left to choose: unset what chooses already")
    sizes = [] if wanted.size is None else [wanted.size]
    what = f"{', '.join(names)} of "
    what += "1 KiB to 32 MiB, as long in each size," if not sizes else "one size"
    return asked_of_sizes(names, sizes, candidates.ranks, what), not sizes


def _tunable(asked: Asked, candidates: Candidates) -> Asked:
    """Return what is asked; say what of it stays the library's."""
    for name in dict.fromkeys(one.collective for one in asked.rest):
        if by := candidates.forced_by(name):
            say(f"{by} is set: {name} stays as that says")
    if not asked.calls:
        raise UsageError(
            f"{asked.name} calls nothing among all ranks that {candidates.library} "
            "can be told how to run: 'cloudcoll solve' finds its order"
        )
    return asked


def _is_snapshot(word: str) -> bool:
    """Return whether a word is the file of a snapshot, not a launcher."""
    try:
        with open(word, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
