"""A recommendation model: tables split over the ranks, dense layers in copies.

Naumov et al., "Deep Learning Recommendation Model" (2019). Each rank looks up its
own table for everybody's batch; two exchanges bring the rows to those who need
them, and their gradients back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

from benchmarks.workloads import gloo
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
ROWS, WIDTH, BATCH, HIDDEN = 1000, 64, 256, 512


class Exchange(nn.Module):
    """The rows of all tables of a group, for the own batch."""

    def __init__(self, tables: int, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.tables = tables
        self.group = group

    def forward(self, asked: torch.Tensor) -> torch.Tensor:
        """Return rows, shape (own batch, tables x width)."""
        rows = self.table(asked)
        if self.group is not None:
            rows = all_to_all_single_autograd(rows, None, None, self.group)
        return rows.unflatten(0, (self.tables, -1)).transpose(0, 1).flatten(1)


def dense(tables: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(tables * WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
    )


def exchanged(tables: int) -> int:
    """Return the bytes that a rank gives to all of its group in one exchange."""
    return tables * BATCH * WIDTH * 4


def sent(ranks: int) -> list[Sent]:
    return [Sent("alltoall", exchanged(ranks), 2), *gloo.gradients(dense(ranks))]


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    with gloo.joined(place):
        yield clicks(place, place.size, None if place.alone else dist.group.WORLD)


def clicks(
    place: Place, tables: int, group: dist.ProcessGroup | None
) -> Callable[[], float]:
    """Return a step of training on clicks: a rank's table and its own batch."""
    torch.manual_seed(0)
    top = gloo.copies(place, dense(tables))
    torch.manual_seed(1 + place.rank)
    bottom = Exchange(tables, group)
    batch = torch.randint(ROWS, (tables * BATCH,)), torch.randint(2, (BATCH,))
    return gloo.descent(nn.Sequential(bottom, top), batch)
