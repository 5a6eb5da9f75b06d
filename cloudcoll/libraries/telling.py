"""Telling a library which algorithms to run: those it can be told, and what it is told.

Algorithms have their names in `SCHEDULES`. They are here, and not in
`cloudcoll.collectives`, because `cloudcoll run` reads rank maps without loading NumPy;
a test holds both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import mpich, nccl, open_mpi, parse_library
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS as OPEN_MPI
from cloudcoll.libraries.question import Version
from cloudcoll.tuning import TunedRange, Tuning

INTEL = {
    "allgather": {"mpich_recursive_doubling": 1, "bruck": 2, "ring": 3},
    "allreduce": {
        "recursive_doubling": 1,
        "mpich_reduce_scatter_allgather": 2,
        "ring": 8,
    },
    "alltoall": {"modified_bruck": 1, "linear": 2, "mpich_pairwise": 3},
    "barrier": {"mpich_dissemination": 1, "recursive_doubling": 2},
    "bcast": {
        "mpich_binomial": 1,
        "scatter_allgather": 2,
        "scatter_allgather_ring": 3,
    },
    "reduce": {"mpich_binomial": 2, "mpich_reduce_scatter_gather": 5},
    "reduce_scatter": {"recursive_halving": 1, "mpich_pairwise": 2},
}
"""Intel MPI: collective -> name -> preset in ``I_MPI_ADJUST_<COLLECTIVE>``, those
whose name in the Developer Reference is that of a schedule: 2021.18 was seen to send
what these do, among 6 and 8 ranks of one host."""

UCC = {
    "allreduce": {"ring": "ring"},
    "allgather": {
        "ring": "ring",
        "bruck": "bruck",
        "neighbor": "neighbor",
        "sparbit": "sparbit",
    },
    "alltoall": {"pairwise": "pairwise", "modified_bruck": "bruck"},
    "bcast": {"knomial": "knomial"},
    "reduce": {"knomial": "knomial"},
    "reduce_scatter": {"ucc_ring": "ring"},
}
"""UCC's ``tl/ucp``: collective -> name -> name in ``UCC_TL_UCP_TUNE``. Not tried."""

NOTHING = frozenset({"gloo", "lightgbm", "xgboost"})
"""Libraries that can't be told an algorithm."""

LIBRARIES = ("openmpi", "mpich", "intelmpi", "ucc", "nccl", *sorted(NOTHING))


def library_version(library: str) -> tuple[str, Version]:
    """Return what `parse_library` does, of Intel's and UCC, too."""
    return parse_library(library, LIBRARIES)


def algorithms_of(key: str, collective: str) -> tuple[str, ...]:
    """Return the algorithms that one of `LIBRARIES` can be told for a collective."""
    if key == "openmpi":
        own = ("han",) if collective in open_mpi.HAN else ()
        return (*OPEN_MPI.get(collective, "").split(), *own)
    if key == "mpich":
        return _mpich(collective)
    if key == "nccl":
        names = nccl.ALGORITHMS.get(collective, {}).values()
        return tuple(dict.fromkeys(name for name in names if name))
    if key == "intelmpi":
        return tuple(INTEL.get(collective, ()))
    return tuple(UCC.get(collective, ())) if key == "ucc" else ()


def _mpich(collective: str) -> tuple[str, ...]:
    flat = list(dict.fromkeys(mpich.FORCED.get(collective, {}).values()))
    if "mpich_tree" in flat:
        at = flat.index("mpich_tree")
        flat[at : at + 1] = [f"mpich_tree_{kind}" for kind in mpich.TREE_TYPES]
    if collective not in mpich.SMP:
        return tuple(flat)
    levels = (f"mpich_smp_{name.removeprefix('mpich_')}" for name in flat)
    return (*flat, *levels)


def check_tuning(tuning: Tuning) -> None:
    """Refuse a tuning that names what its library lacks, with the nearest name."""
    key, _ = library_version(tuning.library)
    for one in tuning.ranges:
        known = algorithms_of(key, one.collective)
        if one.algorithm and one.algorithm not in known:
            which = known_names(one.algorithm, known) if known else "(it has none)"
            raise UsageError(
                f"{tuning.library} can't be told an algorithm {one.algorithm!r} for "
                f"{one.collective!r} {which}"
            )


class Ask(NamedTuple):
    """A tuning, for one version of its library, beside a user's own settings.

    Attributes
    ----------
    version : tuple of int
        Empty where it is not known.
    settings : mapping of str to str
        What the user tells the library, by its own names.
    """

    tuning: Tuning
    version: Version
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """What a library is told.

    Attributes
    ----------
    variables : mapping of str to str
        Environment variables.
    file_variable : str
        The variable that names the file; empty where there is none.
    file : str
        Its text.
    notes : tuple of str
        What is not told and why, and what else follows: a line each.
    collectives : tuple of str
        Those of which something is told.
    functions : tuple of (str, int, str)
        Collective, bytes from which it holds, and how the library's own function is
        called that has to run then; empty for any. None for libraries where nobody
        sees that.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    file_variable: str = ""
    file: str = ""
    notes: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    functions: tuple[tuple[str, int, str], ...] = ()

    @property
    def anything(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.variables or self.file)


def spans(tuning: Tuning, collective: str) -> Iterator[tuple[TunedRange, int | None]]:
    """Yield the ranges of a collective with the size at which each ends, None for none.

    Neighbours that say the same are one.
    """
    ranges = list[TunedRange]()
    for one in tuning.of(collective):
        if not ranges or _choice(ranges[-1]) != _choice(one):
            ranges.append(one)
    ends = [*(one.least for one in ranges[1:]), None]
    yield from zip(ranges, ends, strict=True)


def _choice(one: TunedRange) -> tuple[str, dict[str, int]]:
    return one.algorithm, dict(one.parameters)


def changed(tuning: Tuning) -> tuple[str, ...]:
    """Return the collectives of which any call runs another algorithm."""
    found = (one.collective for one in tuning.ranges if not one.is_own)
    return tuple(dict.fromkeys(found))


def yours(names: Iterable[str], settings: Mapping[str, str], what: str) -> str:
    """Return the line about settings of the user's that win, empty for none."""
    found = [f"{name}={settings[name]}" for name in names if name in settings]
    if not found:
        return ""
    return f"your own {', '.join(found)} holds: {what}"
