"""What the user demands of an order, and the problem of finding one that obeys."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.errors import UsageError
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import Problem, problem_of
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import SURE
from cloudcoll.solve.orders import baseline_orders, starting_orders
from cloudcoll.solve.rules import Room, Rules


@dataclass(frozen=True)
class Constraints:
    """What an order has to keep.

    Attributes
    ----------
    pins : tuple of (int, str)
        A rank and the host that must hold it. Rank 0 need not stand here: unless
        told otherwise, the first host given keeps it.
    take : int or None
        How many of the hosts to use; all by default.
    keep_below : float
        Share of the given order's time that must be gained to move ranks.
    same_rack : tuple of tuple of int
        Ranks whose hosts must share a lowest-level group of the fabric.

    Raises
    ------
    UsageError
        A rank on two hosts, no host to take, or a gain that is no share.
    """

    pins: tuple[tuple[int, str], ...] = ()
    take: int | None = None
    keep_below: float = 0.0
    same_rack: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        pinned: dict[int, str] = {}
        for rank, host in self.pins:
            if pinned.setdefault(rank, host) != host:
                raise UsageError(
                    f"--pin: rank {rank} on both {pinned[rank]} and {host}: name one"
                )
        if self.take is not None and self.take < 1:
            raise UsageError(f"--take {self.take}: a job has at least one host")
        if not 0 <= self.keep_below < 1:
            raise UsageError(
                f"--keep-below {100 * self.keep_below:g}%: a gain is 0 to 100 %"
            )

    def describe(self) -> dict[str, Any]:
        """Return the constraints that are set, JSON-ready."""
        said = {
            "pin": {str(rank): host for rank, host in self.pins},
            "take": self.take,
            "keep_below": self.keep_below,
            "same_rack": [list(group) for group in self.same_rack],
        }
        return {key: value for key, value in said.items() if value}


LEAST_GAIN = 0.01
"""Share of the time below which no gain is worth another order: predictions are off by
some 10 % (benchmarks/grid.py), and in a flat network some order always looks faster by
a thousandth or two."""

MOST_ERROR = 0.5
"""An order that takes less than half of the time is taken whatever the error."""


def least_gain(fabric: Fabric | None) -> float:
    """Return the share of the time to gain by another order where nobody named one.

    Below what the fabric misses of measurements, a gain may be none, unless it is sure
    who shares a link: that is what an order gains by.
    """
    if fabric is None or fabric.confidence >= SURE or math.isnan(fabric.holdout_error):
        return LEAST_GAIN
    return round(min(max(fabric.holdout_error, LEAST_GAIN), MOST_ERROR), 2)


def bind(
    constraints: Constraints,
    names: Sequence[str],
    slots: Sequence[int],
    fabric: Fabric,
    *,
    free_rank0: bool = False,
    silent: Collection[str] = (),
) -> Rules:
    """Return the constraints as rules for orders of a fabric's hosts.

    Parameters
    ----------
    names : sequence of str
        All hosts that may be used, in the order given.
    slots : sequence of int
        Ranks on each of them.
    fabric : Fabric
        Of exactly these hosts.
    free_rank0 : bool
        The first host need not hold rank 0.
    silent : collection of str
        Hosts of which nothing is known: left out before any other, unless they
        are pinned or needed.

    Raises
    ------
    UsageError
        Unknown hosts or ranks, constraints that contradict each other, or that
        need as many ranks on every host where these differ.
    """
    return _Binder(constraints, names, slots, fabric).rules(free_rank0, silent)


class _Binder:
    """The constraints of one problem, and the words for what is wrong with them."""

    def __init__(
        self,
        constraints: Constraints,
        names: Sequence[str],
        slots: Sequence[int],
        fabric: Fabric,
    ) -> None:
        self._asked, self._names, self._fabric = constraints, names, fabric
        self._slots, self._uneven = slots[0], len(set(slots)) > 1
        self._seats = len(names) if constraints.take is None else constraints.take
        if constraints.take is not None:
            self._even("--take")
        if self._seats > len(names):
            raise UsageError(
                f"--take {self._seats}: there are {len(names)} hosts to take from"
            )
        self._ranks = sum(slots) if self._uneven else self._seats * self._slots

    def rules(self, free_rank0: bool, silent: Collection[str]) -> Rules:
        rack = self._fabric.racks()
        pins = {
            position: self._fabric.position(name)
            for position, name in self._pins(free_rank0).items()
        }
        rooms = self._rooms()
        for room in rooms:
            held = [pins[place] for place in room if place in pins]
            if len({int(rack[host]) for host in held}) > 1:
                apart = " and ".join(self._fabric.hosts[host] for host in held)
                raise UsageError(
                    f"--pin and --same-rack: {apart} are in different racks, but "
                    f"their ranks have to share one ({self._ranks_of(room)})"
                )
        benched = Rules(rack, self._seats, pins | self._bench(pins, silent), rooms)
        return benched if benched.fits else Rules(rack, self._seats, pins, rooms)

    def _bench(self, pins: dict[int, int], silent: Collection[str]) -> dict[int, int]:
        """Return the hosts of places behind the seats, from the very end."""
        hosts = [self._fabric.position(n) for n in self._names[::-1] if n in silent]
        places = range(len(self._names) - 1, self._seats - 1, -1)
        leaving = (host for host in hosts if host not in pins.values())
        return dict(zip(places, leaving, strict=False))

    def _pins(self, free_rank0: bool) -> dict[int, str]:
        """Return the host of each pinned position."""
        pinned: dict[int, str] = {}
        first = () if free_rank0 or self._says_rank0() else ((0, self._names[0]),)
        for rank, host in (*first, *self._asked.pins):
            position = self._position(rank, host)
            if pinned.setdefault(position, host) != host:
                raise UsageError(
                    f"--pin {rank}={host}: that place is {pinned[position]}'s, "
                    "as a host's ranks stay together"
                )
            if list(pinned.values()).count(host) > 1:
                raise UsageError(self._twice(rank, host, implied=bool(first)))
        return pinned

    def _says_rank0(self) -> bool:
        """Return whether some pin says who gets the first position."""
        return any(
            rank == 0 or (not self._uneven and rank < self._slots)
            for rank, _ in self._asked.pins
        )

    def _twice(self, rank: int, host: str, implied: bool) -> str:
        if implied and host == self._names[0]:
            return (
                f"--pin {rank}={host}: it holds rank 0, the first host given does; "
                f"let it go with --free-rank0 or give rank 0 to another with --pin"
            )
        return f"--pin {rank}={host}: this host has another place already"

    def _position(self, rank: int, host: str) -> int:
        self._check_rank("--pin", rank)
        if host not in self._names:
            raise UsageError(
                f"--pin {rank}={host}: no such host (there are "
                f"{', '.join(self._names[:4])}{', ...' if self._names[4:] else ''})"
            )
        if rank:
            self._even(f"--pin {rank}={host}")
        return rank // self._slots if rank else 0

    def _rooms(self) -> tuple[Room, ...]:
        """Return the positions that must share a rack; groups that meet are one."""
        if self._asked.same_rack:
            self._even("--same-rack")
        rooms: list[set[int]] = []
        for group in self._asked.same_rack:
            for rank in group:
                self._check_rank("--same-rack", rank)
            room = {rank // self._slots for rank in group}
            met = [other for other in rooms if other & room]
            rooms = [other for other in rooms if not other & room]
            rooms.append(room.union(*met))
        racks = np.bincount(self._fabric.racks())
        for room in rooms:
            if len(room) > racks.max():
                raise UsageError(
                    f"--same-rack: {self._ranks_of(room)} need {len(room)} hosts of "
                    f"one rack, the largest has {racks.max()}"
                )
        return tuple(tuple(sorted(room)) for room in rooms if len(room) > 1)

    def _ranks_of(self, room: Sequence[int] | set[int]) -> str:
        ranks = [
            str(place * self._slots + local)
            for place in sorted(room)
            for local in range(self._slots)
        ]
        return f"ranks {', '.join(ranks[:6])}{', ...' if ranks[6:] else ''}"

    def _check_rank(self, option: str, rank: int) -> None:
        if not 0 <= rank < self._ranks:
            raise UsageError(
                f"{option}: no rank {rank}, they are 0 to {self._ranks - 1}"
            )

    def _even(self, option: str) -> None:
        if self._uneven:
            raise UsageError(
                f"{option} needs the same slots on every host: give each slots=N"
            )


@dataclass(frozen=True)
class RuledProblem(Problem):
    """The problem of one fabric, with its rules and where a search starts.

    Attributes
    ----------
    fabric, assumption, model
        As of `Problem`; positions of hosts are those in all orders.
    baselines : dict of str to ndarray of int64, shape (hosts,)
        Orders to compare with, whether they obey or not.
    starts : dict of str to ndarray of int64, shape (hosts,)
        Orders that obey.
    """

    rules: Rules
    baselines: dict[str, Ints]
    starts: dict[str, Ints]


def ruled_problem(
    snapshot: NetworkSnapshot,
    sent: Schedule | Workload,
    fabric: Fabric,
    slots_of: Mapping[str, int],
    *,
    constraints: Constraints,
    free_rank0: bool,
    also: Mapping[str, Sequence[str]],
) -> RuledProblem:
    """Return the problem of a fabric, with its rules and where a search starts.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        What the fabric was found in.
    fabric : Fabric
        Of the hosts to use.
    slots_of : mapping of str to int
        Ranks on each host, in the order given.
    constraints, free_rank0, also
        As of `cloudcoll.solve.solve`.

    Raises
    ------
    UsageError
        Constraints that nothing satisfies.
    """
    names, counts = tuple(slots_of), tuple(slots_of.values())
    rules = bind(
        constraints,
        names,
        counts,
        fabric,
        free_rank0=free_rank0,
        silent=snapshot.silent,
    )
    problem = problem_of(snapshot, sent, slots_of, fabric=fabric, seats=rules.seats)
    orders = {**baseline_orders(names, problem.fabric), **also}
    baselines = {name: problem.positions(order) for name, order in orders.items()}
    flat = problem.model.flat()
    starts = starting_orders(sent, baselines, problem.fabric, rules, flat)
    return RuledProblem(
        **vars(problem), rules=rules, baselines=baselines, starts=starts
    )
