"""Time MPI's collectives in several rank orders, in one MPI job.

Every order is a communicator split from MPI_COMM_WORLD with a key per rank.
Started as ``python .../start.py mpi_bench``, by any launcher of MPI. `timing` says
what is read and written.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from mpi4py import MPI

from . import timing


class MpiGroup(timing.RankGroup):
    """A communicator; the numbers in its vectors are NumPy's float32."""

    def __init__(self, comm: MPI.Comm, members: List[int]) -> None:
        super().__init__(members, comm.rank)
        self._comm = comm
        # Of reductions, the sum is mpi4py's default.
        self._calls: Dict[str, Callable[[Any, Any], None]] = {
            "allgather": comm.Allgather,
            "allreduce": comm.Allreduce,
            "alltoall": comm.Alltoall,
            "bcast": lambda send, recv: comm.Bcast(recv),
            "reduce": comm.Reduce,
            "reduce_scatter": comm.Reduce_scatter,
        }

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._comm.Barrier()

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Run the collective once."""
        self._calls[op](send, recv)


class MpiWorld(timing.World):
    """MPI_COMM_WORLD."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self.library = MPI.Get_library_version().split("\n")[0].split(",")[0]

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        return self._world.bcast(value)

    def gather(self, text: str) -> List[str]:
        """Return all ranks' texts."""
        return self._world.allgather(text)

    def largest(self, value: float) -> float:
        """Return the largest of all ranks' values."""
        return float(self._world.allreduce(value, op=MPI.MAX))

    def total(self, value: int) -> int:
        """Return the sum of all ranks' values."""
        return int(self._world.allreduce(value))

    def group(self, name: str, members: List[int]) -> MpiGroup:
        """Return a communicator with the ranks in another order."""
        comm = self._world.Split(0, members.index(self.rank))
        return MpiGroup(comm, members)


if __name__ == "__main__":
    timing.serve(MpiWorld())
