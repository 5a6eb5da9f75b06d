"""Run a workload in several orders of its ranks, taking turns, in one MPI job.

MPI only starts the ranks and lets them wait for each other: a workload's own
library joins anew in every turn, its ranks numbered by the turn's order. Rank 0
reads one line of JSON from stdin::

    {"workload": NAME, "orders": {NAME: [rank of the world, ...]},
     "turns": N, "steps": N, "port": FIRST}

and writes a line for each turn: ``order turn seconds`` (of a step, the slowest
rank's mean), ``loss`` (rank 0's last) and ``sent`` (bytes that all cards sent in a
step). The order ``alone`` is a turn in which nobody talks to anybody.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
import time
from typing import Any

import psutil
from mpi4py import MPI

from benchmarks.workloads.place import Place


def sent_bytes() -> int:
    """Return what this host's card has sent; the loopback is no card."""
    cards = psutil.net_io_counters(pernic=True)
    return sum(card.bytes_sent for name, card in cards.items() if name != "lo")


def turn(workload: Any, world: Place, place: Place | None, steps: int) -> list[float]:
    """Return a rank's seconds and bytes of a step, and its last loss."""
    with workload.training(place) as step:
        step()  # makes connections, and what a library decides only once
        world.wait()
        sent, start = sent_bytes(), time.perf_counter()
        for _ in range(steps):
            loss = step()
        seconds = (time.perf_counter() - start) / steps
        world.wait()
        return [seconds, (sent_bytes() - sent) / steps, loss]


def run(world: Place, spec: dict[str, Any]) -> None:
    """Take turns."""
    workload = importlib.import_module(f"benchmarks.workloads.{spec['workload']}")
    names = [*spec["orders"], "alone"]
    comms = {
        name: world.comm.Split(0, members.index(world.rank))
        for name, members in spec["orders"].items()
    }
    port = spec["port"]
    for number in range(spec["turns"]):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            place, port = None, port + 2
            if name in comms:
                addresses = [world.addresses[rank] for rank in spec["orders"][name]]
                place = Place(comms[name], tuple(addresses), port)
            mine = turn(workload, world, place, spec["steps"])
            head = place.rank == 0 if place else world.rank == 0
            found = world.comm.gather([*mine, head])
            if world.rank == 0:
                seconds, sent, losses, heads = zip(*found, strict=True)
                row = {"order": name, "turn": number, "seconds": max(seconds)}
                loss = losses[heads.index(True)]
                print(json.dumps({**row, "loss": loss, "sent": sum(sent)}), flush=True)


def main() -> None:
    """Read what to do and do it."""
    comm = MPI.COMM_WORLD
    # One line: mpirun does not always pass the end of its input on.
    spec = comm.bcast(json.loads(sys.stdin.readline()) if comm.rank == 0 else None)
    own = socket.gethostbyname(socket.gethostname())
    run(Place(comm, tuple(comm.allgather(own)), spec["port"]), spec)


if __name__ == "__main__":
    main()
