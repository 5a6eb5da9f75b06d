"""One rank of a job on a host of the lab: times, bytes, training steps, checks.

    RANK=R WORLD_SIZE=N LOCAL_RANK=0 python ranks.py ADDRESS:PORT BACKEND JOB

Groups and timing are those of ``cloudcoll bench --via torch``, messages between two
ranks those of ``cloudcoll probe --via torch``; JOB is JSON::

    {"orders": {NAME: [world rank at each place, ...]},
     "timed": {OP: {"sizes": [BYTES, ...], "seconds": BOX}}, "pairs": true,
     "counted": BYTES, "checks": true, "steps": NUMBER, "stepped": [NAME, ...]}

Rank 0 prints a line of JSON for each result: the rows of ``probes/timing.py``, and
those with a key ``pairs``, ``bytes``, ``step`` or ``check``.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

from cloudcoll._probes import timing, torch_bench, torch_probe
from counting import Job
from steps import CHECKS, Training, joined

import torch  # isort: skip  (torch_probe sets how much it says)
import torch.distributed as dist

TRIPS = 20
COUNTED = 2
"""Calls whose bytes are counted."""
BLOCKING_SYNC = 4
"""``cudaDeviceScheduleBlockingSync`` of CUDA's ``driver_types.h``."""
KEPT: list[Any] = []
"""Groups, up to the end: those of NCCL may wait for each other as they end."""


def wait_asleep() -> bool:
    """Have this process sleep while it waits for the GPU; return whether it will.

    All ranks share this machine's cores, where each would keep one busy.
    """
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    return not runtime.cudaSetDeviceFlags(BLOCKING_SYNC)


def say(**row: Any) -> None:
    """Print a result, on rank 0."""
    if os.environ["RANK"] == "0":
        print(json.dumps(row), flush=True)


def times(store: Any, link: torch_probe.GlooLink, job: dict[str, Any]) -> None:
    """Time each operation in all orders, by bench's own program."""
    keys = {
        # bench gives every rank's key, not the rank at each place.
        name: [members.index(rank) for rank in range(link.size)]
        for name, members in job["orders"].items()
    }
    for op, box in job["timed"].items():
        spec = {"op": op, "orders": keys, **box, "repeats": 30, "least": 3}
        spec |= {"min_seconds": 0.0, "narrow": 0.01, "reference": next(iter(keys))}
        # Groups of the same orders find each other anew.
        world = torch_bench.TorchWorld(dist.PrefixStore(op, store), link)
        KEPT.append(timing.TimedJob(world, spec))
        KEPT[-1].run()


def pairs(link: torch_probe.GlooLink) -> None:
    """Time a short message from rank 0 to each other one and back."""
    buffer, found = link.buffer(1), dict[int, float]()
    for peer in range(1, link.size):
        trips = []
        for _ in range(TRIPS):
            link.barrier()
            start = time.perf_counter()
            if link.rank == 0:
                link.exchange(buffer, buffer, peer)
            elif link.rank == peer:
                link.echo(buffer, 0)
            trips.append(time.perf_counter() - start)
        found[peer] = statistics.median(trips)
    say(pairs=found)


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def bytes_of_calls(world: torch_bench.TorchWorld, job: dict[str, Any]) -> None:
    """Count what an allreduce in each order sends between hosts."""
    size = job["counted"]
    buffers = timing.make_buffers("allreduce", world.rank, world.size, size)
    for name, members in job["orders"].items():
        group = world.group("counted-" + name, members)
        KEPT.append(group)
        group.prepare("allreduce", *buffers)
        counter = Job(world.rank, gather, dist.barrier, lambda case: nullcontext())
        counts = counter.count(partial(group.call, "allreduce", *buffers), COUNTED)
        say(bytes=size, op="allreduce", order=name, **counts)


def steps(store: Any, backend: str, job: dict[str, Any]) -> None:
    """Time steps of DDP and FSDP in each order."""
    rank = int(os.environ["RANK"])
    for name in job["stepped"]:
        members = job["orders"][name]
        with joined(store, backend, "steps-" + name, members, rank):
            for kind in ("ddp", "fsdp"):
                found = Training(kind, backend).run(job["steps"])
                say(step=kind, order=name, **found)


def checks(store: Any, backend: str) -> None:
    """Compare what each collective gives with what it promises."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with joined(store, backend, "checks", list(range(size)), rank) as device:
        for check in CHECKS:
            good = check(device)
            if good is not None:
                wrong = torch.tensor([float(not good)], device=device)
                dist.all_reduce(wrong)
                say(check=check.__name__, good=not int(wrong))


def main() -> None:
    """Join the other ranks and do the job."""
    meeting, backend, text = sys.argv[1:]
    job = json.loads(text)
    torch.set_num_threads(1)
    asleep = backend == "nccl" and wait_asleep()
    place = torch_probe.find_place(os.environ)
    store = torch_probe.open_store(place, meeting)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=place.rank,
        world_size=place.size,
        timeout=torch_bench.LIFE,
    )
    link = torch_probe.choose_link(backend, place)
    world = torch_bench.TorchWorld(store, link)
    say(library=world.library, asleep=asleep)
    if job["pairs"]:
        pairs(link)
    if job["counted"]:
        bytes_of_calls(world, job)
    times(store, link, job)
    dist.barrier()
    dist.destroy_process_group()
    if job["checks"]:
        checks(store, backend)
    if job["steps"]:
        steps(store, backend, job)
    say(done=True)
    # The one that keeps the store must not be the first to leave.
    store.set(f"left-{place.rank}", "")
    if place.rank == 0:
        store.wait([f"left-{rank}" for rank in range(place.size)])
    sys.stdout.flush()
    os._exit(0)  # torch may abort at the end, for a thread of its own


if __name__ == "__main__":
    main()
