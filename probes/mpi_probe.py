"""Measure the network between the hosts of an MPI job, on the path MPI uses.

Started as ``python .../start.py mpi_probe``, by a launcher
that feeds rank 0's stdin. `ranks` says what is read, written and measured.
"""

from __future__ import annotations

import signal
import sys
import time
from array import array
from typing import Any

from mpi4py import MPI

from . import agent, ranks
from .start import read_request

NAP, LONG_NAP = 5e-5, 1e-3  # seconds between two looks at what is not timed
TAG = 1


def patient(request: MPI.Request) -> None:
    """Wait without keeping a core busy: others may be measuring on it."""
    nap = NAP
    while not request.Test():
        time.sleep(nap)
        nap = min(2 * nap, LONG_NAP)


class MpiLink(ranks.Connection):
    """Messages of MPI's world; buffers are bytearrays."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.name = MPI.Get_processor_name()
        self.library = MPI.Get_library_version().split("\n")[0].split(",")[0]

    def barrier(self) -> None:
        """Wait for all ranks, napping."""
        patient(self._comm.Ibarrier())

    def share(self, text: bytes) -> bytes:
        """Return rank 0's `text` on every rank."""
        size = array("q", [len(text)])
        patient(self._comm.Ibcast(size))
        buffer = bytearray(text) if self.rank == 0 else bytearray(size[0])
        patient(self._comm.Ibcast(buffer))
        return bytes(buffer)

    def gather(self, text: bytes) -> bytes:
        """Return all ranks' texts on rank 0; nothing elsewhere."""
        sizes = array("i", [0] * self.size)
        mine = array("i", [len(text)])
        patient(self._comm.Igather(mine, sizes if self.rank == 0 else None))
        joined = bytearray(sum(sizes))
        patient(self._comm.Igatherv(text, [joined, sizes.tolist(), MPI.BYTE]))
        return bytes(joined)

    def buffer(self, size: int) -> bytearray:
        """Return a bytearray."""
        return bytearray(size)

    def write(self, buffer: Any, data: bytes) -> None:
        """Put `data` at the beginning."""
        buffer[: len(data)] = data

    def read(self, buffer: Any, size: int) -> bytes:
        """Return the beginning."""
        return bytes(buffer[:size])

    def exchange(self, request: Any, reply: Any, peer: int) -> None:
        """Send and receive in one call of MPI."""
        self._comm.Sendrecv(request, peer, TAG, reply, peer, TAG)

    def echo(self, buffer: Any, peer: int) -> None:
        """Receive, and send the same back."""
        self._comm.Recv(buffer, peer, TAG)
        self._comm.Send(buffer, peer, TAG)

    def isend(self, buffer: Any, size: int, peer: int) -> MPI.Request:
        """Begin to send."""
        return self._comm.Isend(memoryview(buffer)[:size], peer, TAG)

    def irecv(self, buffer: Any, size: int, peer: int) -> MPI.Request:
        """Begin to receive."""
        return self._comm.Irecv(memoryview(buffer)[:size], peer, TAG)


def main() -> None:
    """Do what rank 0 reads from stdin."""
    # Every wait's deadline: an alarm ends this rank, and so the job, in whatever
    # call it is stuck. `ranks.measure` sets it anew for each round.
    signal.alarm(agent.UNPREPARED_LIFE)
    link = MpiLink(MPI.COMM_WORLD)
    ranks.run(link, b"" if link.rank else read_request(sys.stdin.buffer))


if __name__ == "__main__":
    main()
