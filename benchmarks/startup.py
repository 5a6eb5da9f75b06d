"""Time ``cloudcoll --help``, ``exec``, ``doctor``, ``import cloudcoll``, in seconds.

Run with the Python that CloudColl is installed in. ``exec`` starts a program
with the place that a map of 1000 hosts gives this one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 15
CASES = {
    "python -c pass": ["-c", "pass"],
    "import cloudcoll": ["-c", "import cloudcoll"],
    "cloudcoll --help": ["-m", "cloudcoll.cli", "--help"],
    "cloudcoll run --help": ["-m", "cloudcoll.cli", "run", "--help"],
    "cloudcoll exec -- true": ["-m", "cloudcoll.cli", "exec", "--", "true"],
    "cloudcoll doctor": ["-m", "cloudcoll.cli", "doctor"],
}


def job(folder: str) -> dict[str, str]:
    """Return the environment of the last of 1000 hosts, with its map."""
    names = [f"vm-{n}" for n in range(1000)]
    path = Path(folder, "map.json")
    path.write_text(json.dumps({"schema": 1, "order": names, "slots": [1] * 1000}))
    place = {"CLOUDCOLL_MAP": str(path), "CLOUDCOLL_HOST": names[-1], "RANK": "0"}
    return {**os.environ, **place}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        measure(job(folder))


def measure(env: dict[str, str]) -> None:
    """Time all cases and print them."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(RUNS):
        # Interleaved, so that drift of the machine hits all cases alike.
        for name, arguments in CASES.items():
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            times[name].append(time.perf_counter() - start)
    print(f"{'seconds':>22} {'min':>7} {'median':>7} {'max':>7}")
    for name, values in times.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:>22} {low:7.3f} {middle:7.3f} {high:7.3f}")


if __name__ == "__main__":
    main()
