"""What each library can be told to run, and the schedule that this should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

SHORT, LONG = 16 << 10, 128 << 10
"""Bytes of one rank's part of a vector."""


@dataclass(frozen=True)
class Case:
    """One algorithm of one library.

    Attributes
    ----------
    call : str
        What is called.
    forced : str
        How the library calls the algorithm, empty where it chooses by itself.
    collective, algorithm : str
        The schedule that this should be.
    otherwise : str
        The algorithm where the ranks are no power of two, if it is another.
    blocks : tuple of int
        Sizes to run with: bytes of one rank's part of the vector.
    settings : dict of str to int or str
        Control variables that force it.
    """

    call: str
    forced: str
    collective: str
    algorithm: str
    otherwise: str = ""
    blocks: tuple[int, ...] = (SHORT, LONG)
    settings: dict[str, int | str] = field(default_factory=dict, hash=False)


OPEN_MPI = {
    "allgather": "linear bruck recursive_doubling ring neighbor - sparbit",
    "allreduce": "basic_linear nonoverlapping recursive_doubling ring "
    "segmented_ring rabenseifner",
    "alltoall": "linear pairwise modified_bruck linear_sync",
    "bcast": "linear chain pipeline split_binary_tree binary_tree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner",
    "reduce_scatter": "nonoverlapping recursive_halving ring butterfly",
    "reduce_scatter_block": "block_linear block_recursive_doubling "
    "recursive_halving butterfly_block",
}
"""Schedules in the order of Open MPI's numbers, from 1; - is for two ranks only."""

PARTS = {
    ("allgather", "linear"): {"gather": 1, "bcast": 6},
    ("allreduce", "nonoverlapping"): {"reduce": 5, "bcast": 6},
    ("reduce_scatter", "nonoverlapping"): {"reduce": 5},
    ("reduce_scatter_block", "block_linear"): {"reduce": 5, "scatter": 1},
}
"""What those that are composed of other collectives are told to use."""

MPICH = {
    "allgather": {
        "brucks": "bruck",
        "recursive_doubling": "mpich_recursive_doubling",
        "ring": "ring",
        "recexch_doubling": "mpich_recexch_doubling",
        "recexch_halving": "mpich_recexch_halving",
    },
    "allreduce": {
        "recursive_doubling": "recursive_doubling",
        "reduce_scatter_allgather": "mpich_reduce_scatter_allgather",
        "ring": "ring",
        "recexch": "mpich_recexch",
        "recursive_multiplying": "mpich_recursive_multiplying",
        "k_reduce_scatter_allgather": "mpich_k_reduce_scatter_allgather",
        "tree": "mpich_tree_knomial_1",
    },
    "alltoall": {
        "brucks": "modified_bruck",
        "pairwise": "mpich_pairwise",
        "scattered": "linear",
    },
    "bcast": {
        "binomial": "mpich_binomial",
        "scatter_recursive_doubling_allgather": "scatter_allgather",
        "scatter_ring_allgather": "scatter_allgather_ring",
        "tree": "mpich_tree_kary",
    },
    "reduce": {
        "binomial": "mpich_binomial",
        "reduce_scatter_gather": "mpich_reduce_scatter_gather",
    },
    "reduce_scatter": {
        "pairwise": "mpich_pairwise",
        "recursive_doubling": "block_recursive_doubling",
        "recursive_halving": "recursive_halving",
    },
    "reduce_scatter_block": {
        "pairwise": "mpich_pairwise",
        "recursive_doubling": "block_recursive_doubling",
        "recursive_halving": "recursive_halving",
    },
}
"""Schedules by the names of algorithms in MPICH's variables."""

POWERS_OF_TWO = {("allgather", "recursive_doubling"): "ring"}
"""What MPICH takes instead where the ranks are no power of two."""


def open_mpi() -> Iterator[Case]:
    """Yield every algorithm that Open MPI lets one force."""
    for call, names in OPEN_MPI.items():
        for number, name in enumerate(names.split(), start=1):
            forced = {call: number, **PARTS.get((call, name), {})}
            settings = {f"coll_tuned_{c}_algorithm": n for c, n in forced.items()}
            if name != "-":
                yield _case(call, str(number), name, settings)


def _case(
    call: str, forced: str, algorithm: str, settings: dict[str, int | str]
) -> Case:
    # The same operation to us: the parts are of equal size in both.
    collective = call.removesuffix("_block")
    return Case(call, forced, collective, algorithm, settings=settings)


def mpich() -> Iterator[Case]:
    """Yield the algorithms that MPICH lets one force."""
    for call, names in MPICH.items():
        for name, algorithm in names.items():
            variable = f"MPIR_CVAR_{call.upper()}_INTRA_ALGORITHM"
            case = _case(call, name, algorithm, {variable: name})
            yield replace(case, otherwise=POWERS_OF_TWO.get((call, name), ""))


CASES: dict[str, tuple[Case, ...]] = {
    "openmpi": tuple(open_mpi()),
    "mpich": tuple(mpich()),
    "gloo": (
        Case("allgather", "", "allgather", "gloo_ring"),
        Case("allreduce", "", "allreduce", "gloo_ring"),
        Case("alltoall", "", "alltoall", "gloo_linear"),
        Case("bcast", "", "bcast", "gloo_binomial"),
        # Longer blocks have more than two segments.
        Case("reduce", "", "reduce", "gloo_ring", blocks=(SHORT, 9 << 18)),
        # N allreduces of small parts: with headers on more messages than the others.
        Case(
            "reduce_scatter",
            "",
            "reduce_scatter",
            "gloo_ring",
            blocks=(2 * LONG, 4 * LONG),
        ),
    ),
    "xgboost": (
        Case("allreduce", "", "allreduce", "xgboost_ring"),
        Case("bcast", "", "bcast", "xgboost_binomial"),
    ),
    # Above 10 MiB LightGBM chooses anew.
    "lightgbm": tuple(
        Case(call, "", call, "lightgbm", blocks=(SHORT, 9 << 18))
        for call in ("allgather", "allreduce", "reduce_scatter")
    ),
}
