"""Workloads that need no file: what common kinds of training send in one step.

Each is a function of how the ranks are split and of a few numbers. Whatever is
data parallel alone runs in the groups ``dp-cp``: without a split, in the world.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.groups import WORLD, Parallel
from cloudcoll.collectives.workload import (
    MOST,
    Operation,
    Workload,
    split_of,
)
from cloudcoll.errors import UsageError
from cloudcoll.libraries import OF_TRAINING, large_vector_algorithm
from cloudcoll.units import parse_size

MIB = 1 << 20
DATA = "dp-cp"
"""The groups whose ranks hold the same part of the model."""


class Draft(NamedTuple):
    """An operation before its library is known.

    Attributes
    ----------
    size : int
        Bytes of the full vector; 0 for an operation that is left out.
    times : int
        Calls in a step.
    cut : int
        Each group is cut into groups of so many ranks; 0 leaves it whole.
    """

    collective: str
    groups: str
    size: int
    times: int = 1
    cut: int = 0


def ddp(
    split: Parallel, *, bytes: int = 1024 * MIB, bucket: int = 25 * MIB
) -> Iterator[Draft]:
    """Yield the gradients in buckets, the first of 1 MiB.

    Li et al., "PyTorch Distributed" (2020); ``bucket_cap_mb`` and
    ``_DEFAULT_FIRST_BUCKET_BYTES`` of torch 2.13.
    """
    first = min(bytes, MIB)
    yield Draft("allreduce", DATA, first)
    yield Draft("allreduce", DATA, bucket, (bytes - first) // bucket)
    yield Draft("allreduce", DATA, (bytes - first) % bucket)


def fsdp(
    split: Parallel, *, bytes: int = 1024 * MIB, units: int = 32
) -> Iterator[Draft]:
    """Yield what gathers each unit's parameters twice, and shares its gradients.

    Zhao et al., "PyTorch FSDP" (2023): full sharding gathers a unit for the
    forward pass and again for the backward pass.
    """
    unit = max(1, bytes // units)
    yield Draft("allgather", DATA, unit, 2 * units)
    yield Draft("reduce_scatter", DATA, unit, units)


def dlrm(
    split: Parallel, *, bytes: int = 32 * MIB, exchange: int = 16 * MIB
) -> Iterator[Draft]:
    """Yield the exchange of embeddings and back, and the dense gradients.

    Naumov et al., "Deep Learning Recommendation Model" (2019): tables are split
    over the ranks, the dense part is data parallel. Of `exchange` each rank
    sends every other one its share.
    """
    yield Draft("alltoall", DATA, exchange, 2)
    yield Draft("allreduce", DATA, bytes)


def towers(
    split: Parallel,
    *,
    tower: int = 8,
    bytes: int = 32 * MIB,
    exchange: int = 64 * MIB,
) -> Iterator[Draft]:
    """Yield an exchange inside groups that should sit inside one rack each.

    `tower` neighbouring ranks make one, the last may be smaller. The dense
    gradients are summed over all.
    """
    yield Draft("alltoall", DATA, exchange, 2, cut=tower)
    yield Draft("allreduce", DATA, bytes)


def megatron(
    split: Parallel,
    *,
    bytes: int = 1024 * MIB,
    activation: int = 16 * MIB,
    layers: int = 32,
    microbatches: int = 8,
) -> Iterator[Draft]:
    """Yield what tensor, context, expert, pipeline and data parallelism send.

    `bytes` are the gradients of the whole model, `activation` the output of a
    layer for a micro-batch, on one rank. Narayanan et al., "Efficient
    Large-Scale Language Model Training on GPU Clusters" (2021), 3.2: two
    allreduces forward and two backward a layer. Keys and values are gathered
    over ``cp``, their gradients scattered; experts exchange twice each way.
    """
    turns = -(-layers // split.pp) * microbatches
    yield Draft("allreduce", "tp", activation, 4 * turns)
    yield Draft("allgather", "cp", 2 * activation * split.cp, turns)
    yield Draft("reduce_scatter", "cp", 2 * activation * split.cp, turns)
    yield Draft("alltoall", "ep", activation, 4 * turns)
    yield Draft("sendrecv", "pp", activation, microbatches)
    yield Draft("allreduce", DATA, max(1, bytes // (split.tp * split.pp)))


READY_MADE: dict[str, Callable[..., Iterator[Draft]]] = {
    "ddp": ddp,
    "dlrm": dlrm,
    "fsdp": fsdp,
    "megatron": megatron,
    "towers": towers,
}
"""Name -> what is sent."""


def ready_made(
    text: str, ranks: int | None = None, parallel: str | None = None
) -> Workload:
    """Return a ready-made workload.

    Parameters
    ----------
    text : str
        ``fsdp``, ``fsdp:bytes=7G,units=40,library=gloo``: a key of
        `READY_MADE` and its numbers; ``library`` chooses the algorithms.
    ranks : int, optional
        The job's world size; else that of `parallel`.
    parallel : str, optional
        See `parse_parallel`.

    Raises
    ------
    UsageError
        Unknown name or number, one below 1, or a split that does not fit.
    """
    name, _, rest = text.partition(":")
    if name not in READY_MADE:
        raise UsageError(
            f"unknown workload {name!r} (ready-made: {', '.join(READY_MADE)})"
        )
    split = split_of(parallel, ranks)
    library, numbers = _settings(name, rest)
    operations = [
        Operation(
            call.collective,
            large_vector_algorithm(library, call.collective),
            call.size,
            groups,
            call.times,
            _name(call, groups),
            library=library,
        )
        for call in READY_MADE[name](split, **numbers)
        if max(map(len, groups := _groups(split, call))) > 1 and call.size * call.times
    ]
    return Workload(
        name, split.ranks, tuple(operations), str(split) if parallel else ""
    )


def _groups(split: Parallel, call: Draft) -> list[Ints]:
    groups = split.named(call.groups)
    if not call.cut:
        return list(groups)
    cuts = range(call.cut, groups.shape[1], call.cut)
    return [part for group in groups for part in np.split(group, cuts)]


def _name(call: Draft, groups: Sequence[Ints]) -> str:
    if len(groups) == 1:
        return WORLD
    return f"towers of {call.cut}" if call.cut else call.groups


def _settings(name: str, text: str) -> tuple[str, dict[str, int]]:
    """Return the library, and the numbers that a ready-made workload takes."""
    known = [*inspect.signature(READY_MADE[name]).parameters][1:]
    library, numbers = OF_TRAINING, {}
    for setting in filter(None, text.split(",")):
        key, _, value = setting.partition("=")
        if key == "library":
            library = value
        elif key not in known:
            raise UsageError(
                f"workload {name} takes no {key!r} (takes: {', '.join(known)}, library)"
            )
        else:
            numbers[key] = parse_size(value)
            if not 1 <= numbers[key] <= MOST:
                raise UsageError(f"workload {name}: {setting} must be 1 or more")
    return library, numbers
