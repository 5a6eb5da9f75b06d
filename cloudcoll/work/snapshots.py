"""The snapshot that a launch is decided by: named, the latest, or probed now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll import units
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.own_host import addresses_of, own_name, own_places
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.request import OrderRequest

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.measured.snapshot import NetworkSnapshot


def measured_hosts(
    hosts: Sequence[Host], snapshot: NetworkSnapshot
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names that a snapshot has for hosts, and their slots, at least one."""
    from cloudcoll.hosts import matched_names

    addresses = {name: snapshot.addresses.get(name, name) for name in snapshot.names}
    names = matched_names(hosts, addresses, addresses_of)
    return tuple(names), tuple(host.slots or 1 for host in hosts)


def usable_snapshot(
    request: LaunchRequest, wanted: OrderRequest, reporter: Reporter = SILENT
) -> NetworkSnapshot:
    """Return a snapshot that has every host of the request, probed now if need be.

    CloudcollError if there is none, it is too old, or this host was rebooted since.
    """
    from cloudcoll.measured.snapshot import latest_path, load_snapshot

    path = wanted.snapshot_path or latest_path(request.hosts)
    if wanted.snapshot_path:
        found = load_snapshot(path)
        _check_hosts(found, path, request, wanted)
    else:
        latest = _latest(path, reporter)
        stale = _stale(latest, wanted)
        if wanted.probe and stale:
            probed = _probe(request, wanted, path, stale, reporter)
            _tell_unmeasured(probed, wanted.candidates(request), reporter)
            return probed
        if latest is None:
            raise LaunchError(
                f"no snapshot of the {len(request.hosts)} hosts of {request.source}: "
                "measure them with 'cloudcoll probe'"
            )
        found = latest
    _check_age(found, path, wanted, reporter)
    _tell_unmeasured(found, wanted.candidates(request), reporter)
    return found


def _tell_unmeasured(
    snapshot: NetworkSnapshot, wanted: Sequence[str], reporter: Reporter
) -> None:
    """Say which hosts of a launch could not be measured, and why."""
    lost = [name for name in wanted if name in snapshot.failed]
    if lost:
        whole = f"{len(lost)} of {len(wanted)} hosts" if len(lost) > 1 else lost[0]
        reporter.say(
            f"{whole} could not be measured ({lost[0]}: {snapshot.failed[lost[0]]}): "
            "the place in the order is a guess"
        )


def _latest(path: Path, reporter: Reporter) -> NetworkSnapshot | None:
    """Return the latest snapshot, None if there is none that is intact."""
    from cloudcoll.measured.snapshot import load_snapshot

    if not path.is_file():
        return None
    try:
        return load_snapshot(path)
    except CloudcollError as error:
        reporter.say(str(error))
        return None


def _stale(latest: NetworkSnapshot | None, wanted: OrderRequest) -> str:
    """Say why the latest snapshot is not used where another can be had; "" if it is."""
    if latest is None or abs(latest.age) > wanted.max_age:
        return "no fresh snapshot"
    return _rebooted(latest)


def _check_hosts(
    snapshot: NetworkSnapshot, path: Path, request: LaunchRequest, wanted: OrderRequest
) -> None:
    missing = [n for n in wanted.candidates(request) if n not in snapshot.names]
    if missing:
        raise LaunchError(
            f"{path} is of other hosts: it lacks {', '.join(missing[:3])}"
            f"{' ...' if len(missing) > 3 else ''} of {request.source}: probe again "
            "with 'cloudcoll probe'"
        )


def _check_age(
    snapshot: NetworkSnapshot, path: Path, wanted: OrderRequest, reporter: Reporter
) -> None:
    # A clock that went back makes an age negative: not to be trusted either.
    age = abs(snapshot.age)
    if age > wanted.too_old:
        raise LaunchError(
            f"{path} is {units.seconds(age)} old: probe again with 'cloudcoll probe'"
        )
    if stale := _rebooted(snapshot):
        raise LaunchError(f"{path}: {stale}: probe again with 'cloudcoll probe'")
    if age > wanted.max_age:
        reporter.say(
            f"{path} is {units.seconds(age)} old: probe again with 'cloudcoll probe'; "
            "used all the same, as --max-age was not given"
        )


def _rebooted(snapshot: NetworkSnapshot) -> str:
    """Say that this host was started anew since it was measured, "" if it was not.

    Of other hosts nobody can say so without asking them: the daemon does.
    """
    from cloudcoll.measured.merge import boot_ids, own_boot_id

    name, given = own_name(os.environ)
    places = own_places(snapshot.names, name, snapshot.addresses, given=given)
    if len(places) != 1:
        # None of them, such as a login node, or not to be told which.
        return ""
    own = snapshot.names[places[0]]
    measured, now = boot_ids(snapshot).get(own), own_boot_id()
    if measured and now and measured != now:
        return f"{own} was rebooted since it was measured"
    return ""


def _probe(
    request: LaunchRequest,
    wanted: OrderRequest,
    path: Path,
    why: str,
    reporter: Reporter,
) -> NetworkSnapshot:
    """Measure the hosts of the request quickly, and say so.

    What another probe of them has put at `path` meanwhile is taken in place of it.
    """
    from cloudcoll.report.snapshot import groups_words
    from cloudcoll.work.measure import choose_transport, obtain_snapshot, plan_for

    transport = choose_transport()
    plan = plan_for(request.hosts, transport, "quick")
    seconds = units.seconds(plan.seconds)
    if plan.sure_s:
        most = units.seconds(plan.most_seconds)
        seconds += f", at most {most} until the racks are sure"
    reporter.say(f"{why}: probing {len(request.hosts)} hosts, {seconds}")

    def known() -> NetworkSnapshot | None:
        latest = _latest(path, reporter)
        return None if _stale(latest, wanted) else latest

    snapshot = obtain_snapshot(
        request.hosts, transport, plan, reporter=reporter, known=known
    )
    if snapshot.fabric:
        reporter.say(groups_words(snapshot.fabric))
    return snapshot
