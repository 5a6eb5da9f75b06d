"""Attack CloudColl as it is: strangers, other users, hostile hosts and files.

Each attack is a function whose docstring says what the attacker tries. It runs in a
process, a folder and a state folder of its own, has ten seconds, and starts the real
program. Prints a line for each: its name, whether the program held or the attack
SUCCEEDED, and what was seen. Ends in 1 if one succeeded:

    python tests/soak/attack
    python tests/soak/attack guess_a_key_byte_by_byte
    python tests/soak/attack --list

Those that need another user, or a program that is setuid, are tried as root alone.
Needs cloudcoll[certs].
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections import Counter
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # forks have no threads

TESTS = Path(__file__).parents[2]
FOLDERS = (
    *(".", "soak", "files", "hosts", "probes", "resident", "tls", "daemon", "launch"),
)
sys.path[:0] = [str(TESTS.parent), *(str(TESTS / name) for name in FOLDERS)]

from attack import files, local_user, network, state, tls, wire  # noqa: E402
from attack.kit import ATTACKS, tried  # noqa: E402

MODULES = (wire, network, local_user, state, files, tls)
"""In the order in which they are tried."""


def main() -> int:
    """Try the attacks that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="only say what each tries")
    options = parser.parse_args()
    order = {module.__name__: place for place, module in enumerate(MODULES)}
    known = sorted(ATTACKS.values(), key=lambda one: order[one.act.__module__])
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"no attack is called {', '.join(sorted(unknown))}")
    chosen = [ATTACKS[name] for name in options.names] or known
    counts: Counter[str] = Counter()
    for one in chosen:
        if options.list:
            print(f"{one.name}: {inspect.getdoc(one.act)}", flush=True)
            continue
        ending, seen = tried(one)
        counts[ending] += 1
        print(f"{one.name:40} {ending:10} {seen}", flush=True)
    if counts:
        print(", ".join(f"{count} {ending}" for ending, count in counts.items()))
    return 1 if counts.keys() - {"held", "not tried"} else 0


if __name__ == "__main__":
    sys.exit(main())
