"""Run a workload in several orders of its ranks, taking turns, in one MPI job.

MPI only starts the ranks and lets them wait for each other: a workload's own
library joins anew in every turn, its ranks numbered by the turn's order. Rank 0
reads one line of JSON from stdin::

    {"workload": NAME, "orders": {NAME: [rank of the world, ...]},
     "turns": N, "steps": N, "port": FIRST, "snapshots": {NAME: FILE}}

and writes a line for each turn: ``order turn seconds`` (of a step, the slowest
rank's mean), ``loss`` (all ranks' mean) and ``sent`` (bytes that all cards sent in
a step). The order ``alone`` is a turn in which nobody talks to anybody. In those of
``snapshots`` ranks stay, and the workload's mesh follows the snapshot.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import socket
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
from mpi4py import MPI

from benchmarks.workloads.place import Place

TURN_LIFE_S = 60
"""Longest time that a turn may take."""


def sent_bytes() -> int:
    """Return what this host's card has sent; the loopback is no card."""
    cards = psutil.net_io_counters(pernic=True)
    return sum(card.bytes_sent for name, card in cards.items() if name != "lo")


def turn(workload: Any, place: Place, steps: int) -> tuple[float, float, float]:
    """Return a rank's seconds and bytes of a step, and its last loss."""
    with workload.training(place) as step:
        step()  # makes connections, and what a library decides only once
        place.wait()
        sent, start = sent_bytes(), time.perf_counter()
        for _ in range(steps):
            loss = step()
        seconds = (time.perf_counter() - start) / steps
        place.wait()
        return seconds, (sent_bytes() - sent) / steps, loss


def run(world: Place, spec: dict[str, Any]) -> None:
    """Take turns."""
    workload = importlib.import_module(f"benchmarks.workloads.{spec['workload']}")
    ports = itertools.count(spec["port"])
    places = {"alone": replace(world, alone=True)}
    for name, members in spec["orders"].items():
        comm = world.comm.Split(0, members.index(world.rank))
        places[name] = Place(comm, tuple(world.addresses[r] for r in members), 0)
    for name, path in spec["snapshots"].items():
        places[name] = replace(world, snapshot=path)
    names = list(places)
    for number in range(spec["turns"]):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            place = replace(places[name], port=next(ports))
            # The deadline of all waiting in it: says where a rank is, and ends it.
            faulthandler.dump_traceback_later(TURN_LIFE_S, exit=True)
            found = world.comm.gather(turn(workload, place, spec["steps"]))
            if world.rank == 0:
                seconds, sent, losses = np.transpose(found)
                row = {"order": name, "turn": number, "seconds": seconds.max()}
                row |= {"loss": losses.mean(), "sent": sent.sum()}
                print(json.dumps(row), flush=True)


def main() -> None:
    """Read what to do and do it."""
    comm = MPI.COMM_WORLD
    # One line: mpirun does not always pass the end of its input on.
    spec = comm.bcast(json.loads(sys.stdin.readline()) if comm.rank == 0 else None)
    own = socket.gethostbyname(socket.gethostname())
    run(Place(comm, tuple(comm.allgather(own)), spec["port"]), spec)


if __name__ == "__main__":
    main()
