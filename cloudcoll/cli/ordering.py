"""Which order a launch gets: from a map, a snapshot, or a quick probe first."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudcoll.cli.algorithm import AUTO, choose, same_library
from cloudcoll.cli.constraints import asked_constraints
from cloudcoll.cli.from_daemon import ask_daemon
from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.output import say
from cloudcoll.cli.searching import search_progress
from cloudcoll.cli.snapshots import usable_snapshot
from cloudcoll.cli.traffic import asked_workload, is_workload, workload_words
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.files import map_file, snapshot_file
from cloudcoll.hosts import host_set_key
from cloudcoll.launch import LaunchRequest
from cloudcoll.libraries import Selection
from cloudcoll.rankmap import RankMap, load_rankmap

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.measured.snapshot import NetworkSnapshot


def obtain_map(request: LaunchRequest, wish: Wish) -> RankMap:
    """Return the order for a launch, probing first where that is needed.

    Raises
    ------
    CloudcollError
        No usable measurement of these hosts; the message says what to do.
    """
    if wish.map_path:
        return load_rankmap(wish.map_path)
    _refuse(request, wish)
    several = is_workload(wish.workload, wish.parallel)
    chosen = None if several else own_algorithm(request, wish)
    question = _question(request, wish, chosen)
    rank_map = None
    if not wish.snapshot_path:
        vouched, rank_map = ask_daemon(request, wish, question)
        if vouched:
            wish = replace(wish, max_age=math.inf)
    rank_map = rank_map or _remembered(request, wish, question)
    if rank_map is None:
        snapshot = usable_snapshot(request, wish)
        rank_map = _solved(snapshot, request, wish, chosen, question)
    if chosen is None:
        say(f"solved for workload {rank_map.schedule['workload']}")
    elif wish.algorithm == AUTO:
        say(f"solved for {wish.collective} by {chosen}")
    return rank_map


def _refuse(request: LaunchRequest, wish: Wish) -> None:
    """Raise LaunchError for what can't be asked of this launch."""
    several = wish.workload or wish.parallel
    if request.cyclic and (several or wish.pins or wish.same_rack):
        raise LaunchError(
            "ranks are dealt over the hosts in turn: --workload, --parallel, --pin and "
            "--same-rack need them host by host (--map-by slot)"
        )
    if wish.take and not request.share:
        raise LaunchError(
            "--take needs the same number of ranks on every host, not "
            f"{', '.join(map(str, request.slots[:6]))}"
        )


def own_algorithm(request: LaunchRequest, wish: Wish) -> Selection:
    """Return the algorithm asked for, or what the job's library takes by itself.

    Raises
    ------
    UsageError
        An unknown library, or one whose choice is not known.
    """
    counts = tuple(count for count in request.counts if count)
    # A name is taken as it is: checking it would cost an import of NumPy.
    library = wish.library or (request.library if wish.algorithm == AUTO else "")
    own = not wish.library or same_library(wish.library, request.library)
    chosen = choose(
        wish.collective,
        wish.algorithm,
        library,
        counts,
        wish.size,
        settings=request.settings if own and request.library else None,
    )
    if request.cyclic and "local" in chosen.parameters:
        # The solver sees one pattern of a rank per host.
        return replace(chosen, parameters={**chosen.parameters, "local": 1})
    return chosen


def _remembered(request: LaunchRequest, wish: Wish, question: str) -> RankMap | None:
    """Return the order that an earlier run found in the same fresh snapshot.

    The first line of the snapshot says which one it is. Its content stays
    unread: importing NumPy for it takes longer than all the rest of a start.
    """
    path = wish.snapshot_path or snapshot_file(host_set_key(request.hosts))
    if not os.path.isfile(path):  # a pipe is read once, and may wait
        return None
    try:
        with open(path, "rb") as file:
            words = file.readline(200).split()
            age = abs(time.time() - os.fstat(file.fileno()).st_mtime)
    except OSError:
        # Whoever reads it in full says what is wrong with it.
        return None
    if len(words) != 4 or age > min(wish.max_age, _uptime()):
        return None
    digest = words[2].decode("ascii", "replace")
    known = map_file(digest, question)
    if not known.exists():
        return None
    try:
        return load_rankmap(known)
    except CloudcollError as error:
        say(f"{error}; solving again")
        return None


def _uptime() -> float:
    """Return seconds since this machine was started.

    An older snapshot is read in full: it says whether this host was in it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _question(request: LaunchRequest, wish: Wish, chosen: Selection | None) -> str:
    """Return the name of all that is asked."""
    sent = (
        collective_words(wish.collective, wish.size, chosen)
        if chosen
        else [wish.parallel, *workload_words(wish.workload)]
    )
    return question_key(
        sent,
        wish.candidates(request),
        request.slots,
        free_rank0=wish.free_rank0,
        kept=(wish.pins, wish.same_rack, wish.keep_below),
    )


def collective_words(collective: str, size: int, chosen: Selection) -> list[object]:
    """Return what names one collective in a question."""
    parameters = sorted(chosen.parameters.items())
    return [collective, size, chosen.algorithm, parameters]


def question_key(
    sent: Sequence[object],
    hosts: Sequence[str],
    slots: Sequence[int],
    *,
    free_rank0: bool = False,
    kept: Sequence[object] = ((), (), 0.0),
) -> str:
    """Return the name of a question: the same for the same job.

    Parameters
    ----------
    sent : sequence
        What the job sends; JSON values.
    hosts : sequence of str
        In the order given.
    slots : sequence of int
    free_rank0 : bool
    kept : sequence
        Pins, groups of one rack, and the least gain.
    """
    what = [sent, [hosts, slots, free_rank0], kept]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def _solved(
    snapshot: NetworkSnapshot,
    request: LaunchRequest,
    wish: Wish,
    chosen: Selection | None,
    question: str,
) -> RankMap:
    """Return the best order, and remember it."""
    from cloudcoll.solve import Watch, solve

    sent = sent_by(request, wish, chosen)
    hosts = wish.candidates(request)
    with search_progress(len(hosts)) as tell:
        rank_map = solve(
            snapshot,
            sent,
            given=hosts,
            slots=request.slots[:1] * len(hosts) if wish.take else request.slots,
            free_rank0=wish.free_rank0,
            constraints=asked_constraints(
                sent,
                pins=wish.pins,
                same_rack=wish.same_rack,
                keep_below=wish.keep_below,
                take=len(request.used) if wish.take else None,
            ),
            watch=Watch(tell=tell),
        )
    try:
        rank_map.save(map_file(snapshot.digest, question))
    except CloudcollError as error:
        # The order is known: a full disk is no reason to go without it.
        say(str(error))
    return rank_map


def sent_by(
    request: LaunchRequest, wish: Wish, chosen: Selection | None
) -> Schedule | Workload:
    """Return what the job sends."""
    from cloudcoll.collectives import build_schedule

    ranks = sum(request.slots)
    if chosen:
        return build_schedule(
            wish.collective,
            chosen.algorithm,
            ranks,
            wish.size,
            chosen.library,
            **chosen.parameters,
        )
    workload = asked_workload(wish.workload, wish.parallel, ranks)
    assert workload is not None, "an algorithm is chosen where none is asked for"
    return workload
