"""What one step of an application sends: collectives, each in several groups.

What each message carries is proved for the family (tests/collectives), so it is left
out here. People and programs write a workload as JSON, read with every value checked:

{"parallel": "tp=4,dp=4", "library": "nccl",
"groups": {"towers": [[0, 1, 2, 3], [4, 5, 6, 7]]},
"operations": [{"collective": "allreduce", "groups": "dp", "bytes": "64M",
"calls": 8}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.groups import (
    AXES,
    MOST_RANKS,
    WORLD,
    Parallel,
    is_implied,
    parse_parallel,
)
from cloudcoll.collectives.steps import Step
from cloudcoll.errors import UsageError
from cloudcoll.files import parse_json
from cloudcoll.libraries import OF_TRAINING, large_vector_algorithm
from cloudcoll.units import parse_size


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
        UsageError for unknown names, or a rank that the job lacks, in two groups or in
        none.
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
    ranks : int
        World size.
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


KEYS = ("workload", "ranks", "parallel", "library", "groups", "operations")
OPERATION_KEYS = (
    *("collective", "algorithm", "library", "groups"),
    *("bytes", "calls", "parameters"),
)

MOST = 1 << 60
"""The largest number taken: bytes and calls are multiplied as floats."""


def read_workload(
    text: str,
    source: str,
    ranks: int | None = None,
    parallel: str | None = None,
) -> Workload:
    """Read a workload file.

    Parameters
    ----------
    text : str
        JSON; `Workload.describe` returns the same form.
    source : str
        What the text is called in errors, and the workload if it has no name.
    ranks : int, optional
        The job's world size; else the file's, or that of its split.
    parallel : str, optional
        How the ranks are split, where the file does not say.

    Raises
    ------
    UsageError
        Not JSON, an unknown key, a wrong value, or groups that do not fit the
        job; the message names the file and the operation.
    """
    data = parse_json(text, source)
    try:
        return _workload(data, source, ranks, parallel)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def split_of(parallel: str | None, ranks: int | None) -> Parallel:
    """Return how a job's ranks are split; all of them data parallel by default.

    UsageError if the split does not fit the ranks, or neither is known.
    """
    if parallel is not None:
        return parse_parallel(parallel, ranks)
    if ranks is None:
        raise UsageError("how many ranks? add --ranks N, or --snapshot SNAP")
    if ranks < 2:
        raise UsageError(f"a workload is of 2 ranks or more, not {ranks}")
    return Parallel(dp=ranks)


def _workload(
    data: object, source: str, ranks: int | None, parallel: str | None
) -> Workload:
    fields = _object(data, "a workload", KEYS)
    own = None
    if "ranks" in fields:
        own = _number(fields, "ranks", least=2, most=MOST_RANKS)
    if own is not None and ranks not in (None, own):
        raise UsageError(f"it is for {own} ranks, the job has {ranks}")
    if "parallel" in fields:
        if parallel is not None:
            raise UsageError("it says itself how ranks are split: leave out --parallel")
        parallel = _text(fields, "parallel")
    split = split_of(parallel, own if ranks is None else ranks)
    spelled = _object(fields.get("groups", {}), "'groups'")
    named = {name: _groups(name, spelled[name], split.ranks) for name in spelled}
    operations = fields.get("operations")
    if not isinstance(operations, list) or not operations:
        raise UsageError("'operations' must be a list of at least one")
    library = _text(fields, "library", "")
    read = []
    for number, operation in enumerate(operations, 1):
        try:
            read.append(_operation(operation, split, named, library))
        except UsageError as error:
            raise UsageError(f"operation {number}: {error}") from None
    name = _text(fields, "workload", source)
    return Workload(name, split.ranks, tuple(read), str(split) if parallel else "")


def _operation(
    data: object, split: Parallel, named: Mapping[str, list[Ints]], library: str
) -> Operation:
    fields = _object(data, "an operation", OPERATION_KEYS)
    collective = _text(fields, "collective")
    library = _text(fields, "library", library)
    algorithm = (
        _text(fields, "algorithm")
        if "algorithm" in fields
        else large_vector_algorithm(library or OF_TRAINING, collective)
    )
    parameters = _object(fields.get("parameters", {}), "'parameters'")
    where = _text(fields, "groups", WORLD)
    if where not in named and not is_implied(where):
        known = ", ".join([WORLD, *AXES, *named])
        raise UsageError(f"no groups {where!r} (known: {known}; axes joined by -)")
    operation = Operation(
        collective,
        algorithm,
        0 if collective == "barrier" else _number(fields, "bytes"),
        named[where] if where in named else list(split.named(where)),
        _number(fields, "calls") if "calls" in fields else 1,
        where,
        {key: _number(parameters, key, least=0) for key in parameters},
        library,
    )
    operation.schedule(split.ranks)  # refuses what does not fit, here by number
    return operation


def _groups(name: str, value: object, ranks: int) -> list[Ints]:
    """Return groups that are spelled out, as arrays."""
    if not name.isprintable():
        raise UsageError(f"the name of groups {name!r} must be a line of text")
    if is_implied(name):
        raise UsageError(f"groups {name!r} follow from 'parallel': take another name")
    groups = value if isinstance(value, list) else []
    if not groups or not all(isinstance(group, list) and group for group in groups):
        raise UsageError(f"groups {name!r} must be a list of lists of ranks")
    for group in groups:
        for rank in group:
            if type(rank) is not int or not 0 <= rank < ranks:
                raise UsageError(
                    f"groups {name!r}: {rank!r} is no rank of 0 to {ranks - 1}"
                )
    return [np.array(group, dtype=np.int64) for group in groups]


def _object(
    value: object, name: str, known: tuple[str, ...] | None = None
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be a JSON object")
    for key in value:
        if known is not None and key not in known:
            raise UsageError(f"{name} has no key {key!r} (known: {', '.join(known)})")
    return value


def _text(fields: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str) or not value.isprintable():
        raise UsageError(f"{key!r} must be a line of text")
    return value


def _number(
    fields: Mapping[str, Any], key: str, least: int = 1, most: int = MOST
) -> int:
    """Return a whole number; of bytes and parameters, also as ``64M``."""
    value = fields.get(key)
    if isinstance(value, str):
        value = parse_size(value)
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{key!r} must be a whole number, {least} or more")
    return value
