"""What the shims for NCCL and for ranks in the environment cost.

Prints nanoseconds that the first adds to a call, on one communicator and on eight
in turn, and microseconds that they, and that for MPI, add to the start of a program
which calls none of them. The library is the stand-in of the tests: there is no GPU
here. Both sides of each comparison take turns.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.launch.environment import MARK, write_environment
from cloudcoll.launch.shim import LIBRARY, NCCL, ORDER, RANKS, RANKS_TABLE
from cloudcoll.rankmap import RankMap

SOURCE = Path(__file__).with_suffix(".c")
STANDIN = Path(__file__).parents[1] / "tests" / "launch" / "standin"
CALLS = 1_000_000
DEADLINE_S = 60
STARTS = 400
LOOP = f"""
i=0; while [ $i -lt {STARTS} ]; do
    LD_PRELOAD=$PRELOADED {shutil.which("true")}; i=$((i+1))
done
"""


def build(folder: Path) -> Path:
    """Return a program that is linked with the stand-in."""
    library, program = folder / "libnccl.so.2", folder / "calls"
    shared = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]
    sources = sorted(STANDIN.glob("*.c"))
    common = ["cc", "-O2", "-std=gnu11", "-pthread", "-o"]
    subprocess.run([*common, library, *shared, *sources], check=True)
    linked = [str(SOURCE), f"-L{folder}", "-l:libnccl.so.2", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*common, program, *linked], check=True)
    return program


def added(
    measure: Callable[[dict[str, str]], float], env: dict[str, str], runs: int
) -> tuple[list[float], list[float]]:
    """Return what is measured without these variables, and what they add."""
    pairs = [(measure({}), measure(env)) for _ in range(runs)]
    return [a for a, _ in pairs], [b - a for a, b in pairs]


def run(argv: Sequence[str | Path], env: dict[str, str]) -> str:
    """Return what a program prints."""
    return subprocess.run(
        argv, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S
    ).stdout


def report(folder: Path, runs: int) -> Iterator[Figure]:
    """Yield all figures."""
    program = build(folder)
    shim = {ORDER: "here,there", "CLOUDCOLL_HOST": "here"}
    for count in (1, 2, 8):

        def call(env: dict[str, str], count: int = count) -> float:
            return float(run([program, str(count), str(CALLS)], env))

        without, more = added(call, {**shim, "LD_PRELOAD": str(NCCL)}, runs)
        where = "one communicator" if count == 1 else f"{count} communicators in turn"
        yield median_of(f"a call on {where}", without, "ns")
        yield median_of(f"added to a call on {where}", more, "ns")

    yield from starts(folder, runs, shim)


def starts(folder: Path, runs: int, shim: dict[str, str]) -> Iterator[Figure]:
    """Yield what each library adds to the start of a program that calls nothing."""
    tables = {count: folder / f"table{count}" for count in (2, 1000)}
    for count, path in tables.items():
        hosts = ("here", *(f"host{i}" for i in range(1, count)))
        path.write_text(write_environment(RankMap(hosts, (8,) * count)))

    def start(env: dict[str, str]) -> float:
        begin = time.perf_counter()
        run(["sh", "-c", LOOP], {"RANK": "0", "NODE_RANK": "0", **env})
        return (time.perf_counter() - begin) / STARTS

    ranks = {"PRELOADED": str(RANKS), "CLOUDCOLL_HOST": "here"}
    both = {count: {**ranks, RANKS_TABLE: str(at)} for count, at in tables.items()}
    for name, env in {
        "MPI": {**shim, "PRELOADED": str(LIBRARY)},
        "NCCL": {**shim, "PRELOADED": str(NCCL)},
        "ranks, without a table": ranks,
        "ranks, of 2 hosts": both[2],
        "ranks, of 1000 hosts": both[1000],
        "ranks, done before": {**ranks, MARK: "done"},
        "MPI, NCCL and ranks": {
            **(shim | both[2]),
            "PRELOADED": f"{LIBRARY} {NCCL} {RANKS}",
        },
    }.items():
        without, more = added(start, env, runs)
        yield median_of(f"a start, before the shim for {name}", without, "s")
        yield median_of(f"added to a start by the shim for {name}", more, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_figures(report(Path(folder), options.runs), options.json)


if __name__ == "__main__":
    main()
