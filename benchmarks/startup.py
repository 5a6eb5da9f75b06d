"""Time ``cloudcoll --help`` and ``import cloudcoll``: start-up, in seconds.

Run with the Python that CloudColl is installed in.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
CASES = {
    "python -c pass": ["-c", "pass"],
    "import cloudcoll": ["-c", "import cloudcoll"],
    "cloudcoll --help": ["-m", "cloudcoll.cli", "--help"],
    "cloudcoll run --help": ["-m", "cloudcoll.cli", "run", "--help"],
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(RUNS):
        # Interleaved, so that drift of the machine hits all cases alike.
        for name, arguments in CASES.items():
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL
            )
            times[name].append(time.perf_counter() - start)
    print(f"{'seconds':>22} {'min':>7} {'median':>7} {'max':>7}")
    for name, values in times.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:>22} {low:7.3f} {middle:7.3f} {high:7.3f}")


if __name__ == "__main__":
    main()
