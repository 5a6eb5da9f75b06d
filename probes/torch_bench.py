"""Time Gloo's or NCCL's collectives as torch calls them, in several rank orders.

Every order is a process group with ranks of its own: `torch.distributed.new_group`
would sort them. Started as ``python .../start.py torch_bench ADDRESS:PORT
gloo|nccl`` once for each rank by mpirun or srun. `timing` says what is read and
written.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any, List

from . import timing, torch_probe

import torch  # isort: skip  (torch_probe sets how much it says)
import torch.distributed as dist

LIFE = datetime.timedelta(minutes=10)  # that one call, or the start, may take


class GlooGroup(timing.RankGroup):
    """A process group of Gloo; tensors lie over NumPy's arrays."""

    def __init__(self, group: Any, members: List[int], place: int) -> None:
        super().__init__(members, place)
        self._group = group

    def prepare(self, op: str, send: Any, recv: Any) -> None:
        """Copy what Gloo will reduce or broadcast in place."""
        if op in ("allreduce", "reduce") or (op == "bcast" and self.place == 0):
            recv[:] = send

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._group.barrier().wait()

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Run the collective once."""
        self._start(op, torch.from_numpy(send), torch.from_numpy(recv)).wait()

    def _start(self, op: str, source: Any, target: Any) -> Any:
        calls = {
            "allgather": self._allgather,
            "allreduce": lambda source, target: self._group.allreduce([target]),
            "alltoall": self._alltoall,
            "bcast": lambda source, target: self._group.broadcast(target, 0),
            "reduce": lambda source, target: self._group.reduce(target, 0),
            "reduce_scatter": self._reduce_scatter,
        }
        return calls[op](source, target)

    def _allgather(self, source: Any, target: Any) -> Any:
        parts = list(target.chunk(len(self.members)))
        return self._group.allgather([parts], [source])

    def _alltoall(self, source: Any, target: Any) -> Any:
        return self._group.alltoall_base(target, source, [], [])

    def _reduce_scatter(self, source: Any, target: Any) -> Any:
        return self._group._reduce_scatter_base(target, source)


class NcclGroup(GlooGroup):
    """A process group of NCCL; while they are timed, vectors lie on the GPU."""

    def prepare(self, op: str, send: Any, recv: Any) -> None:
        """Copy what NCCL will send, and reduce or broadcast in place."""
        super().prepare(op, send, recv)
        self._vectors = [torch.from_numpy(part).cuda() for part in (send, recv)]

    def barrier(self) -> None:
        """Wait for all ranks and their copies."""
        torch.cuda.synchronize()
        dist.barrier()

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Run the collective once, until the GPU is done."""
        self._start(op, *self._vectors).wait()
        torch.cuda.synchronize()

    def finish(self, recv: Any) -> None:
        """Copy the result from the GPU."""
        torch.from_numpy(recv).copy_(self._vectors[1])

    def _allgather(self, source: Any, target: Any) -> Any:
        return self._group._allgather_base(target, source)


class TorchWorld(timing.World):
    """All ranks, which talk through Gloo when nothing is timed, as `link` is."""

    def __init__(self, store: Any, link: torch_probe.GlooLink) -> None:
        self._store = store
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.library = link.library
        self._link = link

    def share(self, value: Any) -> Any:
        """Return rank 0's JSON value on every rank."""
        return json.loads(self._link.share(json.dumps(value).encode()))

    def gather(self, text: str) -> List[str]:
        """Return all ranks' texts, everywhere."""
        line = text.encode() + b"\n"
        return self._link.share(self._link.gather(line)).decode().splitlines()

    def largest(self, value: float) -> float:
        """Return the largest of all ranks' values."""
        found = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def total(self, value: int) -> int:
        """Return the sum of all ranks' values."""
        found = torch.tensor([value])
        dist.all_reduce(found)
        return int(found)

    def group(self, name: str, members: List[int]) -> timing.RankGroup:
        """Return a process group with the ranks in another order."""
        place = members.index(self.rank)
        store = dist.PrefixStore("cloudcoll/" + name, self._store)
        if isinstance(self._link, torch_probe.NcclLink):
            nccl = dist.ProcessGroupNCCL(store, place, self.size, LIFE)
            return NcclGroup(nccl, members, place)
        group = dist.ProcessGroupGloo(store, place, self.size, LIFE)
        return GlooGroup(group, members, place)


def main() -> None:
    """Join the other ranks and serve."""
    torch.set_num_threads(1)
    place = torch_probe.find_place(os.environ)
    store = torch_probe.open_store(place, sys.argv[1])
    dist.init_process_group(
        "gloo", store=store, rank=place.rank, world_size=place.size, timeout=LIFE
    )
    timing.serve(TorchWorld(store, torch_probe.choose_link(sys.argv[2], place)))
    # The one that keeps the store must not be the first to leave.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
