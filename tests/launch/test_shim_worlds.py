"""The preloaded library beside what is not of one MPI_COMM_WORLD."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mpis import EACH, MPIS, TRACER, Mpi, newest, traced

from cloudcoll.launch import shim

# Ranks pose as hosts. They alone have the library: what they spawn does without.
POSE = (
    'export CLOUDCOLL_HOST="h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" '
    f'LD_PRELOAD="{shim.LIBRARY}$BEHIND"; exec "$@"'
)
SESSIONS = Path(__file__).with_name("sessions.c")


def each_with(name: str) -> pytest.MarkDecorator:
    """Run a test on every MPI whose headers declare a function.

    One that is not here might: it is skipped.
    """

    def declares(mpi: Mpi) -> bool:
        headers = mpi.prefix.glob("include/**/mpi*.h")
        return any(name in header.read_text() for header in headers)

    without = [mpi.name for mpi in MPIS if not declares(mpi)]

    found = [one for one in EACH if one.id not in without]
    return pytest.mark.parametrize("mpi", newest(found))


@each_with("MPI_Session_init")
def test_sessions_outside_the_world(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that what is first used before or after the world is left alone."""
    program = mpi.compile(tmp_path / "program", SESSIONS)
    tracer = mpi.compile(tmp_path / "tracer", TRACER, shared=True)
    ended = mpi.mpirun(
        *(3, "sh", "-c", POSE, "sh", program),
        BEHIND=f":{tracer}",
        CLOUDCOLL_SHIM_ORDER="h2,h0,h1",
    )
    assert (ended.returncode, ended.stdout) == (0, "right\n"), ended.stderr
    given, order = ("h0", "h1", "h2"), ("h2", "h0", "h1")
    assert traced(ended.stderr, 3) == {
        "Reduce": given,  # before it, and then inside
        "Allreduce": order,  # inside
        "Barrier": order,  # inside, and then after it
        "Reduce_scatter_block": given,  # in MPI_Finalize, and after it
    }


@each_with("OMPI_HAVE_MPI_EXT_FTMPI")  # MPICH 5 has the name alone
def test_revoked_communicators(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that who waits on one's shadow is let go."""
    program = mpi.compile(tmp_path / "program", SESSIONS.with_name("revoked.c"))
    ended = mpi.mpirun(
        *(3, "sh", "-c", POSE, "sh", program),
        CLOUDCOLL_SHIM_ORDER="h2,h0,h1",
        CLOUDCOLL_DEBUG="1",
        OMPI_MCA_mpi_ft_enable="1",
    )
    assert (ended.returncode, ended.stdout) == (0, "right\n"), ended.stderr
    assert ended.stderr.count("2 shadow communicators were made") == 3


# The child's program is one line: MPICH's wire to its launcher takes no more.
SPAWN = """
import sys
from mpi4py import MPI
child = (
    "from mpi4py import MPI; parent = MPI.Comm.Get_parent(); "
    "merged = parent.Merge(True); merged.allreduce(1); "
    "merged.Free(); parent.Disconnect()"
)
world = MPI.COMM_WORLD
assert world.allreduce(1) == world.size
spawned = world.Spawn(sys.executable, ["-c", child], maxprocs=1)
merged = spawned.Merge()
assert merged.allreduce(1) == world.size + 1
merged.Free()
spawned.Disconnect()
"""


@pytest.mark.parametrize("mpi", newest(EACH))
def test_spawned_processes_need_no_library(mpi: Mpi) -> None:
    """Tests that communicators with processes that may lack it are left alone."""
    ended = mpi.mpirun(
        *(3, "sh", "-c", POSE, "sh", sys.executable, "-c", SPAWN),
        CLOUDCOLL_SHIM_ORDER="h0,h2,h1",
        CLOUDCOLL_DEBUG="1",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("1 shadow communicators were made") == 3
