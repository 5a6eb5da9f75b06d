"""Training steps, and what collectives promise, in a default group in any order."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 512, 4, 8
"""About 4 MiB of gradients."""

DEVICES = {"gloo": "cpu", "nccl": "cuda"}


@contextlib.contextmanager
def joined(
    store: Any, backend: str, name: str, members: list[int], rank: int
) -> Iterator[torch.device]:
    """Make the default group of a backend, ranks in an order; yields their device."""
    device = torch.device(DEVICES[backend], *([0] if backend == "nccl" else []))
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(name, store),
        rank=members.index(rank),
        world_size=len(members),
    )
    try:
        yield device
        done = torch.zeros(1, device=device)
        dist.all_reduce(done)
    finally:
        dist.destroy_process_group()


class Training:
    """A model whose gradients (``ddp``) or all parts (``fsdp``) go between ranks.

    The data are those of a rank's place: all orders learn the same.
    """

    def __init__(self, kind: str, backend: str) -> None:
        device = DEVICES[backend]
        torch.manual_seed(0)
        layers = (
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)
        )
        model = nn.Sequential(*layers).to(device)
        own = torch.Generator().manual_seed(dist.get_rank())
        self.inputs = torch.randn(BATCH, WIDTH, generator=own).to(device)
        if kind == "ddp":
            self.model: nn.Module = DistributedDataParallel(model)
        else:
            mesh = init_device_mesh(device, (dist.get_world_size(),))
            for part in (*model, model):
                fully_shard(part, mesh=mesh)
            self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.device = device

    def step(self) -> torch.Tensor:
        """Descend once; return the loss."""
        self.optimizer.zero_grad()
        loss = self.model(self.inputs).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, number: int) -> dict[str, float]:
        """Return the seconds of a step, the slowest rank's, and all ranks' loss."""
        # Makes connections, and then DDP its buckets anew.
        for _ in range(2):
            self.step()
        start = time.perf_counter()
        for _ in range(number):
            loss = self.step()
        value = float(loss)  # waits for the GPU
        seconds = (time.perf_counter() - start) / number
        slowest = torch.tensor([seconds], device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        mean = torch.tensor([value], device=self.device)
        dist.all_reduce(mean)
        size = dist.get_world_size()
        return {"seconds": float(slowest), "loss": float(mean) / size}


Check = Callable[[torch.device], "bool | None"]
CHECKS: list[Check] = []
"""Each returns whether all is right, None where the backend has no such thing."""


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def place() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def numbers(rank: int, count: int, device: torch.device, dtype: Any) -> torch.Tensor:
    return (torch.arange(count) % 5 + rank + 1).to(dtype).to(device)


@check
def every_type_and_operation(device: torch.device) -> bool:
    (rank, size), good = place(), True
    folds = {
        dist.ReduceOp.SUM: lambda parts: parts.sum(0),
        dist.ReduceOp.PRODUCT: lambda parts: parts.prod(0),
        dist.ReduceOp.MAX: lambda parts: parts.amax(0),
        dist.ReduceOp.MIN: lambda parts: parts.amin(0),
    }
    types = (torch.int32, torch.int64, torch.float32, torch.float64)
    for (op, fold), dtype, count in itertools.product(
        folds.items(), types, (1, 1000, 3001)
    ):
        given = [numbers(at, count, device, dtype) for at in range(size)]
        found = given[rank].clone()
        dist.all_reduce(found, op)
        wanted = fold(torch.stack(given)).to(dtype)  # sums on the CPU are wider
        # Products of many ranks are not exact in single precision.
        good &= torch.allclose(found.double(), wanted.double(), rtol=1e-5)
    return good


@check
def nothing_to_reduce(device: torch.device) -> bool:
    empty = torch.empty(0, device=device)
    dist.all_reduce(empty)
    return empty.numel() == 0


@check
def operations_of_nccl(device: torch.device) -> bool | None:
    if device.type != "cuda":
        return None
    rank, size = place()
    mean = numbers(rank, 9, device, torch.float64)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    wanted = sum(numbers(at, 9, device, torch.float64) for at in range(size))
    twice = numbers(rank, 9, device, torch.float64)
    dist.all_reduce(twice, dist._make_nccl_premul_sum(2.0))
    return torch.allclose(mean, wanted / size) and torch.allclose(twice, 2 * wanted)


def roots(device: torch.device, group: Any, members: list[int]) -> bool:
    """Whether whatever has a root is right with each of them."""
    rank, good = dist.get_rank(), True
    for root in members:
        sent = numbers(rank, 6000, device, torch.float64)
        dist.broadcast(sent, root, group=group)
        good &= bool((sent == numbers(root, 6000, device, torch.float64)).all())
        total = numbers(rank, 6000, device, torch.float64)
        dist.reduce(total, root, group=group)
        wanted = sum(numbers(at, 6000, device, torch.float64) for at in members)
        good &= rank != root or bool((total == wanted).all())
    return good


@check
def roots_of_the_world(device: torch.device) -> bool:
    return roots(device, None, list(range(place()[1])))


@check
def roots_of_a_part(device: torch.device) -> bool:
    (rank, size), good = place(), True
    for first in range(2):
        members = list(range(first, size, 2))
        group = dist.new_group(members)
        if rank in members:
            good &= roots(device, group, members)
    return good


@check
def blocks_stay_with_their_ranks(device: torch.device) -> bool:
    rank, size = place()
    mine = numbers(rank, 10, device, torch.float64)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    all_of = [numbers(at, 10, device, torch.float64) for at in range(size)]
    good = all(torch.equal(a, b) for a, b in zip(parts, all_of, strict=True))
    piece = torch.empty_like(mine)
    whole = torch.cat([mine + at for at in range(size)])
    dist.reduce_scatter_tensor(piece, whole)
    good &= torch.equal(piece, sum(all_of) + size * rank)
    traded = torch.empty_like(whole)
    dist.all_to_all_single(traded, whole)
    return good and torch.equal(traded, torch.cat([part + rank for part in all_of]))


@check
def messages_to_a_neighbour(device: torch.device) -> bool:
    rank, size = place()
    mine = numbers(rank, 10, device, torch.float64)
    heard = torch.empty_like(mine)
    after, before = (rank + 1) % size, (rank - 1) % size
    way = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, heard, before)]
    for work in dist.batch_isend_irecv(way):
        work.wait()
    return torch.equal(heard, numbers(before, 10, device, torch.float64))


@check
def several_at_once(device: torch.device) -> bool:
    rank, size = place()
    given = [numbers(rank, 8, device, torch.float64) * n for n in (1, 2, 3)]
    works = [dist.all_reduce(part, async_op=True) for part in given]
    for work in works:
        work.wait()
    total = sum(numbers(at, 8, device, torch.float64) for at in range(size))
    return all(
        torch.equal(part, total * n) for part, n in zip(given, (1, 2, 3), strict=True)
    )


@check
def a_captured_graph(device: torch.device) -> bool | None:
    if device.type != "cuda":
        return None
    data, graph = torch.ones(100, device=device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
    data.fill_(1)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return bool((data == place()[1] ** 2).all())
