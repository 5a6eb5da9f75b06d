"""Gain on an emulated 4:1 data centre: 4 racks of 4 hosts, NIC = uplink.

Prints how much longer a ring allreduce of 16 MiB takes in random orders, in the
order given and rack after rack than in CloudColl's, which knows only
what its own probe measured there. One MPI job, orders taking turns.

    python -m benchmarks.speedup [--racks 5,3,6,2 --algorithm rabenseifner --size 8M]

*true-racks* are the racks of the lab, one after the other; *grouped* are those that
the probe has found.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.emulated import CLOUDCOLL, command_in, ratio_figures
from benchmarks.record import json_option, write_figures
from cloudcoll.bench.result import BenchRun

LAB = "speedup"


def measure(racks: str, algorithm: str, size: str, repeats: int, mode: str) -> BenchRun:
    """Return the bench of a fresh lab."""
    with tempfile.TemporaryDirectory() as folder:
        cloudcoll = command_in(folder)

        hosts = Path(folder) / "lab" / LAB / "hosts"
        truth, snapshot = Path(folder) / "true-racks", Path(folder) / "network.snap"
        cloudcoll("lab", "up", "--name", LAB, "--preset", "tuned", "--racks", racks)
        try:
            groups = json.loads(
                cloudcoll("lab", "hosts", "--name", LAB, "--true-groups", "--json")
            )
            first = min(name for group in groups for name in group)
            # The rack of the first host first, and that host first in it.
            order = sorted(groups, key=lambda group: first not in group)
            order[0].sort(key=lambda name: name != first)
            truth.write_text("\n".join(name for group in order for name in group))
            # 1: some pairs gave no result, as may be on a busy machine.
            cloudcoll("probe", "--lab", LAB, f"--{mode}", "-o", str(snapshot), good=1)
            inside = ("lab", "exec", "--name", LAB, "--", *CLOUDCOLL)
            text = cloudcoll(
                *inside, "bench", "--json", "--snapshot", str(snapshot),
                "--algorithm", algorithm, "-b", size, "-e", size,
                "--repeats", str(repeats),
                "--orders", f"given,grouped,random:5,{truth},cloudcoll",
                "mpirun", "--hostfile", str(hosts),
            )  # fmt: skip
        finally:
            cloudcoll("lab", "down", "--name", LAB)
        return BenchRun.from_json(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", default="4,4,4,4")
    parser.add_argument("--algorithm", default="ring")
    parser.add_argument("--size", default="16M")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--mode", default="quick", choices=["quick", "standard"])
    json_option(parser)
    options = vars(parser.parse_args())
    target = options.pop("json")
    what = "{algorithm} of {size}, racks {racks}".format(**options)
    write_figures(ratio_figures(what, measure(**options)), target)


if __name__ == "__main__":
    main()
