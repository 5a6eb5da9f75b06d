"""What a job called: a profile, as the preloaded library writes it.

``cloudcoll run --profile FILE`` has one written (launch/shim/merge.c). Per
group of ranks, collective and class of sizes it has sums over the ranks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from cloudcoll.errors import UsageError
from cloudcoll.files import NOT_JSON, read_text, strict_json
from cloudcoll.files.limits import RANKS
from cloudcoll.hosts.names import shown
from cloudcoll.libraries import announced, select

if TYPE_CHECKING:
    from cloudcoll.collectives.workload import Operation, Workload

SCHEMA = "cloudcoll-profile-1"
"""First words of the file; 1: first."""

_WRONG = (*NOT_JSON, *(TypeError, KeyError, AttributeError, OverflowError))

COUNTED = (
    *("allreduce", "reduce", "bcast", "barrier", "allgather", "reduce_scatter"),
    "alltoall",
)
"""Collectives of which calls are counted."""

ENOUGH = 0.99
"""Share of the seconds that a workload has to explain."""

MOST_OPERATIONS = 48
"""Of a workload: each costs the search time."""


MOST = 1 << 60
"""The largest number taken: calls and bytes are sums over ranks."""

Group = tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """Calls of one collective with about the same size in one group.

    Attributes
    ----------
    collective : str
        One of `COUNTED`.
    group : tuple of int
        World ranks, in the order of the communicator.
    calls : float
        Of the group; no whole number where ranks sent different sizes.
    size : int
        Bytes of the group's full vector, the mean of these calls; 0 of barriers.
    seconds : float
        That a rank spent in all these calls, the mean; waiting for others
        included, and of nonblocking calls the call alone.
    least : float
        The same for the rank that spent least: it waited least.
    """

    collective: str
    group: Group
    calls: float
    size: int
    seconds: float
    least: float

    @property
    def rank_seconds(self) -> float:
        """Seconds of all ranks together."""
        return self.seconds * len(self.group)


@dataclass(frozen=True)
class Profile:
    """What all ranks of a job called.

    Attributes
    ----------
    ranks : int
        World size.
    seconds : float
        From MPI_Init to MPI_Finalize.
    library : str
        What the MPI library calls itself.
    calls : tuple of Calls
        What took most of the ranks' time first.
    """

    ranks: int
    seconds: float
    library: str
    calls: tuple[Calls, ...]

    @property
    def selector(self) -> str:
        """The library whose rules are taken, as ``NAME[@VERSION]``."""
        return announced(self.library)

    @property
    def share(self) -> float:
        """Share of the job's time in these calls, 0 to 1; NaN without any time.

        Rank 0's time stands for that of all; in a job of milliseconds others may
        wait for it longer than it ran.
        """
        whole = self.seconds * self.ranks
        called = sum(call.rank_seconds for call in self.calls)
        return min(called / whole, 1.0) if whole else math.nan

    def workload(self, name: str) -> Workload:
        """Return what to solve for: the calls between ranks that took the time.

        Groups that call the same as often are taken to call it at the same time.
        The algorithms are those that the library takes by itself, with one rank
        on a host. UsageError if nothing was sent between ranks.
        """
        from cloudcoll.collectives.groups import WORLD
        from cloudcoll.collectives.workload import Operation, Workload

        operations: list[Operation] = []
        names: dict[tuple[Group, ...], str] = {(tuple(range(self.ranks)),): WORLD}
        for alike in _alike(_costly(self.calls)):
            one = alike[0]
            chosen = select(self.selector, one.collective, len(one.group), one.size)
            for groups in _side_by_side([calls.group for calls in alike]):
                operations.append(
                    Operation(
                        one.collective,
                        chosen.algorithm,
                        one.size,
                        _with_singles(groups, self.ranks),
                        max(1, round(one.calls)),
                        names.setdefault(groups, f"groups {len(names)}"),
                        chosen.parameters,
                        chosen.library,
                    )
                )
        if not operations:
            raise UsageError(
                f"{name}: no collective that is counted sent anything between ranks: "
                "there is nothing to solve for"
            )
        return Workload(name, self.ranks, tuple(operations))


def is_profile(text: str) -> bool:
    """Return whether a text is a profile's, by how it begins."""
    return text.startswith(f'{{"schema": "{SCHEMA.rpartition("-")[0]}-')


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile file."""
    advice = "make one with 'cloudcoll run --profile FILE mpirun ...'"
    return read_profile(read_text(path, f"the profile {path}", advice), str(path))


def read_profile(text: str, source: str) -> Profile:
    """Read the text of a profile, JSON as the preloaded library writes it.

    The UsageError of a wrong value names `source`.
    """
    try:
        data = strict_json(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {shown(data['schema'])} is not {SCHEMA!r}")
        ranks = _whole(data["ranks"], least=1, most=RANKS)
        groups = {
            key: _group(members, ranks) for key, members in data["groups"].items()
        }
        calls = [_calls(row, groups) for row in data["calls"]]
        seconds, library = _time(data["seconds"]), str(data["library"])
    except _WRONG as error:
        words = f"no {error}" if isinstance(error, KeyError) else str(error)
        words = " ".join(words.split())[:500]
        raise UsageError(f"{source} is no profile of a job: {words}") from None
    calls.sort(key=lambda one: -one.rank_seconds)
    return Profile(ranks, seconds, library, tuple(calls))


def _calls(row: Mapping[str, Any], groups: Mapping[str, Group]) -> Calls:
    """Return sums over ranks as calls of their group."""
    if row["collective"] not in COUNTED:
        raise ValueError(f"unknown collective {shown(row['collective'])}")
    group = groups[row["group"]]
    calls = _whole(row["calls"], least=1)
    return Calls(
        row["collective"],
        group,
        calls / len(group),
        round(_whole(row["bytes"], least=0) / calls),
        _time(row["seconds"]) / len(group),
        _time(row["least_seconds"]),
    )


def _whole(value: object, least: int, most: int = MOST) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{shown(value)} is no whole number, {least} or more")
    if value > most:
        raise ValueError(f"{shown(value)} is too large: {most} at most")
    return value


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{shown(value)} is no time in seconds")
    return float(value)


def _group(members: Sequence[object], ranks: int) -> Group:
    group = tuple(_whole(member, least=0) for member in members)
    if not group or max(group) >= ranks or len(set(group)) < len(group):
        raise ValueError(f"{list(group)[:8]} are no group of ranks 0 to {ranks - 1}")
    return group


def _costly(calls: Sequence[Calls]) -> list[Calls]:
    """Return what to solve for, most seconds first, until it is `ENOUGH`."""
    sent = [
        one
        for one in calls
        if len(one.group) > 1 and (one.size or one.collective == "barrier")
    ]
    enough = ENOUGH * sum(one.rank_seconds for one in sent)
    kept: list[Calls] = []
    covered = 0.0
    for one in sent:
        if kept and covered >= enough:
            break
        kept.append(one)
        covered += one.rank_seconds
    return kept


def _alike(calls: Sequence[Calls]) -> list[list[Calls]]:
    """Return calls that groups of one size make alike, most seconds first."""
    found: dict[tuple[object, ...], list[Calls]] = {}
    for one in calls:
        key = one.collective, one.size, len(one.group), round(one.calls)
        found.setdefault(key, []).append(one)
    return list(found.values())[:MOST_OPERATIONS]


def _side_by_side(groups: Sequence[Group]) -> list[tuple[Group, ...]]:
    """Return the groups in sets of which none shares a rank."""
    sets: list[list[Group]] = []
    for group in groups:
        taken = set(group)
        room = (one for one in sets if taken.isdisjoint(chain(*one)))
        beside = next(room, None)
        if beside is None:
            sets.append(beside := [])
        beside.append(group)
    return [tuple(sorted(one)) for one in sets]


def _with_singles(groups: Sequence[Group], ranks: int) -> list[Any]:
    """Return the groups as arrays; who is in none is a group of its own."""
    import numpy as np

    members = {rank for group in groups for rank in group}
    left = [(rank,) for rank in range(ranks) if rank not in members]
    return [np.array(group, dtype=np.int64) for group in (*groups, *left)]
