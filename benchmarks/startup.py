"""Time ``cloudcoll --help``, ``exec``, ``doctor``, ``import cloudcoll``, in seconds.

Run with the Python that CloudColl is installed in. ``exec`` starts a program
with the place that a map of 1000 hosts gives this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import json_option, median_of, write_figures

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
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(job(folder))
    figures = [median_of(name, values, "s") for name, values in times.items()]
    bare, own = times["python -c pass"], times["cloudcoll exec -- true"]
    more = [b - a for a, b in zip(bare, own, strict=True)]
    figures.append(median_of("cloudcoll exec, more than Python", more, "s"))
    write_figures(figures, options.json)


def measure(env: dict[str, str]) -> dict[str, list[float]]:
    """Return the seconds of all cases."""
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
    return times


if __name__ == "__main__":
    main()
