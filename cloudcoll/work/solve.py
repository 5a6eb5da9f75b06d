"""The best order of hosts for what a job sends: what ``solve`` does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.rankmap import CallOrder, RankMap
from cloudcoll.report.checks import missing_line, trusted_line
from cloudcoll.report.findings import honest_fabric, worst_hosts
from cloudcoll.report.gains import without_words
from cloudcoll.solve import Watch, solve
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.sent import (
    AUTO,
    asked_constraints,
    asked_schedule,
    asked_workload,
    is_workload,
)
from cloudcoll.work.snapshots import measured_hosts

SIZE = 16 << 20
"""Bytes of a call where nobody says more: a bucket of gradients is 25 MB in torch's
DDP, and large calls are what an order changes."""


def order_for(
    snapshot: NetworkSnapshot,
    hosts: Sequence[Host] = (),
    *,
    collective: str = "allreduce",
    algorithm: str = AUTO,
    library: str = "",
    size: int = SIZE,
    workload: str | None = None,
    parallel: str | None = None,
    pins: tuple[tuple[int, str], ...] = (),
    same_rack: Sequence[str] = (),
    keep_below: float = 0.0,
    take: int | None = None,
    free_rank0: bool = False,
    per_call: bool = False,
    seed: int = 0,
    solver: str | None = None,
    limit_s: float = 60.0,
    reporter: Reporter = SILENT,
) -> RankMap:
    """Return the order of hosts in which a job's collectives run fastest.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        What was measured of the hosts.
    hosts : sequence of Host, optional
        Those of the job, in the order given, with their slots; the snapshot's if
        not given.
    collective : str
        Such as ``allreduce``: a key of `cloudcoll.collectives.SCHEDULES`.
    algorithm : str
        By name, or ``auto``: what the library chooses itself.
    library : str
        ``openmpi``, ``mpich``, ``nccl``, ``gloo``, ..., with ``@VERSION`` if known;
        Open MPI if empty.
    size : int
        Bytes of one call.
    workload, parallel : str, optional
        Several collectives in place of one: see `cloudcoll.work.sent`.
    pins : tuple of (int, str)
        Ranks and the hosts that they stay on.
    same_rack : sequence of str
        Groups of ranks that share a rack.
    keep_below : float
        Share of the time that must be gained for the order to change.
    take : int, optional
        Use only the best so many hosts.
    free_rank0 : bool
        Let the host of rank 0 move.
    per_call : bool
        Also find an order for each collective of a workload, for the shim.
    seed : int
    solver : str, optional
        ``exact`` or ``local``; by the number of hosts if not given.
    limit_s : float
        Most seconds of a local search.
    reporter : Reporter, optional
        Hears of progress, of what was assumed and of hosts in the way.

    Returns
    -------
    RankMap
        Never predicted to be slower than the order given.

    Raises
    ------
    UsageError
        Unknown names, hosts that were not measured, or constraints that nothing
        fulfils.

    Examples
    --------
    >>> import cloudcoll
    >>> from cloudcoll.measured import synth
    >>> fabric = synth.racks((3, 2), seed=1)    # vm-... of two racks, shuffled
    >>> snapshot = synth.observe(fabric).with_fabric(fabric)
    >>> best = cloudcoll.order_for(snapshot, algorithm="ring", size=1 << 20)
    >>> best.predicted["cloudcoll"] <= best.predicted["given"]
    True
    """
    given, slots = measured_hosts(hosts or snapshot.hosts, snapshot)
    used, words, gain = slots[:take], "", ""
    sent: Schedule | Workload | None = asked_workload(workload, parallel, sum(used))
    ask = partial(asked_schedule, collective, algorithm, library, size=size)
    if sent is None:
        sent, words = ask(slots=used)
    constraints = asked_constraints(
        sent, pins=pins, same_rack=same_rack, keep_below=keep_below, take=take
    )
    with reporter.searching(len(given)) as tell:
        search = partial(
            solve,
            snapshot,
            seed=seed,
            solver=solver,
            free_rank0=free_rank0,
            watch=Watch(limit_s, tell),
        )
        rank_map = search(sent, given=given, slots=slots, constraints=constraints)
        if per_call:
            rank_map = _with_call_orders(rank_map, sent, search)
        if not is_workload(workload, parallel) and not rank_map.constraints:
            # What a workload would be with fewer ranks, nobody knows.
            slots_of = dict(zip(given, slots, strict=True))
            kept = () if free_rank0 else given[:1]
            gain = _gain_without_worst(rank_map, snapshot, slots_of, ask, search, kept)
    doubts = (check(snapshot, rank_map.order) for check in (trusted_line, missing_line))
    for line in filter(None, (words, *doubts, gain)):
        reporter.say(line)
    return rank_map


REORDERED = ("allreduce", "reduce", "bcast", "barrier", "allgather")
"""What can run in another order inside MPI."""


def _with_call_orders(
    rank_map: RankMap, sent: Schedule | Workload, solve: Callable[..., RankMap]
) -> RankMap:
    """Return a map with an order for each collective and size that gains by one."""
    if not isinstance(sent, Workload):
        raise UsageError("--per-call is for several collectives: add --workload W")
    alike: dict[tuple[str, int], list[Operation]] = {}
    for one in sent.operations:
        if one.collective in REORDERED:
            alike.setdefault((one.collective, one.size.bit_length()), []).append(one)
    found = []
    for (collective, digits), some in alike.items():
        if any(len(group) > 1 for one in some for group in one.groups):
            part = replace(sent, operations=tuple(some))
            # No rank moves inside MPI, so that none has to stay.
            order = solve(
                part, given=rank_map.order, slots=rank_map.slots, free_rank0=True
            ).order
            if order != rank_map.order:
                most = (1 << digits) - 1
                found.append(CallOrder(collective, (most + 1) // 2, most, order))
    return replace(rank_map, calls=tuple(found))


def _gain_without_worst(
    rank_map: RankMap,
    snapshot: NetworkSnapshot,
    slots: Mapping[str, int],
    ask: Callable[..., tuple[Schedule, str]],
    search: Callable[..., RankMap],
    kept: Collection[str],
) -> str:
    """Return what leaving out the hosts that stand out should gain; empty if nothing.

    `ask` makes the schedule of so many slots, `search` finds its best order; `kept`
    have to stay.
    """
    worst = {host.name for host in worst_hosts(snapshot, honest_fabric(snapshot))}
    stay = [name for name in slots if name in kept or name not in worst]
    if not 1 < len(stay) < len(slots):
        return ""
    counts = [slots[name] for name in stay]
    fewer, _ = ask(slots=counts)
    return without_words(rank_map, search(fewer, given=stay, slots=counts))
