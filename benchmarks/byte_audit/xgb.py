"""Call collectives of XGBoost and count what each call sends.

    RANK=R WORLD_SIZE=N MACHINES=HOST,... PORT=P python xgb.py CASES

The host of rank 0 runs the tracker.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import xgboost
from counting import Call, Job
from xgboost import collective
from xgboost.tracker import RabitTracker

PORT = int(os.environ["PORT"])
DEADLINE = 30
"""Seconds to wait for the others."""


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks: each tells the others in turn."""
    ranks = range(collective.get_world_size())
    return [collective.broadcast(value, rank) for rank in ranks]


def barrier() -> None:
    """Return when all ranks have called it."""
    collective.allreduce(np.zeros(1), collective.Op.MAX)


def prepare(case: dict[str, Any]) -> nullcontext[Call]:
    """Give the call of a case."""
    whole = np.ones(case["size"] // 8)
    calls: dict[str, Call] = {
        "allreduce": lambda: collective.allreduce(whole, collective.Op.SUM),
        # Broadcast takes any value; a string of bytes has the least around it.
        "bcast": lambda: collective.broadcast(whole.tobytes(), 0),
    }
    return nullcontext(calls[case["call"]])


def wait_for_tracker(address: str) -> None:
    """Return when something listens on the tracker's port."""
    until = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection((address, PORT), timeout=DEADLINE).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def main() -> None:
    """Join the group and run the cases of the command line."""
    rank, ranks = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    address = socket.gethostbyname(os.environ["MACHINES"].partition(",")[0])
    tracker = None
    if rank == "0":
        tracker = RabitTracker(ranks, address, PORT, sortby="task", timeout=DEADLINE)
        tracker.start()
    with collective.CommunicatorContext(
        dmlc_tracker_uri=address,
        dmlc_tracker_port=PORT,
        dmlc_task_id=f"{int(rank):04}",
        dmlc_timeout=DEADLINE,
    ):
        job = Job(collective.get_rank(), gather, barrier, prepare)
        job.run(f"XGBoost {xgboost.__version__}")
    if tracker:
        tracker.wait_for(DEADLINE)


if __name__ == "__main__":
    main()
