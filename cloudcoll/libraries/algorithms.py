"""Which algorithms a library can be told to run, by their names in `SCHEDULES`.

Here, and not in `cloudcoll.collectives`, because `cloudcoll run` reads rank maps
without loading NumPy; a test holds both together.
"""

from __future__ import annotations

import re

from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import library_key, mpich, nccl, open_mpi
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS as OPEN_MPI
from cloudcoll.libraries.question import Version
from cloudcoll.tuning import Tuning

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
whose name in the Developer Reference is that of a schedule. Not tried."""

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
    """Return the key of ``NAME[@VERSION]`` and the version, of Intel's and UCC, too.

    Raises
    ------
    UsageError
        An unknown name, or what follows is not a version.
    """
    name, at, version = library.partition("@")
    key = library_key(library)
    if key not in LIBRARIES:
        raise UsageError(f"unknown library {name!r} {known_names(key, LIBRARIES)}")
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})", version)
    if at and not found:
        raise UsageError(f"{library!r}: {version!r} is not a version such as 5.0.11")
    return key, tuple(map(int, found[1].split("."))) if found else ()


def algorithms_of(key: str, collective: str) -> tuple[str, ...]:
    """Return the algorithms that a library can be told to run for one collective.

    Parameters
    ----------
    key : str
        One of `LIBRARIES`.
    collective : str
        A key of `cloudcoll.collectives.SCHEDULES`.
    """
    if key == "openmpi":
        own = ("han",) if collective in open_mpi.HAN else ()
        return (*OPEN_MPI.get(collective, "").split(), *own)
    if key == "mpich":
        return _mpich(collective)
    if key == "nccl":
        names = nccl.ALGORITHMS.get(collective, {}).values()
        return tuple(dict.fromkeys(name for name in names if name))
    tables: dict[str, dict[str, dict[str, int]] | dict[str, dict[str, str]]] = {
        "intelmpi": INTEL,
        "ucc": UCC,
    }
    return tuple(tables.get(key, {}).get(collective, ()))


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
    """Refuse a tuning that names what its library does not have.

    Raises
    ------
    UsageError
        With the nearest name.
    """
    key, _ = library_version(tuning.library)
    for one in tuning.ranges:
        known = algorithms_of(key, one.collective)
        if one.algorithm and one.algorithm not in known:
            which = known_names(one.algorithm, known) if known else "(it has none)"
            raise UsageError(
                f"{tuning.library} can't be told an algorithm {one.algorithm!r} for "
                f"{one.collective!r} {which}"
            )
