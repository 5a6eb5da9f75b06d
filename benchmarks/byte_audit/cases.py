"""What each library can be told to run, and the schedule that this should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One algorithm of one library.

    Attributes
    ----------
    collective : str
        The operation.
    forced : str
        How the library calls the algorithm, empty where it chooses by itself.
    algorithm : str
        The schedule's name.
    settings : dict of str to int or str
        Control variables that force it.
    """

    collective: str
    forced: str
    algorithm: str
    settings: dict[str, int | str] = field(default_factory=dict)


OPEN_MPI = {
    "allgather": "linear bruck recursive_doubling ring neighbor_exchange -",
    "allreduce": "basic_linear nonoverlapping recursive_doubling ring "
    "segmented_ring rabenseifner",
    "alltoall": "linear pairwise modified_bruck linear_sync -",
    "bcast": "linear chain pipeline split_binary_tree binary_tree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner",
    "reduce_scatter": "nonoverlapping recursive_halving ring butterfly",
    "reduce_scatter_block": "basic_linear recursive_doubling recursive_halving "
    "butterfly",
}
"""Schedules in the order of Open MPI's numbers, from 1; - for two ranks only."""

MPICH = {
    "allgather": "brucks recursive_doubling ring",
    "allreduce": "recursive_doubling reduce_scatter_allgather ring recexch tree "
    "recursive_multiplying",
    "alltoall": "brucks pairwise scattered",
    "bcast": "binomial scatter_recursive_doubling_allgather scatter_ring_allgather "
    "tree",
    "reduce": "binomial reduce_scatter_gather",
    "reduce_scatter": "noncommutative pairwise recursive_doubling recursive_halving",
    "reduce_scatter_block": "noncommutative pairwise recursive_doubling "
    "recursive_halving",
}
"""Names of algorithms as MPICH's variables have them."""


def open_mpi() -> Iterator[Case]:
    """Yield every algorithm that Open MPI lets one force."""
    for collective, names in OPEN_MPI.items():
        for number, name in enumerate(names.split(), start=1):
            variable = f"coll_tuned_{collective}_algorithm"
            if name != "-":
                yield Case(collective, str(number), name, {variable: number})


def mpich() -> Iterator[Case]:
    """Yield every algorithm of MPICH that has a schedule of its own."""
    for collective, names in MPICH.items():
        for name in names.split():
            variable = f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM"
            yield Case(collective, name, f"mpich_{name}", {variable: name})


CASES: dict[str, tuple[Case, ...]] = {
    "openmpi": tuple(open_mpi()),
    "mpich": tuple(mpich()),
    "gloo": (
        Case("allgather", "", "gloo_ring"),
        Case("allreduce", "", "gloo_ring"),
        Case("bcast", "", "gloo_binomial"),
        Case("reduce", "", "gloo_ring"),
        Case("reduce_scatter", "", "gloo_ring"),
        Case("alltoall", "", "gloo"),
    ),
    "xgboost": (
        Case("allreduce", "", "xgboost_ring"),
        Case("bcast", "", "xgboost_binomial"),
    ),
    "lightgbm": (
        Case("allgather", "", "lightgbm"),
        Case("allreduce", "", "lightgbm"),
        Case("reduce_scatter", "", "lightgbm"),
    ),
}
