"""Communication schedules: who sends how much to whom, step by step.

One file per kind of algorithm, or per library that has its own. `SCHEDULES` is the
table of all algorithms; `workload` joins several collectives, `readymade` has some.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from cloudcoll.collectives import (
    boosting,
    broadcasts,
    composed,
    doubling,
    exchanges,
    gloo,
    nccl,
    recexch,
    reductions,
    ring,
    trees,
)
from cloudcoll.collectives.steps import Cargo, Flow, Schedule, Step, bounded_messages
from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import LIBRARIES

__all__ = [
    "SCHEDULES",
    "Cargo",
    "Family",
    "Flow",
    "Schedule",
    "Step",
    "build_schedule",
    "find_family",
]


@dataclass(frozen=True)
class Variant:
    """The key of a library that has an algorithm; its name and versions, as shown."""

    library: str
    versions: str


@dataclass(frozen=True)
class Family:
    """One algorithm of a collective: how to build its schedule, and who has it.

    Attributes
    ----------
    build : callable
        Function of (ranks >= 2, bytes, and the parameters it takes).
    variants : tuple of Variant
        Whose it is; of no library's in particular if empty.
    only : int, optional
        The one number of ranks that it is for.
    """

    build: Callable[..., Flow]
    variants: tuple[Variant, ...]
    only: int | None = None

    def variants_of(self, library: str) -> tuple[Variant, ...]:
        """Return the variants of one library."""
        return tuple(one for one in self.variants if one.library == library)

    def of(self, library: str) -> Family:
        """Return it with the variants of one library; itself if that has none."""
        return replace(self, variants=self.variants_of(library) or self.variants)

    @property
    def library(self) -> str:
        """Whose variant this is, with the versions it was checked against."""
        return "; ".join(one.versions for one in self.variants) or "generic"

    @property
    def turns(self) -> float:
        """Bytes for which the first library's ranks take no turns; see `Schedule`."""
        known = LIBRARIES.get(self.variants[0].library) if self.variants else None
        return known.turns if known else inf

    def parameters(self) -> tuple[str, ...]:
        """Return the names of what `build` takes beside ranks and bytes."""
        return tuple(inspect.signature(self.build).parameters)[2:]


OPEN_MPI = (Variant("openmpi", "Open MPI 4.1, 5.0"),)
OPEN_MPI_5 = (Variant("openmpi", "Open MPI 5.0"),)
OPEN_MPI_6 = (Variant("openmpi", "Open MPI 6"),)
MPICH = (Variant("mpich", "MPICH 4, 5"),)
MPICH_5 = (Variant("mpich", "MPICH 5"),)
BOTH = OPEN_MPI + MPICH
GLOO = (Variant("gloo", "Gloo 2026-04"),)
TORCH = (Variant("gloo", "Gloo 2026-04; torch 2.13"),)
LIGHTGBM = (Variant("lightgbm", "LightGBM 4.6"),)
NCCL = (Variant("nccl", "NCCL 2"),)
UCC = (Variant("ucc", "UCC 1.10"),)
XGBOOST = (Variant("xgboost", "XGBoost 2.1-3.4"),)
XGBOOST_3_2 = (Variant("xgboost", "XGBoost 2.1-3.2"),)
XGBOOST_3_3 = (Variant("xgboost", "XGBoost 3.3-3.4"),)
GENERIC = ()

FLAT: dict[str, dict[str, Family]] = {
    "allreduce": {
        "basic_linear": Family(composed.basic_linear, OPEN_MPI),
        "allgather_reduce": Family(composed.allgather_reduce, OPEN_MPI_6),
        "han": Family(composed.han_allreduce, OPEN_MPI_5),
        "nonoverlapping": Family(composed.nonoverlapping, OPEN_MPI),
        "rabenseifner": Family(doubling.rabenseifner, OPEN_MPI),
        "recursive_doubling": Family(doubling.recursive_doubling, BOTH),
        "ring": Family(ring.ring, OPEN_MPI + MPICH_5),
        "segmented_ring": Family(ring.segmented_ring, OPEN_MPI),
        "mpich_k_reduce_scatter_allgather": Family(
            recexch.reduce_scatter_allgather, MPICH_5
        ),
        "mpich_recexch": Family(recexch.allreduce, MPICH_5),
        "mpich_recursive_multiplying": Family(recexch.recursive_multiplying, MPICH_5),
        "mpich_reduce_scatter_allgather": Family(doubling.mpich_rabenseifner, MPICH),
        **{
            f"mpich_tree_{kind}": Family(partial(trees.mpich_allreduce, shape), MPICH_5)
            for kind, shape in trees.MPICH.items()
        },
        "gloo_bcube": Family(gloo.bcube, GLOO),
        "gloo_halving_doubling": Family(gloo.halving_doubling, GLOO),
        "gloo_ring": Family(gloo.ring, TORCH),
        "gloo_ring_chunked": Family(ring.ring, GLOO),
        "gloo_ring_whole": Family(gloo.whole_ring, GLOO),
        "lightgbm": Family(boosting.lightgbm_allreduce, LIGHTGBM),
        "nccl_ring": Family(ring.ring, NCCL),
        "nccl_tree": Family(nccl.tree, NCCL),
        "torus": Family(ring.torus, GENERIC),
        "xgboost_gather": Family(boosting.xgboost_gather, XGBOOST),
        "xgboost_ring": Family(boosting.xgboost_ring, XGBOOST),
    },
    "allgather": {
        "bruck": Family(exchanges.bruck_allgather, BOTH),
        "direct": Family(exchanges.linear_allgather, OPEN_MPI_6),
        "han": Family(composed.han_allgather, OPEN_MPI_5),
        "linear": Family(composed.gather_bcast, OPEN_MPI),
        "neighbor": Family(exchanges.neighbor_exchange, OPEN_MPI),
        "recursive_doubling": Family(doubling.open_mpi_allgather, OPEN_MPI),
        "ring": Family(ring.allgather, BOTH),
        "sparbit": Family(exchanges.sparbit, OPEN_MPI_5),
        "two_proc": Family(exchanges.linear_allgather, OPEN_MPI, only=2),
        "mpich_recexch_doubling": Family(recexch.allgather_doubling, MPICH_5),
        "mpich_recexch_halving": Family(recexch.allgather_halving, MPICH_5),
        "mpich_recursive_doubling": Family(doubling.mpich_allgather, MPICH),
        "gloo_ring": Family(ring.allgather, TORCH),
        "lightgbm": Family(boosting.lightgbm_allgather, LIGHTGBM),
        "nccl_pat": Family(nccl.pat_allgather, NCCL),
        "nccl_ring": Family(ring.allgather, NCCL),
        "xgboost_ring": Family(boosting.xgboost_allgather, XGBOOST),
    },
    "alltoall": {
        "linear": Family(exchanges.linear_alltoall, BOTH),
        "linear_sync": Family(exchanges.linear_alltoall, OPEN_MPI),
        "modified_bruck": Family(exchanges.bruck_alltoall, BOTH),
        "pairwise": Family(exchanges.pairwise_alltoall, OPEN_MPI),
        "two_proc": Family(exchanges.linear_alltoall, OPEN_MPI, only=2),
        "mpich_pairwise": Family(exchanges.mpich_pairwise_alltoall, MPICH),
        "gloo_linear": Family(exchanges.linear_alltoall, TORCH),
        "nccl_p2p": Family(nccl.alltoall, NCCL),
    },
    "reduce_scatter": {
        "block_recursive_doubling": Family(doubling.block_recursive_doubling, OPEN_MPI),
        "butterfly": Family(doubling.butterfly, OPEN_MPI),
        "block_linear": Family(composed.reduce_scatter_block, OPEN_MPI),
        "butterfly_block": Family(doubling.butterfly_block, OPEN_MPI),
        "nonoverlapping": Family(composed.reduce_scatterv, OPEN_MPI),
        "recursive_halving": Family(doubling.recursive_halving, BOTH),
        "ring": Family(ring.reduce_scatter, OPEN_MPI),
        "mpich_pairwise": Family(exchanges.pairwise_reduce_scatter, MPICH),
        "gloo_ring": Family(gloo.ring, TORCH),
        "gloo_ring_parts": Family(gloo.ring_of_parts, TORCH),
        "lightgbm": Family(boosting.lightgbm_reduce_scatter, LIGHTGBM),
        "lightgbm_halving": Family(boosting.lightgbm_halving, LIGHTGBM),
        "nccl_pat": Family(nccl.pat_reduce_scatter, NCCL),
        "nccl_ring": Family(ring.reduce_scatter, NCCL),
        "ucc_ring": Family(ring.bidirectional_reduce_scatter, UCC),
    },
    "barrier": {
        "bruck": Family(exchanges.bruck_barrier, OPEN_MPI),
        "double_ring": Family(exchanges.double_ring_barrier, OPEN_MPI),
        "han": Family(composed.han_barrier, OPEN_MPI_5),
        "linear": Family(exchanges.linear_barrier, OPEN_MPI),
        "recursive_doubling": Family(exchanges.recursive_doubling_barrier, OPEN_MPI),
        "tree": Family(exchanges.tree_barrier, OPEN_MPI),
        "two_proc": Family(exchanges.recursive_doubling_barrier, OPEN_MPI, only=2),
        "mpich_dissemination": Family(exchanges.dissemination_barrier, MPICH),
        "mpich_recexch": Family(recexch.barrier, MPICH_5),
        "gloo_dissemination": Family(exchanges.bruck_barrier, TORCH),
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
        "han": Family(composed.han_bcast, OPEN_MPI_5),
        "mpich_binomial": Family(broadcasts.mpich_binomial, MPICH),
        **{
            f"mpich_tree_{kind}": Family(partial(broadcasts.mpich_tree, shape), MPICH_5)
            for kind, shape in trees.MPICH.items()
        },
        "gloo_binomial": Family(gloo.binomial, TORCH),
        "nccl_ring": Family(nccl.ring_broadcast, NCCL),
        "xgboost_binomial": Family(broadcasts.mpich_binomial, XGBOOST_3_2),
        "xgboost_relay": Family(boosting.relayed_broadcast, XGBOOST_3_3),
    },
    "reduce": {
        "linear": Family(reductions.linear, OPEN_MPI),
        "chain": Family(reductions.chain, OPEN_MPI),
        "pipeline": Family(reductions.pipeline, OPEN_MPI),
        "binary": Family(reductions.binary, OPEN_MPI),
        "binomial": Family(reductions.binomial, OPEN_MPI),
        "in_order_binary": Family(reductions.in_order_binary, OPEN_MPI),
        "rabenseifner": Family(reductions.rabenseifner, OPEN_MPI),
        "han": Family(composed.han_reduce, OPEN_MPI_5),
        "knomial": Family(reductions.knomial, OPEN_MPI_6),
        "mpich_binomial": Family(reductions.mpich_binomial, MPICH),
        "mpich_reduce_scatter_gather": Family(reductions.mpich_rabenseifner, MPICH),
        "gloo_ring": Family(gloo.reduce, TORCH),
        "nccl_ring": Family(nccl.ring_reduce, NCCL),
    },
    "sendrecv": {
        "backward": Family(exchanges.backward, GENERIC),
        "both": Family(exchanges.both, GENERIC),
        "forward": Family(exchanges.forward, GENERIC),
        "openmpi_both": Family(exchanges.both, OPEN_MPI),
    },
}
"""Collective -> algorithm -> family, but for MPICH's two levels."""


def _smp(collective: str) -> dict[str, Family]:
    """Return MPICH's algorithms of a collective between hosts."""
    return {
        f"mpich_smp_{name.removeprefix('mpich_')}": Family(
            composed.MpichSmp(collective, family.build), own
        )
        for name, family in FLAT[collective].items()
        if (own := family.variants_of("mpich"))
    }


SMP = ("allreduce", "barrier", "bcast", "reduce")
"""What MPICH does in two levels on hosts with several ranks (``ch4/generic.json``)."""

SCHEDULES: dict[str, dict[str, Family]] = FLAT | {
    collective: FLAT[collective] | _smp(collective) for collective in SMP
}
"""Collective -> algorithm -> family."""

LIMITS: dict[str, tuple[int, float]] = {
    "root": (0, inf),
    "segment": (0, inf),
    "radix": (2, inf),
    "fanout": (1, inf),
    "local": (1, inf),
    "columns": (0, inf),
    "allgather": (1, 8),
    "barrier": (1, 6),
    "bcast": (1, 9),
    "gather": (1, 3),
    "reduce": (1, 8),
    "scatter": (1, 3),
}
"""The smallest and the largest value of each parameter that a family may take."""


def find_family(collective: str, algorithm: str) -> Family:
    """Return the line of `SCHEDULES` for an algorithm; the error names what exists."""
    if collective not in SCHEDULES:
        raise UsageError(
            f"unknown collective {collective!r} {known_names(collective, SCHEDULES)}"
        )
    families = SCHEDULES[collective]
    if algorithm not in families:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} "
            f"{known_names(algorithm, families)}"
        )
    return families[algorithm]


def build_schedule(
    collective: str,
    algorithm: str,
    ranks: int,
    size: int,
    library: str = "",
    /,
    **parameters: int,
) -> Schedule:
    """Return the schedule of one call of a collective.

    Parameters
    ----------
    collective, algorithm : str
        Keys of `SCHEDULES`.
    ranks : int
        World size, at least 1.
    size : int
        Bytes of the full vector.
    library : str
        Key of the one that runs it: ranks of Open MPI take turns, those of MPICH do
        not. Empty for the first that has the algorithm.
    **parameters : int
        What the family takes: ``root`` (a rank), ``segment`` (bytes, 0 for the
        whole message), ``radix``, ``fanout``, ``local`` (ranks of each host),
        ``columns`` (ranks of a row); of what Open MPI puts together, the parts
        by their numbers.

    Raises
    ------
    UsageError
        Unknown name, or a number out of range; the message names what exists.
    """
    family = find_family(collective, algorithm).of(library)
    if ranks < 1 or size < 0:
        raise UsageError(f"no schedule for {ranks} ranks and {size} bytes")
    _check(f"{collective} {algorithm}", family, ranks, parameters)
    with bounded_messages():
        flow = family.build(ranks, size, **parameters) if ranks > 1 else Flow(())
    return Schedule(
        collective,
        algorithm,
        family.library,
        ranks,
        size,
        tuple(step for step in flow.steps if len(step.src)),
        flow.blocks,
        parameters,
        family.turns,
        library,
    )


def _check(name: str, family: Family, ranks: int, parameters: dict[str, int]) -> None:
    if family.only not in (None, ranks):
        raise UsageError(f"{name} is for {family.only} ranks, not {ranks}")
    known = family.parameters()
    for key, value in parameters.items():
        if key not in known:
            takes = f"takes: {', '.join(known)}" if known else "takes none"
            raise UsageError(f"{name} has no parameter {key!r} ({takes})")
        least, most = LIMITS[key]
        if not least <= value <= most:
            allowed = f"at least {least}" if most == inf else f"{least} to {most}"
            raise UsageError(f"{name}: {key} must be {allowed}, not {value}")
    if parameters.get("root", 0) >= ranks:
        raise UsageError(
            f"{name}: root {parameters['root']} is not one of {ranks} ranks, "
            f"0 to {ranks - 1}"
        )
