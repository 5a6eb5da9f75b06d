"""Measure before the start whether the chosen order is faster than the one given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudcoll import units
from cloudcoll.errors import CloudcollError
from cloudcoll.launch import LaunchRequest
from cloudcoll.rankmap import RankMap
from cloudcoll.work.order import own_algorithm, sent_by
from cloudcoll.work.reporter import SILENT, Reporter
from cloudcoll.work.request import OrderRequest
from cloudcoll.work.sent import is_workload

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
    """Return the map with the order given in its place."""
    slots = tuple(count for count in request.counts if count)
    return replace(
        rank_map,
        order=request.used,
        slots=slots,
        dropped=(),
        origin="given",
        reason=reason,
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
