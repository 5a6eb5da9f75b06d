"""Start a job in the order that its network favours: what ``run`` does.

Whatever goes wrong before a rank was started ends in the command as it was typed,
once, and a line that says why.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch import (
    LaunchPlan,
    LaunchRequest,
    NoLauncher,
    NotStarted,
    choose_inbox,
    execute,
    host_launcher,
    parse_launch,
    plan_launch,
)
from cloudcoll.launch.signals import FORWARDED
from cloudcoll.libraries import LIBRARIES, library_key
from cloudcoll.local_daemon import daemon_socket, take_lease
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.report.gains import gain_words, gap_words, order_words
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.order import order_of_launch, validated
from cloudcoll.work.request import OrderRequest

if TYPE_CHECKING:
    from cloudcoll.launch.plan import HostLauncher
    from cloudcoll.launch.tuned import Tuned

INJECT = ("auto", "launcher", "shim", "none")
"""Where an order takes effect; ``auto`` is the launcher, or the shim if it can't."""


@dataclass(frozen=True)
class StartOptions:
    """How a job is started.

    Attributes
    ----------
    inject : str
        One of `INJECT`.
    strict : bool
        Rather start nothing than the command unchanged.
    validate : bool
        Load the network in both orders for 5 s, and take the faster.
    profile : Path or None
        File for what the job calls of MPI.
    verbose : bool
        Have the reporter hear of what was done.
    take_over : bool
        Let a job that needs nothing more of us take this process over.
    """

    inject: str = "auto"
    strict: bool = False
    validate: bool = False
    profile: Path | None = None
    verbose: bool = False
    take_over: bool = False


def start(
    argv: Sequence[str],
    wanted: OrderRequest | None = None,
    options: StartOptions | None = None,
    reporter: Reporter = SILENT,
) -> int:
    """Start a job in the order of hosts that the network favours, and wait for it.

    Parameters
    ----------
    argv : sequence of str
        The job's command line, as in ``mpirun --hostfile hosts ./app``.
    wanted : OrderRequest, optional
        What is asked of the order.
    options : StartOptions, optional
    reporter : Reporter, optional
        Hears of progress, of what was assumed, and why a command runs unchanged.

    Returns
    -------
    int
        The exit code of the job.

    Raises
    ------
    LaunchError
        It could not be started, or not as `StartOptions.strict` demands.

    Examples
    --------
    >>> import cloudcoll
    >>> cloudcoll.start(["sh", "-c", "exit 3"])
    3
    """
    options = options or StartOptions()
    prepared = prepare(argv, wanted or OrderRequest(), options, reporter)
    before = _written_at(options.profile)
    plans = [prepared.plan, prepared.typed, LaunchPlan(tuple(argv))]
    kept = contextlib.nullcontext() if options.take_over else _kept_handlers()
    with kept:
        code = _start(plans, options, reporter)
    _tell_of_profile(options.profile, before, reporter)
    return code


@dataclass(frozen=True)
class PreparedJob:
    """What a command becomes.

    Attributes
    ----------
    plan : LaunchPlan
        What to start.
    rank_map : RankMap or None
        The order that it follows, if there is a choice.
    typed : LaunchPlan
        The command as it was typed, its calls counted if that was asked.
    """

    plan: LaunchPlan
    rank_map: RankMap | None
    typed: LaunchPlan


def prepare(
    argv: Sequence[str],
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter = SILENT,
    *,
    dry_run: bool = False,
) -> PreparedJob:
    """Return what a command becomes; nothing is started, and on a dry run not probed.

    LaunchError if no order can be decided, and `StartOptions.strict` is set.
    """
    typed = LaunchPlan(tuple(argv))
    if dry_run:
        # It starts nothing, so it does not probe either.
        wanted = replace(wanted, probe=False)
    try:
        typed = _as_typed(tuple(argv), options.profile, reporter)
        plan, rank_map = _plan(typed.argv, wanted, options, reporter, dry_run)
        plan = _beside(plan, typed)
        if plan.caution:
            reporter.say(plan.caution)
        if not dry_run:
            _tell(plan, rank_map, options.verbose, reporter)
        return PreparedJob(plan, rank_map, typed)
    except Exception as error:
        # What can't be run is said once, when the command as typed is tried.
        if options.strict or dry_run or not isinstance(error, NoLauncher):
            _tell_why(error, options.strict, reporter)
        return PreparedJob(typed, None, typed)


@contextlib.contextmanager
def _kept_handlers() -> Iterator[None]:
    """Have signals handled afterwards as before: a job takes those of its time."""
    before = {number: signal.getsignal(number) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(
    plans: Sequence[LaunchPlan], options: StartOptions, reporter: Reporter
) -> int:
    """Start the first of several plans that can be started; return its exit code.

    `execute` raises only while no rank has been started, so that none is twice.
    """
    plan, *others = plans
    try:
        return execute(
            plan, strict=options.strict, stay=not options.take_over, say=reporter.say
        )
    except Exception as error:
        left = [other for other in others if other != plan]
        if isinstance(error, NotStarted) and error.exit_code == 127:
            # The same program is no more there for another plan.
            left = [other for other in left if other.argv[0] != plan.argv[0]]
        if not left:
            raise
        _tell_why(error, options.strict, reporter)
    return _start(left, options, reporter)


def _tell_why(error: Exception, strict: bool, reporter: Reporter) -> None:
    """Say why the command runs as typed, or raise if it is not to be started then."""
    reason = str(error)
    if not isinstance(error, CloudcollError):
        # The job matters more than a bug of ours, which is told all the same.
        if os.environ.get("CLOUDCOLL_DEBUG"):
            raise error
        reason = f"unexpected {type(error).__name__}: {error} (see CLOUDCOLL_DEBUG=1)"
    if strict:
        raise LaunchError(f"{reason}; not started because of --strict")
    reporter.say(f"{reason}; running the command unchanged")


def _tell(
    plan: LaunchPlan, rank_map: RankMap | None, verbose: bool, reporter: Reporter
) -> None:
    """Say what there is to know of a plan before it starts, and lease its hosts."""
    if verbose and plan.placement:
        reporter.say(f"order: {' '.join(dict.fromkeys(plan.placement))}")
    if verbose and rank_map and (words := gap_words(rank_map)):
        reporter.say(words)
    if rank_map and daemon_socket():
        _lease(rank_map.order, reporter)


def _lease(hosts: tuple[str, ...], reporter: Reporter) -> None:
    """Have no daemon probe these hosts while the job runs."""
    try:
        take_lease(hosts)
    except CloudcollError as error:
        reporter.say(f"{error}; a daemon may probe the job's hosts")


def _plan(
    argv: tuple[str, ...],
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter,
    dry_run: bool,
) -> tuple[LaunchPlan, RankMap | None]:
    """Return what to run, and the map it follows if there is a choice."""
    inject = options.inject
    if inject == "none":
        return LaunchPlan(argv), None
    if here := host_launcher(argv):
        if options.validate:
            reporter.say(
                f"{here.title} is started on every host: the order is not validated"
            )
        return _plan_here(here, argv, wanted, options, reporter)
    try:
        request = parse_launch(argv, os.environ)
    except CloudcollError as error:
        if inject == "launcher" or not wanted.map_path:
            raise
        because = str(error) if inject == "auto" else ""
        return _plan_unread(argv, wanted, options, reporter, because)
    movable = len(wanted.candidates(request)) - (0 if wanted.free_rank0 else 1)
    if movable < 2 and not wanted.map_path and not wanted.pins:
        return LaunchPlan(argv), None
    rank_map = order_of_launch(request, wanted, reporter)
    if options.validate and not dry_run:
        rank_map = validated(request, rank_map, wanted, reporter)
    if tuned := _tuned(request, rank_map, wanted, options, reporter):
        request = tuned.request
    plan = _injected(request, rank_map, wanted, inject, reporter)
    if tuned:
        plan = tuned.added_to(plan)
    if not plan.placement and plan.argv == argv:
        reporter.say(rank_map.kept or "no gain expected: order kept")
        return plan, rank_map
    if rank_map.assumption:
        reporter.say(f"order {rank_map.assumption}")
    return replace(plan, summary=_summary(request, rank_map, tuned, wanted)), rank_map


def _summary(
    request: LaunchRequest, rank_map: RankMap, tuned: Tuned | None, wanted: OrderRequest
) -> str:
    words = order_words(rank_map)
    if tuned and rank_map.order == request.used:
        words = rank_map.kept or "order kept"
    if tuned and tuned.collectives:
        words += f"; algorithms chosen for {', '.join(tuned.collectives)}"
    elif (wanted.tune or wanted.map_path) and _changes_algorithms(rank_map):
        words += "; that is predicted for the map's algorithms, which do not run"
    elif wanted.map_path and (library := _of_another_library(request, rank_map)):
        words += f"; that is predicted for a job that sends by {library}"
    return words


def _of_another_library(request: LaunchRequest, rank_map: RankMap) -> str:
    """Return the title of a map's library, empty if it is the job's or not known."""
    library = str(rank_map.schedule.get("run_by", ""))
    if not library or not request.library or library == library_key(request.library):
        return ""
    # A later version may have written the map, of a library that is not known here.
    return LIBRARIES[library].title if library in LIBRARIES else library


def _changes_algorithms(rank_map: RankMap) -> bool:
    return rank_map.tuning is not None and rank_map.tuning.changes_anything


def _plan_unread(
    argv: tuple[str, ...],
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter,
    because: str,
) -> tuple[LaunchPlan, RankMap]:
    """Return the plan by a shim of a command that could not be read, and the map."""
    from cloudcoll.launch.shim import ROLL_KEY, plan_shim_unread, shim_of

    assert wanted.map_path
    rank_map = load_rankmap(wanted.map_path)
    inside, shim = shim_of(wanted.library)
    if because:
        reporter.say(
            f"{because}; reordering inside {inside}, if variables reach the ranks"
        )
    if wanted.tune:
        notes = ("no algorithms are told to a job whose launch could not be read",)
        _tell_untold(notes, (), rank_map, options, reporter)
    inbox = choose_inbox(key=ROLL_KEY)
    return plan_shim_unread(argv, rank_map, os.environ, inbox, shim), rank_map


def _tell_untold(
    notes: Sequence[str],
    told: Sequence[str],
    rank_map: RankMap,
    options: StartOptions,
    reporter: Reporter,
) -> None:
    """Say what of a map's algorithms is not in force; `told` are collectives that are.

    Raises
    ------
    LaunchError
        There are none, with ``--strict``.
    """
    if options.strict and _changes_algorithms(rank_map) and not told:
        raise LaunchError(f"--tune: {'; '.join(notes)}")
    for note in notes:
        reporter.say(f"--tune: {note}")


def _tuned(
    request: LaunchRequest,
    rank_map: RankMap,
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter,
) -> Tuned | None:
    """Return the launch with the algorithms of a map; None if none are wanted."""
    if not wanted.tune:
        if rank_map.tuning and (words := gain_words(rank_map.tuning)):
            reporter.say(words)
        return None
    if not rank_map.tuning:
        hint = " (see 'cloudcoll tune')" if wanted.map_path else ""
        reporter.say(
            f"--tune: no algorithms for this order{hint}; the library's own run"
        )
        return None
    from cloudcoll.launch.tuned import tuned_launch

    tuned = tuned_launch(request, rank_map.tuning, os.environ)
    _tell_untold(tuned.notes, tuned.collectives, rank_map, options, reporter)
    return tuned


def _plan_here(
    here: HostLauncher,
    argv: tuple[str, ...],
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter,
) -> tuple[LaunchPlan, RankMap | None]:
    """Return what to run on this host, and the map it follows at its start."""
    from cloudcoll.launch.own_host import own_host

    host = own_host(wanted.map_path, os.environ, free_rank0=wanted.free_rank0)
    plan = followed = None
    if options.inject != "shim":
        try:
            plan, followed = here.plan(argv, os.environ, host), host.rank_map
        except LaunchError as error:
            from cloudcoll.launch.shim import NCCL, shim_of

            inside, shim = shim_of(wanted.library)
            if options.inject == "launcher" or shim != NCCL:
                raise
            reporter.say(f"{error}; reordering inside {inside} instead")
    if plan is None:
        from cloudcoll.launch.shim import plan_here

        plan = plan_here(here, argv, wanted.map_path, os.environ)
    return _tuned_here(plan, host.rank_map, wanted, options, reporter), followed


def _tuned_here(
    plan: LaunchPlan,
    rank_map: RankMap,
    wanted: OrderRequest,
    options: StartOptions,
    reporter: Reporter,
) -> LaunchPlan:
    """Return the plan of this host with the algorithms, if they are asked for."""
    if not (wanted.tune and rank_map.tuning):
        return plan
    from cloudcoll.launch.tuned import own_variables

    told = own_variables(rank_map.tuning, os.environ)
    _tell_untold(told.notes, told.collectives, rank_map, options, reporter)
    return replace(plan, env={**told.variables, **plan.env})


def _injected(
    request: LaunchRequest,
    rank_map: RankMap,
    wanted: OrderRequest,
    inject: str,
    reporter: Reporter,
) -> LaunchPlan:
    """Return the plan by the launcher, or by the shim if that is all there is."""
    if inject == "shim":
        return _inside(request, rank_map, wanted.library, reporter)
    # Not by `tempfile`, whose import is a fiftieth of a start.
    scratch = Path(os.environ.get("TMPDIR") or "/tmp")
    directory = scratch / f"cloudcoll-{os.urandom(8).hex()}"
    moves_rank0 = wanted.free_rank0 or any(rank == 0 for rank, _ in wanted.pins)
    heard = replace(request, inbox=choose_inbox(request))
    try:
        return plan_launch(heard, rank_map, directory=directory, free_rank0=moves_rank0)
    except LaunchError as error:
        if inject == "launcher" or set(rank_map.order) != set(request.used):
            raise
        return _inside(request, rank_map, wanted.library, reporter, str(error))


def _inside(
    request: LaunchRequest,
    rank_map: RankMap,
    library: str,
    reporter: Reporter,
    because: str = "",
) -> LaunchPlan:
    """Return the plan by a shim, imported where a job needs it alone."""
    from cloudcoll.launch.shim import ROLL_KEY, plan_shim, shim_of

    inside, shim = shim_of(library)
    if because:
        reporter.say(f"{because}; reordering inside {inside} instead")
    return plan_shim(request, rank_map, choose_inbox(request, ROLL_KEY), shim)


def _as_typed(
    argv: tuple[str, ...], profile: Path | None, reporter: Reporter = SILENT
) -> LaunchPlan:
    """Return the plan of a command as typed, its calls counted if that is asked."""
    if profile is None:
        return LaunchPlan(argv)
    from cloudcoll.launch.shim import ROLL_KEY, plan_profile

    try:
        return plan_profile(argv, os.environ, profile, choose_inbox(key=ROLL_KEY))
    except CloudcollError as error:
        reporter.say(f"no profile: {error}")
        return LaunchPlan(argv)


def _beside(plan: LaunchPlan, typed: LaunchPlan) -> LaunchPlan:
    """Return a plan with the variables and the roll of `typed` added."""
    env = {**typed.env, **plan.env}
    return replace(plan, env=env, roll=plan.roll or typed.roll)


def _tell_of_profile(profile: Path | None, before: int, reporter: Reporter) -> None:
    """Say so if a job left no profile: it is as old as before the start."""
    if profile and _written_at(profile) == before:
        reporter.say(
            f"no profile at {profile}: rank 0 writes it on its own host, in "
            "MPI_Finalize, if all ranks have the preloaded library"
        )


def _written_at(path: Path | None) -> int:
    """Return when a file was written, in ns; 0 for no file."""
    try:
        return path.stat().st_mtime_ns if path else 0
    except OSError:
        return 0
