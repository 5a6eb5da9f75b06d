"""torch's ranks on Gloo, and training in them with DistributedDataParallel."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.workloads.place import Place, Sent

LIBRARY = "gloo@2.13"
LIFE = datetime.timedelta(minutes=2)
FIRST_BUCKET = 1 << 20
"""``_DEFAULT_FIRST_BUCKET_BYTES`` of torch 2.13."""
RATE = 0.01

Batch = tuple[torch.Tensor, torch.Tensor]


@contextlib.contextmanager
def joined(place: Place) -> Iterator[None]:
    """Join torch's default process group; rank 0 has the store."""
    if place.alone:
        yield
        return
    address, first = place.addresses[0], place.rank == 0
    store = dist.TCPStore(address, place.port, place.size, first, timeout=LIFE)
    dist.init_process_group(
        "gloo", store=store, rank=place.rank, world_size=place.size, timeout=LIFE
    )
    try:
        yield
        # The one that keeps the store must not be the first to leave.
        place.wait()
    finally:
        dist.destroy_process_group()


def gradient_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's gradients."""
    return sum(4 * parameter.numel() for parameter in model.parameters())


def gradients(model: nn.Module) -> list[Sent]:
    """Return what DistributedDataParallel sends: gradients in at most two buckets."""
    size = gradient_bytes(model)
    buckets = [min(size, FIRST_BUCKET), max(0, size - FIRST_BUCKET)]
    return [Sent("allreduce", bucket) for bucket in buckets if bucket]


def descent(model: nn.Module, batch: Batch) -> Callable[[], float]:
    """Return a step of gradient descent on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    inputs, targets = batch

    def step() -> float:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def copies(place: Place, model: nn.Module) -> nn.Module:
    """Return a model whose gradients are the mean of all ranks'."""
    return model if place.alone else DistributedDataParallel(model)


@contextlib.contextmanager
def data_parallel(
    place: Place,
    model: Callable[[], nn.Module],
    batch: Callable[[torch.Generator], Batch],
) -> Iterator[Callable[[], float]]:
    """Train copies of a model, each on a batch of its rank's."""
    torch.manual_seed(0)
    mine = batch(torch.Generator().manual_seed(place.rank))
    with joined(place):
        yield descent(copies(place, model()), mine)
