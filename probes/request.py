"""Read what a job is to do from the stdin of a rank, in pieces if it is long.

PRRTE, which starts Open MPI's ranks since version 5, loses all but the last of several
chunks of 4096 bytes that it forwards to another host at once (seen in 5.0.11; see
openpmix/prrte#2220, #2579). So a longer request comes in lines that each fit into one
chunk: ``+`` and a piece, at last ``.`` and the rest. The reader asks for each line
after the first by writing ``{"more": LINES}`` to stdout, with how many it has.
"""

from __future__ import annotations

from typing import BinaryIO


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
