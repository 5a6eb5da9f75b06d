"""Run what takes long, one after another: matrices, fuzzers, campaigns of faults.

    make soak                                # all, four hours and a half at most
    make soak SOAK_ARGS='frames parsers'     # these

Prints which held. Each has a limit of time; what it printed is in build/soak. Ends in
1 if any found a fault, or took too long. Figures that some print need a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "build" / "soak"
WORKERS = str((os.cpu_count() or 1) + 2)
TESTS = ["-m", "pytest", "-n", WORKERS, "--dist", "loadfile", "-m"]
PARSERS = ("fuzz_parsers.py", "--only")
CAMPAIGNS = {
    # Tests that `make test` leaves out: it tries others of their kind.
    "matrices": [*TESTS, "soak"],
    "examples": [*TESTS, "not soak", "--hypothesis-profile=soak", "tests/solve"],
    "frames": ["fuzz_frames.py"],
    "parsers": [*PARSERS, "frames tls greeting request answer roll status hostfile"],
    "snapshots": [*PARSERS, "snapshot archive history spool"],
    "results": [*PARSERS, "map bench profile workload options rules"],
    "imports": [*PARSERS, "fabric labels slurm topograph matrix npy mpigraph names"],
    "tls": ["fuzz_tls.py"],
    "greetings": ["greetings.py"],
    "attack": ["attack"],
    "kills": ["write_faults.py", "kills"],
    "disk": ["write_faults.py", "disk"],
    "profile": ["profile_kills.py"],
    "day": ["daemon_faults.py", "soak"],
    "second": ["daemon_faults.py", "second"],
    "probes": ["probe_faults.py"],
    "strangers": ["tls_strangers.py"],
    "starts": ["run_faults.py"],
    "launchers": ["run_faults_lab.py"],
}


def held(name: str, seconds: float) -> bool:
    """Run a campaign, say how it ended, and return whether it found nothing."""
    output = OUTPUT / f"{name}.txt"
    first, *words = CAMPAIGNS[name]
    program = first if first == "-m" else str(HERE / first)
    start = time.monotonic()
    with output.open("w") as file:
        try:
            status = subprocess.run(
                [sys.executable, program, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
            ending = "held" if status == 0 else f"FAILED, exit code {status}"
        except subprocess.TimeoutExpired:
            ending = f"FAILED, not done in {seconds:g} s"
    took = time.monotonic() - start
    print(f"{name:10} {ending:32} {took:6.0f} s   {output}", flush=True)
    return ending == "held"


def main() -> int:
    """Run the campaigns that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    # Not `choices`: Python 3.10 and 3.11 refuse no words at all with it.
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--seconds", type=float, default=900.0, help="for each")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CAMPAIGNS):
        parser.error(f"no {', '.join(unknown)}: there are {', '.join(CAMPAIGNS)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    chosen = options.names or CAMPAIGNS
    failed = [name for name in chosen if not held(name, options.seconds)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
