"""``cloudcoll run``: a prefix that puts the best order in force."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from cloudcoll.cli.algorithm import ALGORITHM_HELP, AUTO
from cloudcoll.cli.constraints import constraint_options
from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.ordering import obtain_map
from cloudcoll.cli.output import print_lines, say
from cloudcoll.cli.params import DURATION, SIZE
from cloudcoll.cli.prefix import Prefix
from cloudcoll.cli.profiling import as_typed, beside, tell_of_profile, written_at
from cloudcoll.cli.traffic import workload_options
from cloudcoll.daemon.client import daemon_socket
from cloudcoll.daemon.leases import take_lease
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch import (
    LaunchPlan,
    LaunchRequest,
    choose_inbox,
    execute,
    host_launcher,
    parse_launch,
    plan_launch,
)
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.report import units
from cloudcoll.report.bound import gap_words, order_words
from cloudcoll.report.tunings import gain_words, tuning_lines

if TYPE_CHECKING:
    from cloudcoll.launch.launcher import HostLauncher
    from cloudcoll.launch.tuned import Tuned

INJECT = ("auto", "launcher", "shim", "none")
"""Where an order takes effect; ``auto`` is the launcher, or the shim if it can't."""


@click.command("run", cls=Prefix)
@click.option(
    "--snapshot",
    "snapshot_path",
    type=click.Path(path_type=Path),
    help="Snapshot to solve from, if not the latest.",
)
@click.option(
    "--map", "map_path", type=click.Path(path_type=Path), help="Rank map to follow."
)
@click.option("--dry-run", is_flag=True, help="Print the command line, start nothing.")
@click.option("--strict", is_flag=True, help="Exit 125 rather than run unchanged.")
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option(
    "--max-age",
    type=DURATION,
    help="Oldest snapshot to use.  [default: 1h, then probe if that is possible]",
)
@click.option("--collective", default="allreduce", show_default=True)
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option(
    "--library", default="", help="Library, if not the launcher's: nccl, gloo, ...."
)
@click.option(
    "--bytes",
    "size",
    type=SIZE,
    default="16MiB",
    show_default=True,
    help="Size of one call.",
)
@workload_options
@constraint_options
@click.option(
    "--inject",
    type=click.Choice(INJECT),
    default="auto",
    show_default=True,
    help="Reorder by the launcher, inside MPI or NCCL (shim), or not at all.",
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    help="File for what the job calls of MPI.",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Run the algorithms that the map chose, not the library's own.",
)
@click.option("--take", is_flag=True, help="Choose the best of all hosts listed.")
@click.option(
    "--validate", is_flag=True, help="Load both orders for 5 s, take the faster."
)
@click.option("-v", "--verbose", is_flag=True, help="Say what was done.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    launcher: tuple[str, ...],
    dry_run: bool,
    strict: bool,
    validate: bool,
    verbose: bool,
    inject: str,
    profile: Path | None,
    max_age: float | None,
    **wish: object,
) -> int:
    r"""Start the job of LAUNCHER in the order of hosts that the network favours.

    Only which host gets which ranks changes. Where no order can be decided,
    the command runs as typed and one line says why.

    \b
    cloudcoll run mpirun --hostfile hosts ./app
    cloudcoll run --dry-run mpirun -n 64 --hostfile hosts ./app
    cloudcoll run --parallel tp=4,dp=16 --same-rack tp mpirun --hostfile hosts ./app
    cloudcoll run --validate mpirun --hostfile hosts ./app
    cloudcoll run --take mpirun -n 48 --hostfile all-hosts ./app
    cloudcoll run --tune --map map.json mpirun --hostfile hosts ./app
    cloudcoll run --profile calls.json mpirun --hostfile hosts ./app
    """
    if max_age is not None:
        wish |= {"max_age": max_age, "too_old": max_age}
    wanted = Wish(**wish)  # type: ignore[arg-type]
    wanted.check()
    typed = LaunchPlan(launcher)
    rank_map = None
    try:
        typed = as_typed(launcher, profile)
        plan, rank_map = _plan(typed.argv, wanted, inject, dry_run, validate)
        plan = beside(plan, typed)
        if plan.caution:
            say(plan.caution)
        if not dry_run:
            _tell(plan, rank_map, verbose)
    except Exception as error:
        _tell_why(error, strict)
        plan = typed
    if dry_run:
        print_lines(describe(plan, rank_map))
        return 0
    before = written_at(profile)
    code = _start([plan, typed, LaunchPlan(launcher)], strict)
    tell_of_profile(profile, before)
    return _leave(code)


def _start(plans: Sequence[LaunchPlan], strict: bool) -> int:
    """Start the first of several plans that can be started; return its exit code.

    `execute` raises only while no rank has been started, so that none is twice.
    """
    plan, *others = plans
    try:
        return execute(plan, strict=strict, say=say)
    except Exception as error:
        if not (left := [other for other in others if other != plan]):
            raise
        _tell_why(error, strict)
    return _start(left, strict)


def _tell_why(error: Exception, strict: bool) -> None:
    """Say why the command runs as typed.

    Raises
    ------
    LaunchError
        It is not to be started then.
    """
    reason = str(error)
    if not isinstance(error, CloudcollError):
        # The job matters more than a bug of ours, which is told all the same.
        if os.environ.get("CLOUDCOLL_DEBUG"):
            raise error
        reason = f"unexpected {type(error).__name__}: {error} (see CLOUDCOLL_DEBUG=1)"
    if strict:
        raise LaunchError(f"{reason}; not started because of --strict")
    say(f"{reason}; running the command unchanged")


def _tell(plan: LaunchPlan, rank_map: RankMap | None, verbose: bool) -> None:
    """Say what there is to know of a plan before it starts, and lease its hosts."""
    if verbose and plan.placement:
        say(f"order: {' '.join(dict.fromkeys(plan.placement))}")
    if verbose and rank_map and (words := gap_words(rank_map)):
        say(words)
    if rank_map and daemon_socket():
        _lease(rank_map.order)


def _leave(code: int) -> NoReturn:
    """End now: the job has, and freeing all modules takes a tenth of a start."""
    # What can't be written any more is no reason for another exit code.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _lease(hosts: tuple[str, ...]) -> None:
    """Have no daemon probe these hosts while the job runs."""
    try:
        take_lease(hosts)
    except CloudcollError as error:
        say(f"{error}; a daemon may probe the job's hosts")


def _plan(
    argv: tuple[str, ...], wish: Wish, inject: str, dry_run: bool, validate: bool
) -> tuple[LaunchPlan, RankMap | None]:
    """Return what to run, and the map it follows if there is a choice."""
    if inject == "none":
        return LaunchPlan(argv), None
    if here := host_launcher(argv):
        if validate:
            say(f"{here.title} is started on every host: the order is not validated")
        return _plan_here(here, argv, wish, inject)
    try:
        request = parse_launch(argv, os.environ)
    except CloudcollError as error:
        if inject == "launcher" or not wish.map_path:
            raise
        from cloudcoll.launch.shim import ROLL_KEY, plan_shim_unread, shim_of

        rank_map = load_rankmap(wish.map_path)
        inside, shim = shim_of(wish.library)
        if inject == "auto":
            say(f"{error}; reordering inside {inside}, if variables reach the ranks")
        inbox = choose_inbox(key=ROLL_KEY)
        return plan_shim_unread(argv, rank_map, os.environ, inbox, shim), rank_map
    movable = len(wish.candidates(request)) - (0 if wish.free_rank0 else 1)
    if movable < 2 and not wish.map_path and not wish.pins:
        return LaunchPlan(argv), None
    # A dry run starts nothing, so it does not probe either.
    rank_map = obtain_map(request, replace(wish, probe=wish.probe and not dry_run))
    if validate and not dry_run:
        from cloudcoll.cli.validating import validated

        rank_map = validated(request, rank_map, wish)
    if tuned := _tuned(request, rank_map, wish):
        request = tuned.request
    plan = _injected(request, rank_map, wish, inject)
    if tuned:
        plan = tuned.added_to(plan)
    if not plan.placement and plan.argv == argv:
        say(rank_map.kept or "no gain expected: order kept")
        return plan, rank_map
    if rank_map.assumption:
        say(f"order {rank_map.assumption}")
    words = order_words(rank_map)
    if tuned and rank_map.order == request.used:
        words = rank_map.kept or "order kept"
    if tuned and tuned.collectives:
        words += f"; algorithms chosen for {', '.join(tuned.collectives)}"
    return replace(plan, summary=words), rank_map


def _tuned(request: LaunchRequest, rank_map: RankMap, wish: Wish) -> Tuned | None:
    """Return the launch with the algorithms of a map; None if none are wanted."""
    if not wish.tune:
        if rank_map.tuning and (words := gain_words(rank_map.tuning)):
            say(words)
        return None
    if not rank_map.tuning:
        say("--tune: the map has no algorithms; the library's own run")
        return None
    from cloudcoll.launch.tuned import tuned_launch

    tuned = tuned_launch(request, rank_map.tuning, os.environ)
    for note in tuned.notes:
        say(f"--tune: {note}")
    return tuned


def _plan_here(
    here: HostLauncher, argv: tuple[str, ...], wish: Wish, inject: str
) -> tuple[LaunchPlan, RankMap | None]:
    """Return what to run on this host, and the map it follows."""
    from cloudcoll.launch.own_host import own_host

    if inject != "shim":
        host = own_host(wish.map_path, os.environ, free_rank0=wish.free_rank0)
        try:
            plan = here.plan(argv, os.environ, host)
            return _tuned_here(plan, host.rank_map, wish), host.rank_map
        except LaunchError as error:
            from cloudcoll.launch.shim import shim_of

            if inject == "launcher" or shim_of(wish.library)[0] != "NCCL":
                raise
            say(f"{error}; reordering inside NCCL instead")
    from cloudcoll.launch.shim.nccl import plan_here

    return plan_here(here, argv, wish.map_path, os.environ), None


def _tuned_here(plan: LaunchPlan, rank_map: RankMap, wish: Wish) -> LaunchPlan:
    """Return the plan of this host with the algorithms, if they are asked for."""
    if not (wish.tune and rank_map.tuning):
        return plan
    from cloudcoll.launch.tuned import own_variables

    told = own_variables(rank_map.tuning, os.environ)
    for note in told.notes:
        say(f"--tune: {note}")
    return replace(plan, env={**told.variables, **plan.env})


def _injected(
    request: LaunchRequest, rank_map: RankMap, wish: Wish, inject: str
) -> LaunchPlan:
    """Return the plan by the launcher, or by the shim if that is all there is."""
    if inject == "shim":
        return _inside(request, rank_map, wish.library)
    # Not by `tempfile`, whose import is a fiftieth of a start.
    scratch = Path(os.environ.get("TMPDIR") or "/tmp")
    directory = scratch / f"cloudcoll-{os.urandom(8).hex()}"
    moves_rank0 = wish.free_rank0 or any(rank == 0 for rank, _ in wish.pins)
    heard = replace(request, inbox=choose_inbox(request))
    try:
        return plan_launch(heard, rank_map, directory=directory, free_rank0=moves_rank0)
    except LaunchError as error:
        if inject == "launcher" or set(rank_map.order) != set(request.used):
            raise
        return _inside(request, rank_map, wish.library, str(error))


def _inside(
    request: LaunchRequest, rank_map: RankMap, library: str, because: str = ""
) -> LaunchPlan:
    """Return the plan by a shim, imported where a job needs it alone."""
    from cloudcoll.launch.shim import ROLL_KEY, plan_shim, shim_of

    inside, shim = shim_of(library)
    if because:
        say(f"{because}; reordering inside {inside} instead")
    return plan_shim(request, rank_map, choose_inbox(request, ROLL_KEY), shim)


def describe(plan: LaunchPlan, rank_map: RankMap | None) -> Iterator[str]:
    """Yield the command line and, as comments, what belongs to it."""
    setting = [f"{name}={shlex.quote(value)}" for name, value in plan.env.items()]
    yield " ".join([*setting, shlex.join(plan.argv)])
    for path, text in plan.files.items():
        yield f"# {path}:"
        yield from (f"#   {line}" for line in text.splitlines())
    if rank_map:
        yield f"# order: {' '.join(rank_map.order)}"
        if rank_map.dropped:
            yield f"# left out: {' '.join(rank_map.dropped)}"
        if rank_map.tuning:
            yield from (f"# {line}" for line in tuning_lines(rank_map.tuning))
        if rank_map.assumption:
            yield f"# {rank_map.assumption}"
        if words := gap_words(rank_map):
            yield f"# {words}"
        for name, seconds in rank_map.predicted.items():
            yield f"# predicted, {name}: {units.seconds(seconds)}"
