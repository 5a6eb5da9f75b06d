"""Layers split over two ranks each, copied over the rest: groups of a DeviceMesh.

Every layer adds up its output in a tensor parallel group, and its input's gradient
on the way back (Shoeybi et al., "Megatron-LM", 2019); gradients are summed in a data
parallel group. The order that is CloudColl's moves no rank: the mesh is made by
`cloudcoll.torch`, of the ranks where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy

import cloudcoll.torch
from benchmarks.workloads import gloo
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
SPLIT, LAYERS = 2, 2
WORDS, WIDTH, CLASSES, BATCH = 4096, 64, 10, 4096
SUMMED = 4 * BATCH * WIDTH
"""Bytes of a layer's output, in which every word of the batch has a row."""


class Forth(torch.autograd.Function):
    """The input of a layer that is split: its gradient is the sum of the parts'."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, group: Any) -> torch.Tensor:
        """Return the input as it is."""
        ctx.group = group
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the sum of all parts' gradients."""
        return summed(gradient, ctx.group), None


class Back(torch.autograd.Function):
    """The output of a layer that is split: the sum of the parts'."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, group: Any) -> torch.Tensor:
        """Return the sum of all parts' outputs."""
        return summed(rows, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient as it is: each part has its own input."""
        return gradient, None


def summed(rows: torch.Tensor, group: Any) -> torch.Tensor:
    rows = rows.contiguous().clone()
    if group is not None:
        dist.all_reduce(rows, group=group)
    return rows


class Part(nn.Module):
    """One rank's part of a model; of part 0 of 1 the whole."""

    def __init__(self, part: int = 0, parts: int = SPLIT, group: Any = None) -> None:
        super().__init__()
        self.group = group
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ParameterList()
        for _ in range(LAYERS):
            for _ in range(2):
                whole = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
                self.layers.append(whole.chunk(parts)[part].clone())
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return scores of each class for each word, shape (words, classes)."""
        rows = self.embedding(words)
        for way_in, way_out in zip(self.layers[::2], self.layers[1::2], strict=True):
            inside = torch.relu(Forth.apply(rows, self.group) @ way_in.T)
            rows = rows + Back.apply(inside @ way_out, self.group)
        return self.head(rows)


def sent(ranks: int) -> list[Sent]:
    together = [list(range(first, first + SPLIT)) for first in range(0, ranks, SPLIT)]
    copies = [list(group) for group in zip(*together, strict=True)]
    return [
        Sent("allreduce", SUMMED, 2 * LAYERS, together),
        Sent("allreduce", gloo.gradient_bytes(Part()), 1, copies),
    ]


def workload() -> str:
    """Return the same as ``--workload`` has it: layers of its job are twice ours."""
    return (
        f"megatron:library=gloo,activation={SUMMED},layers=1,"
        f"microbatches={LAYERS // 2},bytes={SPLIT * gloo.gradient_bytes(Part())}"
    )


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    shape, names = (place.size // SPLIT, SPLIT), ("dp", "tp")
    with gloo.joined(place):
        copy, part, groups = place.rank // SPLIT, place.rank % SPLIT, (None, None)
        if not place.alone:
            mesh = (
                cloudcoll.torch.init_device_mesh(
                    *("cpu", shape),
                    mesh_dim_names=names,
                    source=place.snapshot,
                    workload=workload(),
                )
                if place.snapshot
                else init_device_mesh("cpu", shape, mesh_dim_names=names)
            )
            copy, part = mesh.get_coordinate()
            groups = tuple(mesh.get_all_groups())
        yield descent(copy, part, *groups)


def descent(copy: int, part: int, copies: Any, together: Any) -> Callable[[], float]:
    """Return a step of a rank at its place in the mesh, with its two groups."""
    torch.manual_seed(0)
    model = Part(part, group=together)
    generator = torch.Generator().manual_seed(copy)
    words = torch.randint(WORDS, (BATCH,), generator=generator)
    targets = torch.randint(CLASSES, (BATCH,), generator=generator)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, gloo.RATE)

    def step() -> float:
        optimizer.zero_grad()
        loss = cross_entropy(model(words), targets)
        loss.backward()
        if copies is not None:
            whole = torch.cat([p.grad.flatten() for p in parameters])
            dist.all_reduce(whole, group=copies)
            whole /= copies.size()
            parts = whole.split([p.numel() for p in parameters])
            for parameter, mean in zip(parameters, parts, strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        optimizer.step()
        return float(loss.detach())

    return step
