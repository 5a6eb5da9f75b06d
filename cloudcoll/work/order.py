"""Which order a launch gets: from a map, a snapshot, or a quick probe first.

And whether it is faster than the one given, measured before the start.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll import units
from cloudcoll.errors import CloudcollError, LaunchError, UnusableError
from cloudcoll.files import (
    NOT_JSON,
    map_file,
    snapshot_file,
    stored_digest,
    strict_json,
    write_atomic,
)
from cloudcoll.hosts import host_set_key
from cloudcoll.launch import LaunchRequest
from cloudcoll.libraries import Selection
from cloudcoll.local_daemon import ASK_SECONDS, ask, daemon_socket
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.request import OrderRequest
from cloudcoll.work.sent import (
    AUTO,
    asked_constraints,
    asked_workload,
    choose,
    is_workload,
    same_library,
    schedule_by,
    workload_words,
)
from cloudcoll.work.snapshots import usable_snapshot

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.measured.snapshot import NetworkSnapshot


def order_of_launch(
    request: LaunchRequest, wanted: OrderRequest, reporter: Reporter = SILENT
) -> RankMap:
    """Return the order for a launch, probing first where that is needed.

    Without a usable measurement of its hosts the error says what to do.
    """
    if wanted.map_path:
        return load_rankmap(wanted.map_path)
    _refuse(request, wanted)
    several = is_workload(wanted.workload, wanted.parallel)
    chosen = None if several else own_algorithm(request, wanted)
    question = _question(request, wanted, chosen)
    rank_map = None
    if not wanted.snapshot_path:
        vouched, rank_map = ask_daemon(request, wanted, question, reporter)
        if vouched:
            wanted = replace(wanted, max_age=math.inf)
    rank_map = rank_map or _remembered(request, wanted, question, reporter)
    if rank_map is None:
        snapshot = usable_snapshot(request, wanted, reporter)
        rank_map = _solved(snapshot, request, wanted, chosen, question, reporter)
    if chosen is None:
        reporter.say(f"solved for workload {rank_map.schedule['workload']}")
    elif wanted.algorithm == AUTO:
        reporter.say(f"solved for {wanted.collective} by {chosen}")
    return rank_map


def _refuse(request: LaunchRequest, wanted: OrderRequest) -> None:
    """Raise LaunchError for what can't be asked of this launch."""
    several = wanted.workload or wanted.parallel
    if request.cyclic and (several or wanted.pins or wanted.same_rack):
        raise LaunchError(
            "ranks are dealt over the hosts in turn: --workload, --parallel, --pin and "
            "--same-rack need them host by host (--map-by slot)"
        )
    if wanted.take and not request.share:
        raise LaunchError(
            "--take needs the same number of ranks on every host, not "
            f"{', '.join(map(str, request.slots[:6]))}"
        )


def own_algorithm(request: LaunchRequest, wanted: OrderRequest) -> Selection:
    """Return the algorithm asked for, or what the job's library takes by itself."""
    counts = tuple(count for count in request.counts if count)
    # A name is taken as it is: checking it would cost an import of NumPy.
    library = wanted.library or (request.library if wanted.algorithm == AUTO else "")
    own = not wanted.library or same_library(wanted.library, request.library)
    chosen = choose(
        wanted.collective,
        wanted.algorithm,
        library,
        counts,
        wanted.size,
        settings=request.settings if own and request.library else None,
    )
    if request.cyclic and "local" in chosen.parameters:
        # The solver sees one pattern of a rank per host.
        return replace(chosen, parameters={**chosen.parameters, "local": 1})
    return chosen


def _remembered(
    request: LaunchRequest, wanted: OrderRequest, question: str, reporter: Reporter
) -> RankMap | None:
    """Return the order that an earlier run found in the same fresh snapshot.

    The first line of the snapshot says which one it is. Its content stays
    unread: importing NumPy for it takes longer than all the rest of a start.
    """
    path = wanted.snapshot_path or snapshot_file(host_set_key(request.hosts))
    if not os.path.isfile(path):  # a pipe is read once, and may wait
        return None
    try:
        with open(path, "rb") as file:
            words = file.readline(200).split()
            age = abs(time.time() - os.fstat(file.fileno()).st_mtime)
    except OSError:
        # Whoever reads it in full says what is wrong with it.
        return None
    if len(words) != 4 or age > min(wanted.max_age, _uptime()):
        return None
    digest = words[2].decode("ascii", "replace")
    known = map_file(digest, question)
    if not known.exists():
        return None
    try:
        return load_rankmap(known)
    except CloudcollError as error:
        reporter.say(f"{error}; solving again")
        return None


def _uptime() -> float:
    """Return seconds since this machine was started.

    An older snapshot is read in full: it says whether this host was in it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _question(
    request: LaunchRequest, wanted: OrderRequest, chosen: Selection | None
) -> str:
    """Return the name of all that is asked."""
    sent: list[object] = (
        collective_words(wanted.collective, wanted.size, chosen)
        if chosen
        else [wanted.parallel, *workload_words(wanted.workload)]
    )
    if wanted.tune:
        sent.append("tune")
    return question_key(
        sent,
        wanted.candidates(request),
        request.slots,
        free_rank0=wanted.free_rank0,
        kept=(wanted.pins, wanted.same_rack, wanted.keep_below),
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
    kept: Sequence[object] = ((), (), None),
) -> str:
    """Return the name of a question: the same for the same job.

    Of what the job sends, JSON values, and the hosts in the order given; `kept` are
    pins, groups of one rack, and the least gain.
    """
    what = [sent, [hosts, slots, free_rank0], kept]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def _solved(
    snapshot: NetworkSnapshot,
    request: LaunchRequest,
    wanted: OrderRequest,
    chosen: Selection | None,
    question: str,
    reporter: Reporter,
) -> RankMap:
    """Return the best order, with algorithms if they are wanted, and remember it."""
    from cloudcoll.model import fabric_of
    from cloudcoll.solve import Watch, solve
    from cloudcoll.solve.constraints import least_gain
    from cloudcoll.work.tune import tuned_order, tuning_in

    sent = sent_by(request, wanted, chosen)
    hosts = wanted.candidates(request)
    fabric, least = fabric_of(snapshot), wanted.keep_below
    snapshot = replace(snapshot, fabric=fabric)
    rank_map = tuned_order(request, snapshot, wanted, reporter) if wanted.tune else None
    if rank_map is None:
        with reporter.searching(len(hosts)) as tell:
            rank_map = solve(
                snapshot,
                sent,
                given=hosts,
                slots=request.slots[:1] * len(hosts) if wanted.take else request.slots,
                free_rank0=wanted.free_rank0,
                constraints=asked_constraints(
                    sent,
                    pins=wanted.pins,
                    same_rack=wanted.same_rack,
                    keep_below=least_gain(fabric) if least is None else least,
                    take=len(request.used) if wanted.take else None,
                ),
                watch=Watch(tell=tell),
            )
        if chosen and not wanted.tune:
            # The order is for the library's own; each start says what another gains.
            tuning = tuning_in(rank_map, request, snapshot, wanted)
            rank_map = replace(rank_map, tuning=tuning)
    try:
        rank_map.save(map_file(snapshot.digest, question))
    except CloudcollError as error:
        # The order is known: a full disk is no reason to go without it.
        reporter.say(str(error))
    return rank_map


def sent_by(
    request: LaunchRequest, wanted: OrderRequest, chosen: Selection | None
) -> Schedule | Workload:
    """Return what the job sends."""
    ranks = sum(request.slots)
    if chosen:
        return schedule_by(chosen, wanted.collective, ranks, wanted.size)
    workload = asked_workload(wanted.workload, wanted.parallel, ranks)
    assert workload is not None, "an algorithm is chosen where none is asked for"
    return workload


FETCH_SECONDS = 5.0
"""For a whole snapshot: some megabytes, and a probe is slower."""


def ask_daemon(
    request: LaunchRequest, wanted: OrderRequest, question: str, reporter: Reporter
) -> tuple[bool, RankMap | None]:
    """Return whether a daemon vouches for these hosts' snapshot, and its map.

    The snapshot is then where the latest of these hosts is kept. A daemon that
    does not answer, or knows other hosts, is none.
    """
    socket = daemon_socket()
    response = socket and ask(socket, f"/v1/map?question={question}")
    if not socket or not response:
        return False, None
    status, body = response
    try:
        if status == 200:
            rank_map = RankMap.from_json(body.decode(), "the daemon's map")
            fits = sorted(rank_map.order) == sorted(wanted.candidates(request))
            return fits, rank_map if fits else None
        news = strict_json(body)
        if status != 404 or not isinstance(news, dict):
            return False, None
        key, digest = host_set_key(request.hosts), str(news.get("snapshot"))
        return news.get("key") == key and _have(socket, key, digest), None
    except (*NOT_JSON, CloudcollError) as error:
        reporter.say(f"{error}; going on without the daemon")
        return False, None


def _have(socket: Path, key: str, digest: str) -> bool:
    """Return whether the daemon's snapshot is where ours are kept, now at last."""
    path = snapshot_file(key)
    if path.is_file():
        with path.open("rb") as file:
            if stored_digest(file.readline(200)) == digest:
                return True
    # The daemon is another user's.
    copied = ask(socket, f"/v1/snapshot?hosts={key}", FETCH_SECONDS, ASK_SECONDS)
    if not copied or copied[0] != 200:
        return False
    # Ours, though old, is not given up for what is none, or cut short.
    _, _, payload = copied[1].partition(b"\n")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise UnusableError("the daemon's snapshot is damaged")
    write_atomic(path, copied[1])
    return True


SLOWER = "it is not slower as measured"
"""Why an order stays because of what was measured."""


def validated(
    request: LaunchRequest,
    rank_map: RankMap,
    wanted: OrderRequest,
    reporter: Reporter = SILENT,
) -> RankMap:
    """Return the map of the order that is faster when all it sends is sent at once.

    One line says both figures. Where nothing can be measured it is the order given,
    and one line says why.
    """
    if rank_map.order == request.used:
        return rank_map
    try:
        times = _measured(request, rank_map, wanted)
    except CloudcollError as error:
        return _given(request, rank_map, f"no other could be validated ({error})")
    if times is None:
        reporter.say("both orders load the same links alike: the one given is launched")
        better = False
    else:
        given, chosen = times
        better = chosen < given
        reporter.say(
            f"measured under load: {units.seconds(given)} in the order given, "
            f"{units.seconds(chosen)} in the one chosen, which is "
            f"{'launched' if better else 'not launched'}"
        )
    if better:
        return rank_map
    return _given(request, rank_map, SLOWER)


def _given(request: LaunchRequest, rank_map: RankMap, reason: str) -> RankMap:
    """Return the map with the order given in its place, and no algorithms for it."""
    slots = tuple(count for count in request.counts if count)
    return replace(
        rank_map,
        order=request.used,
        slots=slots,
        dropped=(),
        origin="given",
        reason=reason,
        tuning=None,
    )


def _measured(
    request: LaunchRequest, rank_map: RankMap, wanted: OrderRequest
) -> tuple[float, float] | None:
    """Return the seconds of one call in the order given, and in the one chosen.

    None if the two send the same between hosts.
    """
    from cloudcoll.collectives import Schedule
    from cloudcoll.probe.rehearsal import alike, patterns, rehearse
    from cloudcoll.probe.shell import Shell
    from cloudcoll.work.measure import choose_transport

    several = is_workload(wanted.workload, wanted.parallel)
    sent = sent_by(request, wanted, None if several else own_algorithm(request, wanted))
    parts = [(1, sent)] if isinstance(sent, Schedule) else sent.parts
    transport = choose_transport()
    assert isinstance(transport, Shell), "jobs have a launcher of their own"
    names = {*request.used, *rank_map.order}
    hosts = tuple(host for host in request.hosts if host.name in names)
    position = {host.name: place for place, host in enumerate(hosts)}

    def places(order: Sequence[str]) -> list[int]:
        # Of dealt ranks the schedule has one on each host.
        each = order if request.cyclic else request.moved_to(order).place(order)
        return [position[name] for name in each]

    orders = {
        "given": patterns(parts, places(request.used)),
        "chosen": patterns(parts, places(rank_map.order)),
    }
    if alike(*orders.values()):
        return None
    times = rehearse(hosts, orders, transport)
    return times["given"], times["chosen"]
