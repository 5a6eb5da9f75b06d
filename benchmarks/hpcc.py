"""The HPC Challenge benchmark as typed, in another order of its hosts, and tuned.

A program that others wrote and built, with its own measure of how well it does: of
Debian (https://hpcchallenge.org), with Debian's Open MPI 4.1. It is profiled, tuned
for and started in turns as in `tuned_program`. What it says of each of its tests that
use the network is compared; all of them are rates. Its test of ping-pongs takes 100 s,
whatever the size.

    apt-get install hpcc
    python -m benchmarks.hpcc [--racks 5,3,6,2] [--turns 3] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.emulated import Emulated, emulated
from benchmarks.record import Figure, json_option, median_of, write_figures
from benchmarks.tuned_program import in_turns

INPUT = """\
HPLinpack benchmark input file
of hpcc, whose other tests take their sizes from the first ones here
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{size}       Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{side}       Ps
{side}       Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"""
"""All but the size and the grid as Debian's example has it."""
SIZE = 1500
"""Rows of the system of equations: 18 MB, so that random updates take 20 s."""
SIDE = 4
"""16 ranks."""

TESTS = {
    "NaturallyOrderedRingBandwidth_GBytes": "a ring in the order of ranks",
    "RandomlyOrderedRingBandwidth_GBytes": "rings in orders at random",
    "PTRANS_GBs": "transposing a matrix",
    "MPIFFT_Gflops": "a Fourier transform",
    "MPIRandomAccess_GUPs": "updates at random",
    "HPL_Tflops": "a system of equations",
}


def run(cluster: Emulated, *prefix: str) -> dict[str, float]:
    """Run the benchmark in the lab, perhaps by CloudColl; return what it says."""
    folder = cluster.home / "hpcc"
    folder.mkdir(exist_ok=True)
    (folder / "hpccinf.txt").write_text(INPUT.format(size=SIZE, side=SIDE))
    answer = folder / "hpccoutf.txt"
    answer.unlink(missing_ok=True)  # it appends
    words = (*launcher(cluster.hostfile), "--wdir", str(folder), "hpcc")
    within = ("lab", "exec", "--name", cluster.name, "--")
    cluster.cloudcoll(*within, *prefix, *words)
    rows = (line.split("=", 1) for line in answer.read_text().splitlines())
    said = {row[0]: row[1] for row in rows if len(row) == 2}
    if said.get("Success") != "1":
        raise RuntimeError(f"{answer} does not say that all tests are right")
    return {test: float(said[test]) for test in TESTS}


def launcher(hostfile: Path) -> tuple[str, ...]:
    """Return how the benchmark is started."""
    return ("mpirun.openmpi", "--hostfile", str(hostfile))


def figures(racks: str, turns: int) -> Iterator[Figure]:
    """Yield how much more each test reaches in the order alone, and tuned."""
    with emulated("hpcc", racks) as cluster:
        program = launcher(cluster.hostfile)
        rows, took = in_turns(cluster, partial(run, cluster), program, turns)
    for test, words in TESTS.items():
        for kind in ("ordered", "tuned"):
            ratios = [row[kind][test] / row["given"][test] for row in rows]
            yield median_of(f"HPC Challenge, {words}: {kind} over given", ratios, "x")
    yield Figure("HPC Challenge: tuning took", took, unit="s", most=60.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", default="5,3,6,2")
    parser.add_argument("--turns", type=int, default=3)
    json_option(parser)
    options = parser.parse_args()
    write_figures(figures(options.racks, options.turns), options.json)


if __name__ == "__main__":
    main()
