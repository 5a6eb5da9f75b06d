"""The snapshot that a launch is decided by: named, the latest, or probed now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.output import say
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.own_host import own_name, own_places
from cloudcoll.report import units

if TYPE_CHECKING:
    from cloudcoll.snapshot import NetworkSnapshot


def usable_snapshot(request: LaunchRequest, wish: Wish) -> NetworkSnapshot:
    """Return a snapshot that has every host of the request.

    Raises
    ------
    CloudcollError
        There is none, it is too old, or this host was rebooted since; or the
        probe failed.
    """
    from cloudcoll.snapshot import latest_path, load_snapshot

    path = wish.snapshot_path or latest_path(request.hosts)
    if wish.snapshot_path:
        found = load_snapshot(path)
        _check_hosts(found, path, request, wish)
    else:
        latest = _latest(path)
        stale = "no fresh snapshot"
        if latest and abs(latest.age) <= wish.max_age:
            stale = _rebooted(latest)
        if wish.probe and stale:
            probed = _probe(request, stale)
            _tell_unmeasured(probed, wish.candidates(request))
            return probed
        if latest is None:
            raise LaunchError(
                f"no snapshot of the {len(request.hosts)} hosts of {request.source}: "
                "measure them with 'cloudcoll probe'"
            )
        found = latest
    _check_age(found, path, wish)
    _tell_unmeasured(found, wish.candidates(request))
    return found


def _tell_unmeasured(snapshot: NetworkSnapshot, wanted: Sequence[str]) -> None:
    """Say which hosts of a launch could not be measured, and why."""
    lost = [name for name in wanted if name in snapshot.failed]
    if lost:
        whole = f"{len(lost)} of {len(wanted)} hosts" if len(lost) > 1 else lost[0]
        say(
            f"{whole} could not be measured ({lost[0]}: {snapshot.failed[lost[0]]}): "
            "the place in the order is a guess"
        )


def _latest(path: Path) -> NetworkSnapshot | None:
    """Return the latest snapshot, None if there is none that is intact."""
    from cloudcoll.snapshot import load_snapshot

    if not path.is_file():
        return None
    try:
        return load_snapshot(path)
    except CloudcollError as error:
        say(str(error))
        return None


def _check_hosts(
    snapshot: NetworkSnapshot, path: Path, request: LaunchRequest, wish: Wish
) -> None:
    missing = [n for n in wish.candidates(request) if n not in snapshot.names]
    if missing:
        raise LaunchError(
            f"{path} is of other hosts: it lacks {', '.join(missing[:3])}"
            f"{' ...' if len(missing) > 3 else ''} of {request.source}: probe again "
            "with 'cloudcoll probe'"
        )


def _check_age(snapshot: NetworkSnapshot, path: Path, wish: Wish) -> None:
    # A clock that went back makes an age negative: not to be trusted either.
    age = abs(snapshot.age)
    if age > wish.too_old:
        raise LaunchError(
            f"{path} is {units.seconds(age)} old: probe again with 'cloudcoll probe'"
        )
    if stale := _rebooted(snapshot):
        raise LaunchError(f"{path}: {stale}: probe again with 'cloudcoll probe'")
    if age > wish.max_age:
        say(
            f"{path} is {units.seconds(age)} old: probe again with 'cloudcoll probe'; "
            "used all the same, as --max-age was not given"
        )


def _rebooted(snapshot: NetworkSnapshot) -> str:
    """Say that this host was started anew since it was measured, "" if it was not.

    Of other hosts nobody can say so without asking them: the daemon does.
    """
    from cloudcoll.boots import boot_ids, own_boot_id

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


def _probe(request: LaunchRequest, why: str) -> NetworkSnapshot:
    """Measure the hosts of the request quickly, and say so."""
    from cloudcoll.cli.probing import choose_transport, obtain_snapshot, plan_for
    from cloudcoll.report.text import groups_words

    transport = choose_transport()
    plan = plan_for(request.hosts, transport, "quick")
    seconds = f"{plan.seconds:.0f} s"
    if plan.sure_s:
        seconds += f", at most {plan.most_seconds:.0f} s until the racks are sure"
    say(f"{why}: probing {len(request.hosts)} hosts, {seconds}")
    snapshot = obtain_snapshot(request.hosts, transport, plan)
    if snapshot.fabric:
        say(groups_words(snapshot.fabric))
    return snapshot
