"""A recommendation model whose tables are exchanged inside towers of four ranks.

Luo et al., "Disaggregated Multi-Tower" (2024): a tower's ranks should be near each
other; only the dense layers' gradients go to everybody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch.distributed as dist

from benchmarks.workloads import dlrm, gloo
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
TOWER = 4


def towers(ranks: int) -> list[list[int]]:
    return [list(range(first, first + TOWER)) for first in range(0, ranks, TOWER)]


def sent(ranks: int) -> list[Sent]:
    exchange = Sent("alltoall", dlrm.exchanged(TOWER), 2, towers(ranks))
    return [exchange, *gloo.gradients(dlrm.dense(TOWER))]


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    with gloo.joined(place):
        own = None
        if not place.alone:
            own, _ = dist.new_subgroups_by_enumeration(towers(place.size))
        yield dlrm.clicks(place, TOWER, own)
