"""The whole job on one machine: what ``make demo`` runs.

Starts an emulated data centre with uneven racks, probes it, solves, measures
real Open MPI in several orders (ring and Rabenseifner's allreduce), starts a
job through ``cloudcoll run``, and prints a summary. Leaves ``network.snap``,
``map.json``, ``result*.json`` and ``report.html`` in the output folder.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.record import Figure

LAB = "demo"
ORDERS = "given,sorted,grouped,random:3,cloudcoll"
SIZE = "8M"
SMALL = "64K"
RESULT = {"ring": "result.json", "rabenseifner": "result-rabenseifner.json"}
PROGRAM = """from mpi4py import MPI
names = MPI.COMM_WORLD.gather(MPI.Get_processor_name())
if names: print("ranks 0 to", len(names) - 1, "run on", *names)"""


def cloudcoll(*arguments: str | Path, env: dict[str, str], good: int = 0) -> None:
    """Show a command as a user would type it, and run it.

    Exit codes up to `good` are no failure.
    """
    words = [str(argument) for argument in arguments]
    print(f"\n$ cloudcoll {shlex.join(words)}", flush=True)
    code = subprocess.run(["cloudcoll", *words], env=env, check=False).returncode
    if not 0 <= code <= good:
        raise subprocess.CalledProcessError(code, words)


def demo(output: Path, racks: str, repeats: int, small: bool) -> None:
    """Run the main job from an empty machine to a table."""
    from cloudcoll.bench.result import BenchRun
    from cloudcoll.report.bench import table_lines

    output.mkdir(parents=True, exist_ok=True)
    home = output / "state"
    beside = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{beside}:{os.environ['PATH']}"}
    env["CLOUDCOLL_HOME"] = str(home.resolve())
    hosts = home.resolve() / "lab" / LAB / "hosts"
    snapshot, rank_map = output / "network.snap", output / "map.json"
    inside = ("lab", "exec", "--name", LAB, "--")
    mpirun = ("mpirun", "--hostfile", hosts)
    up = ("lab", "up", "--name", LAB, "--preset", "tuned", "--racks", racks)
    cloudcoll(*up, env=env)
    try:
        # 1: some pairs gave no result, as may be on a busy machine.
        cloudcoll("probe", "--lab", LAB, "-o", snapshot, env=env, good=1)
        cloudcoll("solve", snapshot, "--algorithm", "ring", "-o", rank_map, env=env)
        size = SMALL if small else SIZE
        for algorithm, name in RESULT.items():
            bench = ("bench", "--snapshot", snapshot, "--algorithm", algorithm)
            bench += ("-b", size, "-e", size, "--repeats", str(repeats))
            bench += ("--orders", ORDERS, "-o", output / name)
            cloudcoll(*inside, "cloudcoll", *bench, *mpirun, env=env)
        run = ("cloudcoll", "run", "--strict", "-v", "--map", rank_map)
        cloudcoll(*inside, *run, *mpirun, "python", "-c", PROGRAM, env=env)
    finally:
        cloudcoll("lab", "down", "--name", LAB, env=env)
    results, page = [output / name for name in RESULT.values()], output / "report.html"
    cloudcoll("report", *results, "-o", page, env=env)
    for name in RESULT.values():
        text = (output / name).read_text()
        print("\n" + "\n".join(table_lines(BenchRun.from_json(text, name))))
    files = [snapshot.name, rank_map.name, *RESULT.values(), page.name]
    print(f"\nleft in {output}: {' '.join(files)}")


def figures(output: Path, seconds: float) -> Iterator[Figure]:
    """Yield what the last tables say, and how long all of it took."""
    from benchmarks.emulated import ratio_figures
    from benchmarks.record import Figure
    from cloudcoll.bench.result import BenchRun

    for algorithm, name in RESULT.items():
        run = BenchRun.from_json((output / name).read_text(), name)
        what = f"demo, {algorithm}"
        size = run.sizes[-1]
        model = run.predicted[str(size)]
        times = {one.order: one.time_us * 1e-6 for one in run.medians()}
        for name, order in {**{name: name for name in times}, **run.same_as}.items():
            more = {"predicted": model[order], "unit": "s"}
            yield Figure(f"{what}: {name}", times[order], **more)
        yield from ratio_figures(what, run)
    yield Figure("demo: whole command", seconds, unit="s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    parser.add_argument("--output", type=Path, default=Path("build/demo"))
    parser.add_argument("--racks", default="5,3,6,2", help="hosts in each rack")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help=f"{SMALL} in each call")
    arguments = vars(parser.parse_args())
    target = arguments.pop("json")
    start = time.monotonic()
    try:
        demo(**arguments)
    except subprocess.CalledProcessError as error:
        sys.exit(f"demo: a command ended with exit code {error.returncode}")
    except KeyboardInterrupt:
        sys.exit(130)
    seconds = time.monotonic() - start
    print(f"demo: {seconds:.0f} s")
    if target:
        from benchmarks.record import write_figures

        write_figures(figures(arguments["output"], seconds), target)


if __name__ == "__main__":
    main()
