"""Which hosts may stand where in an order, and how to make an order obey.

An order is a permutation of all hosts that may be used. Its first positions, the
seats, carry ranks; who stands behind them, on the bench, is left out of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cloudcoll import units
from cloudcoll.arrays import Ints
from cloudcoll.errors import UsageError

LIMIT_S = 10.0
"""Seconds after which no further way is tried."""


def pack(sizes: Ints, space: Ints, liked: Ints) -> Ints | None:
    """Return the rack of each group, None where they do not fit.

    The largest choose first. Where that leads nowhere, which happens with groups
    of several sizes only, an integer program says how many of each size go into
    which rack.

    Parameters
    ----------
    sizes : ndarray of int64, shape (groups,)
        Hosts that a group needs, 1 or more.
    space : ndarray of int64, shape (racks,)
        Hosts that a rack has.
    liked : ndarray of int64, shape (groups, racks)
        What a group would rather have, the larger the better.

    Raises
    ------
    UsageError
        Whether they fit was not known after `LIMIT_S`.
    """
    kinds, kind = np.unique(sizes, return_inverse=True)
    # More groups than hosts are in no rack.
    found = _choose(sizes, kind, space, np.tile(space, (len(kinds), 1)), liked)
    if found is not None or len(kinds) == 1:
        return found
    counted = _quota(kinds, np.bincount(kind), space)
    return None if counted is None else _choose(sizes, kind, space, counted, liked)


def _choose(
    sizes: Ints, kind: Ints, space: Ints, quota: Ints, liked: Ints
) -> Ints | None:
    """Let each group take what it likes best of the racks with room left.

    `quota` has how many groups of each size a rack takes, shape (sizes, racks).
    """
    space, quota = space.copy(), quota.copy()
    racks = np.empty(len(sizes), dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fits = (space >= sizes[group]) & (quota[kind[group]] > 0)
        if not fits.any():
            return None
        rack = int(np.where(fits, liked[group], -1).argmax())
        racks[group] = rack
        space[rack] -= sizes[group]
        quota[kind[group], rack] -= 1
    return racks


def _quota(kinds: Ints, counts: Ints, space: Ints) -> Ints | None:
    """Return how many groups of each size go into each rack, None for no way."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    shape = (len(kinds), len(space))
    all_placed = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    used = np.kron(kinds, np.eye(shape[1]))
    found = milp(
        np.zeros(shape[0] * shape[1]),
        integrality=np.ones(shape[0] * shape[1], dtype=np.int64),
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(all_placed, counts, counts),
            LinearConstraint(used, 0, space),
        ],
        options={"time_limit": LIMIT_S},
    )
    if found.x is None and found.status != 2:
        raise UsageError(
            f"whether groups of {', '.join(map(str, kinds))} hosts fit into "
            f"{len(space)} racks is not known after {units.seconds(LIMIT_S)}: "
            "ask for fewer groups"
        )
    return None if found.x is None else np.rint(found.x).astype(np.int64).reshape(shape)


Room = tuple[int, ...]
"""Seats whose hosts share a rack."""


@dataclass(frozen=True, eq=False)
class Rules:
    """What every order that a search returns obeys.

    Attributes
    ----------
    rack : ndarray of int64, shape (hosts,)
        Number of the group that each host stands in.
    seats : int
        Positions that carry ranks, the first ones.
    pins : mapping of int to int
        Position -> the host that has it.
    rooms : tuple of tuple of int
        Seats whose hosts share a rack; no seat is in two rooms.
    """

    rack: Ints
    seats: int
    pins: Mapping[int, int] = field(default_factory=dict)
    rooms: tuple[Room, ...] = ()

    @classmethod
    def only(cls, hosts: int, pins: Mapping[int, int] | None = None) -> Rules:
        """Return the rules of `hosts` hosts that all have ranks: pins alone."""
        return cls(np.zeros(hosts, dtype=np.int64), hosts, pins or {})

    @property
    def hosts(self) -> int:
        """All that may be used."""
        return len(self.rack)

    @cached_property
    def movable(self) -> Ints:
        """Positions whose host may change, in ascending order."""
        return np.array([p for p in range(self.hosts) if p not in self.pins], np.int64)

    @cached_property
    def ring(self) -> Ints:
        """For each position the next one of its room, round and round."""
        following = np.arange(self.hosts)
        for room in self.rooms:
            following[list(room)] = np.roll(room, -1)
        return following

    @property
    def fits(self) -> bool:
        """Whether any order obeys."""
        return self._packed(np.arange(self.hosts), self.hosts) is not None

    def arrays(self) -> dict[str, npt.NDArray[np.int32]]:
        """Return what ``rules`` of rules.h points to, by its names."""
        ring, back = self.ring, np.empty(self.hosts)
        back[ring] = np.arange(self.hosts)
        room, bound = np.full(self.hosts, -1), np.zeros(self.hosts)
        for number, members in enumerate(self.rooms):
            room[list(members)] = number
            bound[list(members)] = not self.pins.keys().isdisjoint(members)
        place: Ints = np.full(self.hosts, -1)
        place[self.movable] = np.arange(len(self.movable))
        every = {"at": self.movable, "number": place, "ring": ring, "back": back}
        every |= {"room": room, "bound": bound, "rack": self.rack}
        return {name: np.ascontiguousarray(a, np.int32) for name, a in every.items()}

    def allows(self, order: Ints | Sequence[int]) -> bool:
        """Return whether an order obeys."""
        hosts = np.asarray(order)
        racks = self.rack[hosts]
        return bool((racks == racks[self.ring]).all()) and all(
            hosts[place] == host for place, host in self.pins.items()
        )

    def adapt(self, order: Ints) -> Ints:
        """Return an order that obeys, like this one where that is possible.

        UsageError if the rooms do not fit into the racks.
        """
        if self.allows(order):
            return order
        rack_at = self._racks_of_rooms(order)
        adapted, free = np.full(self.hosts, -1), np.ones(self.hosts, dtype=bool)

        def seat(places: Ints, hosts: Ints) -> None:
            adapted[places] = hosts
            free[hosts] = False

        for place, host in self.pins.items():
            seat(np.array([place]), np.array([host]))
        # Rooms choose first: elsewhere any host will do.
        for choosing in (rack_at >= 0, rack_at < 0):
            places = np.flatnonzero(choosing & (adapted < 0))
            hosts = order[places]
            fits = (rack_at[places] < 0) | (rack_at[places] == self.rack[hosts])
            stays = free[hosts] & fits
            seat(places[stays], hosts[stays])
            for rack in np.unique(rack_at[places]):
                open_ = places[(rack_at[places] == rack) & (adapted[places] < 0)]
                left = order[free[order] & ((rack < 0) | (self.rack[order] == rack))]
                seat(open_, left[: len(open_)])
        return adapted

    def _racks_of_rooms(self, order: Ints) -> Ints:
        """Return the rack of each position of a room, -1 for any other position.

        With as few as possible of the hosts that stand last in the order.
        """
        enough, few = self.hosts, self.seats
        best = self._packed(order, enough)
        if best is None:
            raise UsageError(self._too_tight())
        while few < enough:
            middle = (few + enough) // 2
            found = self._packed(order, middle)
            if found is None:
                few = middle + 1
            else:
                enough, best = middle, found
        return best

    def _packed(self, order: Ints, count: int) -> Ints | None:
        """Return the same where only the first `count` hosts are free to take."""
        rack_at = np.full(self.hosts, -1)
        pinned = list(self.pins.values())
        free = np.union1d(order[:count], pinned).astype(np.int64)
        space = np.bincount(self.rack[free], minlength=int(self.rack.max()) + 1)
        room_of = {place: room for room in self.rooms for place in room}
        for place, host in self.pins.items():
            if rack_at[place] < 0:
                space[self.rack[host]] -= len(room_of.get(place, (place,)))
            rack_at[list(room_of.get(place, ()))] = self.rack[host]
        unbound = [room for room in self.rooms if rack_at[room[0]] < 0]
        sizes = np.array([len(room) for room in unbound], dtype=np.int64)
        liked = np.zeros((len(unbound), len(space)), dtype=np.int64)
        for number, room in enumerate(unbound):
            np.add.at(liked[number], self.rack[order[list(room)]], 1)
        racks = pack(sizes, space, liked) if space.min() >= 0 else None
        if racks is None:
            return None
        for room, rack in zip(unbound, racks, strict=True):
            rack_at[list(room)] = rack
        return rack_at

    def _too_tight(self) -> str:
        """Say which groups do not fit into which racks."""
        needed = np.array(sorted(map(len, self.rooms), reverse=True), dtype=np.int64)
        there = np.sort(np.unique(self.rack, return_counts=True)[1])[::-1]
        empty = np.zeros((len(needed), len(there)), dtype=np.int64)
        alone = pack(needed, there, empty) is None
        return (
            f"--same-rack: groups of {_shortened(needed)} hosts do not fit into racks "
            f"of {_shortened(there)}{'' if alone else ' beside the hosts pinned'}: "
            f"ask for {'smaller or fewer groups' if alone else 'less of either'}"
        )


def _shortened(numbers: Ints) -> str:
    shown, more = numbers[:6].tolist(), numbers[6:].size
    return ", ".join(map(str, shown)) + (", ..." if more else "")
