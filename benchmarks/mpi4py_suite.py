"""mpi4py's own tests without the shim and under it, in a random order of hosts.

Takes the folder `test` of mpi4py's source distribution, which pip downloads if no
folder is given. Prints a line per MPI and number of ranks: how many outcomes there
were on all ranks (ok, FAIL, ERROR, skipped), and each test whose outcome under the
shim is another one.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mpi4py

from benchmarks.record import Figure, json_option, write_figures
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
APART = r"test_(dynproc|file|io|rma|rma_nb|spawn|util_pool|util_sync|win)\b"
"""Modules of files, windows, spawning and pools, which are left out by default."""
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


def downloaded(folder: Path) -> Path:
    """Return the tests of the mpi4py that is installed, from PyPI."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    source = ["--no-binary", "mpi4py", "--no-build-isolation", "-d", str(folder)]
    subprocess.run([*pip, *source, f"mpi4py=={mpi4py.__version__}"], check=True)
    (archive,) = folder.glob("mpi4py-*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz") / "test"


def compare(mpi: Mpi, ranks: int, argv: list[str]) -> Iterator[Figure]:
    """Print what ended how, and what differs; yield how much."""
    plain = outcomes(mpi, ranks, "", argv)
    under = outcomes(mpi, ranks, str(LIBRARY), argv)
    for words, seen in (("without", plain), ("under the shim", under)):
        count = ", ".join(f"{n} {what}" for what, n in Counter(seen.values()).items())
        print(f"{mpi.prefix.name}, {ranks} ranks, {words}: {count}", flush=True)
    differ = 0
    for test in sorted(plain.keys() | under.keys()):
        if plain.get(test) != under.get(test):
            differ += 1
            print(f"  {test}: {plain.get(test)}, under the shim {under.get(test)}")
    what = f"mpi4py's tests on {mpi.prefix.name}, {ranks} ranks"
    yield Figure(f"{what}: end otherwise", differ, unit=f"of {len(plain)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", type=Path, help="the folder with main.py")
    json_option(parser)
    parser.add_argument("--mpi", action="append", help="part of its prefix's name")
    parser.add_argument("--ranks", type=int, nargs="+", default=range(1, 9))
    parser.add_argument("--include", default="", help="test modules, a regex")
    parser.add_argument("--exclude", default=APART, help="test modules, a regex")
    parser.add_argument("--deadline", type=float, default=600, help="of a run, s")
    parser.add_argument(
        "--under",
        default="",
        help="what starts each rank; 'chrt -f 1' for more ranks that poll than cores",
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen.suite = chosen.suite or downloaded(Path(folder))
        run(chosen)


def run(chosen: argparse.Namespace) -> None:
    """Go through the MPIs and numbers of ranks."""
    argv = [*chosen.under.split(), sys.executable, str(chosen.suite / "main.py"), "-v"]
    argv += ["-i", chosen.include, "-e", chosen.exclude]
    for found in MPIS:
        mpi = replace(found, deadline_s=chosen.deadline)
        if chosen.mpi and not any(part in mpi.prefix.name for part in chosen.mpi):
            continue
        for ranks in chosen.ranks:
            write_figures(compare(mpi, ranks, argv), chosen.json)


if __name__ == "__main__":
    main()
