"""The table of all schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from cloudcoll.schedule import (
    barriers,
    broadcasts,
    bruck,
    direct,
    doubling,
    halving,
    neighbors,
    reductions,
    ring,
)
from cloudcoll.schedule.rabenseifner import rabenseifner
from cloudcoll.schedule.recursive_doubling import recursive_doubling
from cloudcoll.schedule.steps import Flow


@dataclass(frozen=True)
class Family:
    """One line of the table.

    Attributes
    ----------
    build : callable
        Function of (ranks >= 2, bytes, and the parameters it takes).
    library : str
        Whose variant this is, with the versions it was checked against.
    only : int, optional
        The one number of ranks that it is for.
    """

    build: Callable[..., Flow]
    library: str
    only: int | None = None

    def parameters(self) -> tuple[str, ...]:
        """Return the names of what `build` takes beside ranks and bytes."""
        return tuple(inspect.signature(self.build).parameters)[2:]


OPEN_MPI = "Open MPI 4.1, 5.0"
OPEN_MPI_6 = "Open MPI 6"
MPICH = "MPICH 4, 5"
BOTH = f"{OPEN_MPI}, {MPICH}"

SCHEDULES: dict[str, dict[str, Family]] = {
    "allreduce": {
        "rabenseifner": Family(rabenseifner, OPEN_MPI),
        "recursive_doubling": Family(recursive_doubling, BOTH),
        "ring": Family(ring.ring, OPEN_MPI),
        "segmented_ring": Family(ring.segmented_ring, OPEN_MPI),
    },
    "allgather": {
        "bruck": Family(bruck.allgather, BOTH),
        "direct": Family(direct.allgather, OPEN_MPI_6),
        "neighbor": Family(neighbors.neighbor_exchange, OPEN_MPI),
        "recursive_doubling": Family(doubling.open_mpi_allgather, OPEN_MPI),
        "ring": Family(ring.allgather, BOTH),
        "sparbit": Family(neighbors.sparbit, "Open MPI 5.0"),
        "two_proc": Family(direct.allgather, OPEN_MPI, only=2),
        "mpich_recursive_doubling": Family(doubling.mpich_allgather, MPICH),
    },
    "alltoall": {
        "linear": Family(direct.alltoall, BOTH),
        "linear_sync": Family(direct.alltoall, OPEN_MPI),
        "modified_bruck": Family(bruck.alltoall, BOTH),
        "pairwise": Family(direct.pairwise_alltoall, BOTH),
        "two_proc": Family(direct.alltoall, OPEN_MPI, only=2),
    },
    "reduce_scatter": {
        "butterfly": Family(halving.butterfly, OPEN_MPI),
        "butterfly_block": Family(halving.butterfly_block, OPEN_MPI),
        "recursive_halving": Family(halving.recursive_halving, BOTH),
        "ring": Family(ring.reduce_scatter, OPEN_MPI),
    },
    "barrier": {
        "bruck": Family(barriers.bruck, OPEN_MPI),
        "double_ring": Family(barriers.double_ring, OPEN_MPI),
        "linear": Family(barriers.linear, OPEN_MPI),
        "recursive_doubling": Family(barriers.recursive_doubling, OPEN_MPI),
        "tree": Family(barriers.tree, OPEN_MPI),
        "two_proc": Family(barriers.recursive_doubling, OPEN_MPI, only=2),
        "mpich_dissemination": Family(barriers.dissemination, MPICH),
    },
    "bcast": {
        "linear": Family(broadcasts.linear, OPEN_MPI),
        "chain": Family(broadcasts.chain, OPEN_MPI),
        "pipeline": Family(broadcasts.pipeline, OPEN_MPI),
        "split_binary_tree": Family(broadcasts.split_binary_tree, OPEN_MPI),
        "binary_tree": Family(broadcasts.binary_tree, OPEN_MPI),
        "binomial": Family(broadcasts.binomial, OPEN_MPI),
        "knomial": Family(broadcasts.knomial, OPEN_MPI),
        "scatter_allgather": Family(broadcasts.scatter_allgather, BOTH),
        "scatter_allgather_ring": Family(broadcasts.scatter_allgather_ring, BOTH),
        "mpich_binomial": Family(broadcasts.mpich_binomial, MPICH),
    },
    "reduce": {
        "linear": Family(reductions.linear, OPEN_MPI),
        "chain": Family(reductions.chain, OPEN_MPI),
        "pipeline": Family(reductions.pipeline, OPEN_MPI),
        "binary": Family(reductions.binary, OPEN_MPI),
        "binomial": Family(reductions.binomial, OPEN_MPI),
        "in_order_binary": Family(reductions.in_order_binary, OPEN_MPI),
        "rabenseifner": Family(reductions.rabenseifner, OPEN_MPI),
        "knomial": Family(reductions.knomial, OPEN_MPI_6),
        "mpich_binomial": Family(reductions.mpich_binomial, MPICH),
    },
}
"""Collective -> algorithm -> family."""
