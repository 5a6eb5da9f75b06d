"""Start one of these programs in a rank, and read there what the job is to do.

Started as ``python .../start.py PROGRAM ARGUMENTS`` (PROGRAM: mpi_bench, mpi_probe,
torch_bench, torch_probe). ``python -m`` would look in the current folder first: in a
clone of CloudColl, or beside a file named like a library of ours, ranks would import
that instead. The programs are taken from the folder of this file, everything else from
where any script of this Python has it.

A request comes on a rank's stdin, in pieces if it is long. PRRTE, which starts Open
MPI's ranks since version 5, loses all but the last of several chunks of 4096 bytes that
it forwards to another host at once (seen in 5.0.11; see openpmix/prrte#2220, #2579). So
a longer request comes in lines that each fit into one chunk: ``+`` and a piece, at last
``.`` and the rest. The reader asks for each line after the first by writing
``{"more": LINES}`` to stdout, with how many it has.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from typing import BinaryIO

PACKAGE = "cloudcoll_probes"
"""A name of its own: the programs need nothing of the package ``cloudcoll``."""


def take_package(folder: str) -> None:
    """Make `folder` the package `PACKAGE`, and no longer a place to import from."""
    # Python has put it there, but not with -I, nor with -P or PYTHONSAFEPATH.
    if sys.path and os.path.realpath(sys.path[0] or ".") == folder:
        del sys.path[0]
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        PACKAGE, init, submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def read_request(stdin: BinaryIO) -> bytes:
    """Return the request, without its end of line; nothing where stdin has ended."""
    # A line, not all: mpirun does not always pass the end of its input on.
    line = stdin.readline()
    pieces = []
    while line[:1] == b"+":
        pieces.append(line[1:-1])
        print('{"more": %d}' % len(pieces), flush=True)
        line = stdin.readline()
    return b"".join(pieces) + line[line[:1] == b"." :].rstrip(b"\n")


def main() -> None:
    """Run the program that the first argument names, with the other ones."""
    take_package(os.path.dirname(os.path.realpath(__file__)))
    name, *arguments = sys.argv[1:]
    module = PACKAGE + "." + name
    if name.startswith("mpi_"):
        # mpi4py's own runner ends the whole job on an error.
        module, arguments = "mpi4py", ["-m", module, *arguments]
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
