"""The shim for NCCL on real GPUs, with torch: skipped where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from needs import CUDA, GPU, TORCH
from ports import own_port

from cloudcoll.launch import choose_inbox, shim
from cloudcoll.launch.roll import calling_roll, variable

DEADLINE_S = 240


def usable() -> bool:
    """Whether torch can use the GPU that is here."""
    if not (GPU.here and TORCH.here):
        return False
    import torch

    return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())


pytestmark = [GPU.mark, CUDA.unless(usable())]

JOB = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size - 1) / 2
for count in (1, 1000, 1 << 20):
    data = torch.full((count,), float(rank), device="cuda")
    dist.all_reduce(data)
    assert (data == total).all()
sent = torch.full((7,), float(rank), device="cuda")
dist.broadcast(sent, size - 1)
assert (sent == size - 1).all()
parts = [torch.empty(3, device="cuda") for _ in range(size)]
dist.all_gather(parts, torch.full((3,), float(rank), device="cuda"))
assert [int(part[0]) for part in parts] == list(range(size))
graph, data = torch.cuda.CUDAGraph(), torch.ones(5, device="cuda")
with torch.cuda.graph(graph):
    dist.all_reduce(data)
data.fill_(1)
graph.replay()
torch.cuda.synchronize()
assert (data == size).all()
group = dist.new_group(list(range(size)))
dist.all_reduce(data, group=group)
assert (data == size * size).all()
dist.destroy_process_group()
print("right")
"""


def run(size: int, order: str) -> list[str]:
    """Run ranks that pose as hosts on the first GPU; return what each wrote."""
    port = str(own_port())
    inbox, said = choose_inbox(key=shim.ROLL_KEY), list[str]()
    with calling_roll(inbox, said.append) as outcome:
        roll = {shim.ROLL: variable(inbox), inbox.variable: inbox.secret}
        wrote = ended(size, order, port, roll)
    assert (outcome() or "", said) == ("", [])
    return wrote


def ended(size: int, order: str, port: str, roll: dict[str, str]) -> list[str]:
    """Start the ranks and wait for them."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", JOB],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "NCCL_HOSTID": f"host{rank}",
                "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                "NCCL_DEBUG": "INFO",
                "LD_PRELOAD": str(shim.NCCL),
                "CLOUDCOLL_SHIM_ORDER": order,
                **roll,
                "CLOUDCOLL_HOST": f"host{rank}",
                "CLOUDCOLL_DEBUG": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        wrote = [process.communicate(timeout=DEADLINE_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    for process, text in zip(started, wrote, strict=True):
        assert process.returncode == 0, text
        assert "right" in text
    return wrote


def test_a_world_of_one() -> None:
    """Tests torch on NCCL with the shim where there is nothing to reorder."""
    (wrote,) = run(1, "host0")
    assert "of the shadow" not in wrote


def test_hosts_on_one_gpu() -> None:
    """Tests that NCCL's own log has ranks of the shadow in the order of the map."""
    wrote = run(4, "host2,host0,host3,host1")
    places = [1, 3, 0, 2]
    for rank, text in enumerate(wrote):
        assert f"rank {rank} of 4 is rank {places[rank]} of the shadow" in text
        # NCCL_DEBUG=INFO names the rank that came of the split.
        assert re.search(rf"ncclCommSplit comm \S+ rank {places[rank]} nranks 4", text)
