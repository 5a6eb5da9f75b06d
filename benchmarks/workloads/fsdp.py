"""The language model with its parameters split over all ranks (torch's FSDP)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.workloads import gloo, transformer
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
WIDTH = 128


def sent(ranks: int) -> list[Sent]:
    """Return two gathers of each layer, one of the rest, and all gradients."""
    model = transformer.Language(WIDTH)
    layers = [gloo.gradient_bytes(layer) for layer in model.layers]
    rest = gloo.gradient_bytes(model) - sum(layers)
    gathered = [Sent("allgather", size, 2) for size in layers]
    scattered = [Sent("reduce_scatter", size) for size in (*layers, rest)]
    return [*gathered, Sent("allgather", rest), *scattered]


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    torch.manual_seed(0)
    model = transformer.Language(WIDTH)
    words = transformer.batch(torch.Generator().manual_seed(place.rank))
    with gloo.joined(place):
        if not place.alone:
            mesh = init_device_mesh("cpu", (place.size,))
            for part in (*model.layers, model):
                fully_shard(part, mesh=mesh)
        yield gloo.descent(model, words)
