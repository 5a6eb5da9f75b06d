"""What a job calls, as far as algorithms can be chosen for it, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.libraries import select
from cloudcoll.libraries.question import ELEMENT
from cloudcoll.tune.candidates import Candidate, Candidates

LADDER = tuple(1 << power for power in (10, 12, 14, 16, 18, 20, 22, 23, 24, 25))
"""Bytes at which algorithms are chosen, 1 KiB to 32 MiB, whatever sizes are called."""

BLOCKED = frozenset({"allgather", "alltoall", "reduce_scatter"})
"""Collectives whose vector has an equal block of each rank."""


@dataclass(frozen=True)
class Call:
    """Calls of one collective by all ranks, of one size.

    Attributes
    ----------
    collective : str
    size : int
        Bytes of the full vector.
    times : int
        How often it is called; 0 for a size that is only chosen for.
    """

    collective: str
    size: int
    times: int = 0


@dataclass(frozen=True)
class Asked:
    """What is to be tuned.

    Attributes
    ----------
    calls : tuple of Call
        By collective, and from small to large.
    rest : tuple of Operation
        What the job calls beside, as its library runs it.
    name : str
        What the job is called.
    """

    calls: tuple[Call, ...]
    rest: tuple[Operation, ...] = ()
    name: str = "mix"

    @property
    def collectives(self) -> tuple[str, ...]:
        """Those to choose for, each once."""
        return tuple(dict.fromkeys(call.collective for call in self.calls))

    def sent(
        self, taken: Sequence[Candidate], ranks: int, *, together: bool = False
    ) -> Workload:
        """Return all that is called, by the algorithms taken.

        Parameters
        ----------
        taken : sequence of Candidate
            For each of the calls.
        ranks : int
            World size.
        together : bool
            Calls of one collective by one algorithm stand as so many calls of their
            mean size: a search then counts them once. Only waits differ by that.
        """
        everyone = np.arange(ranks)[None]
        chosen = [
            Operation(
                call.collective,
                one.selection.algorithm,
                call.size,
                everyone,
                call.times,
                parameters=one.selection.parameters,
                library=one.selection.library,
            )
            for call, one in zip(self.calls, taken, strict=True)
            if call.times
        ]
        if together:
            chosen = _joined(chosen)
        return Workload(self.name, ranks, (*chosen, *self.rest))


def asked_of_workload(workload: Workload, candidates: Candidates) -> Asked:
    """Return what to tune of a workload: the calls of all its ranks.

    Every size of `LADDER` is chosen for as well, of the collectives that are called.
    Calls in groups of some ranks stay the library's, and only bear on the order.
    """
    times: dict[tuple[str, int], int] = {}
    rest = []
    for one in workload.operations:
        whole = len(one.groups) == 1 and len(one.groups[0]) == workload.ranks
        if whole and candidates.is_tunable(one.collective):
            key = one.collective, one.size
            times[key] = times.get(key, 0) + one.calls
        else:
            rest.append(_by_library(one, candidates))
    calls = _with_ladder(times, candidates.ranks)
    return Asked(calls, tuple(rest), workload.name)


def asked_of_sizes(
    collectives: Iterable[str], sizes: Sequence[int], ranks: int, name: str
) -> Asked:
    """Return calls of some sizes, each once; of all of `LADDER` where none is named."""
    times = {(c, size): 1 for c in collectives for size in sizes}
    if not sizes:
        times = {(c, size): 1 for c in collectives for size in _fitting(c, ranks)}
    return Asked(_with_ladder(times, ranks), name=name)


def evenly(asked: Asked, seconds: Sequence[float]) -> Asked:
    """Return the same with as much time spent in each of the calls that are made.

    Parameters
    ----------
    asked : Asked
    seconds : sequence of float
        What each call takes.
    """
    longest = max(
        (s for s, call in zip(seconds, asked.calls, strict=True) if call.times),
        default=0.0,
    )
    calls = [
        replace(call, times=max(1, round(longest / s)) if s else 1)
        if call.times
        else call
        for call, s in zip(asked.calls, seconds, strict=True)
    ]
    return replace(asked, calls=tuple(calls))


def _joined(operations: Sequence[Operation]) -> list[Operation]:
    """Return operations of one algorithm as one, of their mean size."""
    alike: dict[object, list[Operation]] = {}
    for one in operations:
        key = one.collective, one.algorithm, tuple(sorted(one.parameters.items()))
        alike.setdefault(key, []).append(one)
    joined = []
    for some in alike.values():
        calls = sum(one.calls for one in some)
        size = round(sum(one.calls * one.size for one in some) / calls)
        joined.append(replace(some[-1], calls=calls, size=size))
    return joined


def _with_ladder(times: dict[tuple[str, int], int], ranks: int) -> tuple[Call, ...]:
    collectives = dict.fromkeys(collective for collective, _ in times)
    ladder = {(c, size): 0 for c in collectives for size in _fitting(c, ranks)}
    order = list(collectives)
    keys = sorted({**ladder, **times}, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(Call(*key, times.get(key, 0)) for key in keys)


def _fitting(collective: str, ranks: int) -> list[int]:
    """Return the sizes of which every rank has a block, where there are blocks."""
    least = ELEMENT * ranks if collective in BLOCKED else ELEMENT
    return [size for size in LADDER if size >= least] or [least]


def _by_library(one: Operation, candidates: Candidates) -> Operation:
    """Return an operation as the library runs it, if its rules know the collective."""
    ranks = max(map(len, one.groups))
    if (
        one.library == candidates.key
        or ranks < 2
        or not candidates.knows(one.collective)
    ):
        return one
    own = select(candidates.library, one.collective, ranks, one.size)
    return replace(
        one,
        algorithm=own.algorithm,
        parameters=own.parameters,
        library=own.library,
    )
