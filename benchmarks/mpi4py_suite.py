"""mpi4py's own tests without the shim and under it, in a random order of hosts.

Takes the folder `test` of mpi4py's source distribution. Prints a line per MPI and
number of ranks: how many outcomes there were on all ranks (ok, FAIL, ERROR,
skipped), and each test whose outcome under the shim is another one.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cloudcoll.launch.shim import LIBRARY, ORDER

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from mpis import MPIS, Mpi

# A test may print before its outcome comes.
OUTCOME = re.compile(
    r"^(test\w+ \([\w.]+\))(?:\n.*?)?? \.\.\. .*?(ok|FAIL|ERROR|skipped)",
    re.MULTILINE | re.DOTALL,
)
# Ranks pose as hosts; each writes a log of its own.
POSE = (
    "R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; "
    'export CLOUDCOLL_HOST="h$R" LD_PRELOAD="$1"; L="$2/$R"; shift 2; exec "$@" 2>"$L"'
)
Outcomes = dict[tuple[str, str], str]


def outcomes(mpi: Mpi, ranks: int, preload: str, argv: list[str]) -> Outcomes:
    """Return how each test ended on each rank."""
    names = [f"h{rank}" for rank in range(ranks)]
    random.Random(ranks).shuffle(names)
    seen: Outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        pose = ["sh", "-c", POSE, "sh", preload, folder]
        try:
            mpi.mpirun(ranks, *pose, *argv, **{ORDER: ",".join(names)})
        except subprocess.TimeoutExpired:
            seen[("the whole run", "")] = "hangs"
        for log in Path(folder).iterdir():
            for name, outcome in OUTCOME.findall(log.read_text(errors="replace")):
                seen[(name, log.name)] = outcome
    return seen


def compare(mpi: Mpi, ranks: int, argv: list[str]) -> Iterator[str]:
    """Yield what ended how, and what differs."""
    plain = outcomes(mpi, ranks, "", argv)
    under = outcomes(mpi, ranks, str(LIBRARY), argv)
    for words, seen in (("without", plain), ("under the shim", under)):
        count = ", ".join(f"{n} {what}" for what, n in Counter(seen.values()).items())
        yield f"{mpi.prefix.name}, {ranks} ranks, {words}: {count}"
    for test in sorted(plain.keys() | under.keys()):
        if plain.get(test) != under.get(test):
            yield f"  {test}: {plain.get(test)}, under the shim {under.get(test)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="the folder with main.py")
    parser.add_argument("--mpi", action="append", help="part of its prefix's name")
    parser.add_argument("--ranks", type=int, nargs="+", default=range(1, 9))
    parser.add_argument("--include", default="", help="test modules, a regex")
    parser.add_argument("--exclude", default="^$", help="test modules, a regex")
    parser.add_argument("--deadline", type=float, default=600, help="of a run, s")
    parser.add_argument(
        "--under",
        default="",
        help="what starts each rank; 'chrt -f 1' for more ranks that poll than cores",
    )
    chosen = parser.parse_args()
    argv = [*chosen.under.split(), sys.executable, str(chosen.suite / "main.py"), "-v"]
    argv += ["-i", chosen.include, "-e", chosen.exclude]
    for found in MPIS:
        mpi = replace(found, deadline_s=chosen.deadline)
        if chosen.mpi and not any(part in mpi.prefix.name for part in chosen.mpi):
            continue
        for ranks in chosen.ranks:
            print(*compare(mpi, ranks, argv), sep="\n", flush=True)


if __name__ == "__main__":
    main()
