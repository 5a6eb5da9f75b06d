"""Bytes and seconds of a report, by the number of hosts.

The network is planted, and measured times are what the model predicts: only the
report is real. Opened: seconds from the start of headless Chromium, where there is
one, until a page of 18000 pixels is drawn, and those of an empty page; medians.

    python benchmarks/report_size.py [--hosts 16,1024] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from cloudcoll.bench.job import named_orders
from cloudcoll.bench.result import BenchRun
from cloudcoll.collectives import build_schedule
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.cost import CostModel
from cloudcoll.report.document import to_html
from cloudcoll.report.story import tell
from cloudcoll.solve import solve

ORDERS = "given,sorted,grouped,random:5,cloudcoll"
SIZES = (1 << 20, 4 << 20, 16 << 20)
REPEATS = 5
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def planted(hosts: int) -> tuple[BenchRun, NetworkSnapshot]:
    """Return a bench of a ring on racks of up to 32 hosts, and its snapshot."""
    rack = min(32, hosts // 4)
    fabric = synth.racks([rack] * (hosts // rack), seed=1)
    snapshot = synth.observe(fabric, samples=1, rounds=4).with_fabric(fabric)
    given = snapshot.names
    schedules = {
        size: build_schedule("allreduce", "ring", hosts, size) for size in SIZES
    }
    best = solve(snapshot, schedules[max(SIZES)], given=given)
    orders = named_orders(ORDERS, given, fabric, best, seed=0)
    predicted = {}
    for size, schedule in schedules.items():
        model = CostModel(schedule, fabric, [1] * hosts)
        predicted[str(size)] = {
            order.name: model.seconds(
                np.array([fabric.position(h) for h in order.hosts])
            )
            for order in orders
        }
    rows = [
        {
            "op": "allreduce", "bytes": size, "order": order.name, "repeat": repeat,
            "time_us": predicted[str(size)][order.name] * 1e6, "calls": 1, "wrong": 0,
        }
        for size in SIZES for order in orders for repeat in range(REPEATS)
    ]  # fmt: skip
    metadata = {
        "collective": "allreduce", "algorithm": "ring", "library": "the model",
        "ranks": hosts, "hosts": list(given), "snapshot": snapshot.digest,
    }  # fmt: skip
    run = BenchRun(
        metadata,
        {order.name: order.hosts for order in orders},
        {alias: order.name for order in orders for alias in order.same_as},
        tuple(rows),
        predicted,
    )
    return run, snapshot


def opened(page: str) -> float:
    """Return seconds until a browser has drawn a page; NaN without a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return math.nan
    words = ("--headless", "--no-sandbox", "--window-size=1100,18000")
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "page.png"
        for _ in range(REPEATS):
            start = time.perf_counter()
            subprocess.run(
                [browser, *words, f"--screenshot={picture}", page],
                check=True, timeout=60, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            seconds.append(time.perf_counter() - start)
            picture.unlink()
    return float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,1024")
    parser.add_argument("--keep", type=Path, help="leave the reports here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"an empty page is opened in {opened('about:blank'):.2f} s")
        print(f"{'hosts':>6} {'kB':>7} {'seconds':>8} {'opened s':>9}")
        for hosts in map(int, options.hosts.split(",")):
            run, snapshot = planted(hosts)
            start = time.perf_counter()
            page = to_html(tell([run], snapshot))
            took = time.perf_counter() - start
            path = (folder / f"report-{hosts}.html").absolute()
            path.write_text(page)
            size = len(page.encode()) / 1e3
            print(f"{hosts:>6} {size:>7.0f} {took:>8.2f} {opened(path.as_uri()):>9.2f}")


if __name__ == "__main__":
    main()
