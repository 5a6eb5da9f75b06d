"""What one step of an application sends: collectives, each in several groups.

What each message carries is proved for the family (tests/collectives), so it is
left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.groups import WORLD, is_implied
from cloudcoll.collectives.steps import Step
from cloudcoll.errors import UsageError


@dataclass(frozen=True)
class Operation:
    """One collective, called in several groups at once.

    Attributes
    ----------
    collective, algorithm : str
        Keys of `SCHEDULES`.
    size : int
        Bytes of each group's full vector.
    groups : sequence of ndarray of int64, shape (group size,)
        World ranks. Every rank is in one group; alone, if it takes no part.
    calls : int
        How often it is called in a step of the application.
    where : str
        What the groups are called.
    parameters : mapping of str to int
        Segment, radix and the like: see `build_schedule`.
    library : str
        Key of the one that runs it; empty for none in particular.
    """

    collective: str
    algorithm: str
    size: int
    groups: Sequence[Ints] | Ints
    calls: int = 1
    where: str = WORLD
    parameters: Mapping[str, int] = field(default_factory=dict)
    library: str = ""

    def schedule(self, ranks: int) -> Schedule:
        """Return one call in all groups, as a schedule of the whole job.

        Groups of different sizes start together, and step by step side by side.

        Parameters
        ----------
        ranks : int
            The job's world size.

        Raises
        ------
        UsageError
            Unknown names, a rank that the job lacks, in two groups or in none.
        """
        self._check(ranks)
        parts = []
        sizes = {len(group) for group in self.groups}
        # A rank alone takes no part: it needs no root. The largest groups come
        # last: what is said of one call is said of theirs.
        for size in sorted(sizes - {1} or sizes):
            members = np.array([group for group in self.groups if len(group) == size])
            inner = build_schedule(
                self.collective,
                self.algorithm,
                size,
                self.size,
                self.library,
                **self.parameters,
            )
            parts.append([_spread(step, members) for step in inner.steps])
        return replace(inner, ranks=ranks, steps=tuple(_side_by_side(parts)))

    def describe(self) -> dict[str, Any]:
        """Return it as an entry of a workload file, JSON-ready."""
        given: dict[str, Any] = {"library": self.library} if self.library else {}
        if self.parameters:
            given["parameters"] = dict(self.parameters)
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "groups": self.where,
            "bytes": self.size,
            "calls": self.calls,
            **given,
        }

    def _check(self, ranks: int) -> None:
        name = f"{self.collective} {self.algorithm}"
        members = np.concatenate([np.zeros(0, dtype=np.int64), *self.groups])
        if len(members) and not 0 <= members.min() <= members.max() < ranks:
            raise UsageError(f"{name}: groups name ranks beyond 0 to {ranks - 1}")
        times = np.bincount(members, minlength=ranks)
        if len(twice := np.flatnonzero(times > 1)):
            raise UsageError(
                f"{name}: rank {twice[0]} is in two groups, or twice in one"
            )
        if len(left := np.flatnonzero(times == 0)):
            more = f" ({len(left)} are in none)" if len(left) > 1 else ""
            raise UsageError(
                f"{name}: rank {left[0]} is in no group{more}: who takes no part "
                "is a group of one"
            )


@dataclass(frozen=True)
class Workload:
    """What an application does over and over: several operations, in turn.

    Attributes
    ----------
    name : str
    ranks : int
        World size.
    operations : tuple of Operation
    parallel : str
        How the ranks are split, as `parse_parallel` reads it; may be empty.

    Raises
    ------
    UsageError
        Fewer than two ranks, groups that don't fit them, or nothing sent.
    """

    name: str
    ranks: int
    operations: tuple[Operation, ...]
    parallel: str = ""

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise UsageError(f"a workload is of 2 ranks or more, not {self.ranks}")
        if not any(len(group) > 1 for op in self.operations for group in op.groups):
            raise UsageError(
                f"workload {self.name!r} sends nothing: every group is of one rank"
            )

    @cached_property
    def parts(self) -> list[tuple[int, Schedule]]:
        """How often each operation is called, and one call of it."""
        return [(op.calls, op.schedule(self.ranks)) for op in self.operations]

    def pair_bytes(self) -> Floats:
        """Return bytes of a step between each two ranks, shape (ranks, ranks)."""
        total = np.zeros((self.ranks, self.ranks))
        for calls, schedule in self.parts:
            total += calls * schedule.pair_bytes()
        return total

    def describe(self) -> dict[str, Any]:
        """Return it as a workload file has it, JSON-ready: `read_workload` reads it.

        Groups that `parallel` does not know are spelled out.
        """
        parallel = {"parallel": self.parallel} if self.parallel else {}
        spelled = {
            op.where: op.groups for op in self.operations if not is_implied(op.where)
        }
        groups = {
            where: [group.tolist() for group in groups]
            for where, groups in spelled.items()
        }
        return {
            "workload": self.name,
            "ranks": self.ranks,
            **parallel,
            **({"groups": groups} if groups else {}),
            "operations": [op.describe() for op in self.operations],
        }


def _spread(step: Step, groups: Ints) -> Step:
    """Return a step of one group's ranks as the same step of all groups."""
    return Step(
        groups[:, step.src].ravel(),
        groups[:, step.dst].ravel(),
        np.tile(step.size, len(groups)),
        step.repeat,
        overlaps=step.overlaps,
    )


def _side_by_side(parts: Sequence[Sequence[Step]]) -> Iterator[Step]:
    """Yield the steps of several schedules that are under way together.

    A step that one repeats while another goes on is cut where the other's ends.
    """
    ends = [np.cumsum([step.repeat for step in steps]) for steps in parts if steps]
    parts = [steps for steps in parts if steps]
    begin = 0
    for end in sorted({int(end) for own in ends for end in own}):
        beside = [
            steps[int(np.searchsorted(own, end))]
            for steps, own in zip(parts, ends, strict=True)
            if end <= own[-1]
        ]
        yield Step(
            np.concatenate([step.src for step in beside]),
            np.concatenate([step.dst for step in beside]),
            np.concatenate([step.size for step in beside]),
            end - begin,
            overlaps=any(step.overlaps for step in beside),
        )
        begin = end
