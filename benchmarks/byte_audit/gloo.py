"""Call collectives of torch.distributed with Gloo and count what each call sends.

    RANK=R WORLD_SIZE=N MACHINES=HOST,... PORT=P python gloo.py CASES

torch lets nobody choose between Gloo's algorithms: cases have no settings.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from counting import Call, Job

DEADLINE = timedelta(seconds=30)


def collective(name: str, size: int) -> Call:
    """Return a function that calls a collective once; `size` is the full vector."""
    ranks = dist.get_world_size()
    whole = torch.ones(max(size // 4, ranks))
    parts = list(whole.chunk(ranks))
    part = torch.ones_like(parts[0])
    calls: dict[str, Call] = {
        "allgather": lambda: dist.all_gather(parts, part),
        "allreduce": lambda: dist.all_reduce(whole),
        "alltoall": lambda: dist.all_to_all_single(torch.empty_like(whole), whole),
        "bcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(part, parts),
    }
    return calls[name]


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def prepare(case: dict[str, Any]) -> nullcontext[Call]:
    """Give the call of a case."""
    return nullcontext(collective(case["call"], case["size"]))


def main() -> None:
    """Join the group and run the cases of the command line."""
    first = os.environ["MACHINES"].partition(",")[0]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo",
        f"tcp://{first}:{os.environ['PORT']}",
        timeout=DEADLINE,
        world_size=ranks,
        rank=rank,
    )
    Job(rank, gather, dist.barrier, prepare).run(f"Gloo of torch {torch.__version__}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
