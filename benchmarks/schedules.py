"""Time how long the largest schedules take to build, in milliseconds."""

from __future__ import annotations

import statistics
import time

from cloudcoll.collectives import SCHEDULES, build_schedule

RANKS = 4096
SIZE = 64 << 20
RUNS = 5
QUADRATIC = {"direct", "linear", "linear_sync", "pairwise", "mpich_pairwise"}
QUADRATIC |= {"gloo_linear", "nccl_p2p"}
"""Alltoalls and the like have N (N - 1) messages: not timed."""


def main() -> None:
    print(f"{RANKS} ranks {'algorithm':>43} {'steps':>6} {'ms':>8}")
    for collective, families in SCHEDULES.items():
        for algorithm, family in families.items():
            if family.only or algorithm in QUADRATIC:
                continue
            times = []
            for _ in range(RUNS):
                start = time.perf_counter()
                schedule = build_schedule(collective, algorithm, RANKS, SIZE)
                times.append(1e3 * (time.perf_counter() - start))
            name = f"{collective} {algorithm}"
            steps = len(schedule.steps)
            print(f"{name:>54} {steps:6} {statistics.median(times):8.1f}")


if __name__ == "__main__":
    main()
