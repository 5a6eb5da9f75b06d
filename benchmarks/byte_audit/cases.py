"""What each library can be told to run, and the schedule that this should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cloudcoll.libraries.mpich import FORCED, SMP

SHORTEST, SHORT, LONG = 1 << 10, 16 << 10, 128 << 10
"""Bytes of one rank's part of a vector."""


@dataclass(frozen=True)
class Case:
    """One algorithm of one library, or what it takes by itself.

    Attributes
    ----------
    call : str
        What is called.
    forced : str
        How the library calls the algorithm, empty where it chooses by itself.
    collective, algorithm : str
        The schedule that this should be; no algorithm where
        `cloudcoll.libraries` says which.
    blocks : tuple of int
        Sizes to run with: bytes of one rank's part of the vector.
    settings : mapping of str to int or str
        Control variables that force it.
    root : int
        Of a broadcast or reduction.
    two_proc : bool
        It is for two ranks only.
    """

    call: str
    forced: str
    collective: str
    algorithm: str
    blocks: tuple[int, ...] = (SHORT, LONG)
    settings: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    root: int = 0
    two_proc: bool = False

    def fits(self, ranks: int, local: int) -> bool:
        """Return whether it says something of so many ranks, `local` on each host."""
        inside = not self.algorithm and (not self.forced or self.call in SMP)
        return self.two_proc == (ranks == 2) and (local == 1 or inside)


OPEN_MPI = {
    "allgather": "linear bruck recursive_doubling ring neighbor - sparbit",
    "allreduce": "basic_linear nonoverlapping recursive_doubling ring "
    "segmented_ring rabenseifner",
    "alltoall": "linear pairwise modified_bruck linear_sync -",
    "barrier": "linear double_ring recursive_doubling bruck - tree",
    "bcast": "linear chain pipeline split_binary_tree binary_tree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner",
    "reduce_scatter": "nonoverlapping recursive_halving ring butterfly",
    "reduce_scatter_block": "block_linear block_recursive_doubling "
    "recursive_halving butterfly_block",
}
"""Schedules in the order of Open MPI's numbers, from 1; - is for two ranks only."""

TWO_PROC = {"allgather": 6, "alltoall": 5, "barrier": 5}
"""Numbers of those."""

PARTS = {
    ("allgather", "linear"): {"gather": 1, "bcast": 6},
    ("allreduce", "nonoverlapping"): {"reduce": 5, "bcast": 6},
    ("reduce_scatter", "nonoverlapping"): {"reduce": 5},
    ("reduce_scatter_block", "block_linear"): {"reduce": 5, "scatter": 1},
}
"""What those that are composed of other collectives are told to use."""


def open_mpi() -> Iterator[Case]:
    """Yield every algorithm that Open MPI lets one force."""
    for call, names in OPEN_MPI.items():
        for number, name in enumerate(names.split(), start=1):
            forced = {call: number, **PARTS.get((call, name), {})}
            settings = {f"coll_tuned_{c}_algorithm": n for c, n in forced.items()}
            two = TWO_PROC.get(call) == number
            algorithm = "two_proc" if two else name
            if algorithm != "-":
                case = _case(call, str(number), algorithm, settings)
                yield replace(case, two_proc=two)
    yield from by_itself(OPEN_MPI)


def mpich() -> Iterator[Case]:
    """Yield the algorithms that MPICH lets one force."""
    calls = {**FORCED, "reduce_scatter_block": FORCED["reduce_scatter"]}
    for call, names in calls.items():
        for name in names:
            variable = f"MPIR_CVAR_{call.upper()}_INTRA_ALGORITHM"
            yield _case(call, name, "", {variable: name})
    yield from by_itself(calls)


def by_itself(calls: Iterable[str]) -> Iterator[Case]:
    """Yield calls of which nothing is forced, those with a root with two."""
    for call in calls:
        for root in (0, 1) if call in ("bcast", "reduce") else (0,):
            if call != "reduce_scatter_block":
                yield replace(_case(call, "", "", {}), root=root)


def _case(
    call: str, forced: str, algorithm: str, settings: Mapping[str, int | str]
) -> Case:
    # The same operation to us: the parts are of equal size in both.
    collective = call.removesuffix("_block")
    blocks: tuple[int, ...] = (SHORT, LONG) if forced else (SHORTEST, SHORT, LONG)
    if call == "barrier":
        blocks = (0,)
    return Case(call, forced, collective, algorithm, blocks, settings)


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
            "gloo_ring_parts",
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
