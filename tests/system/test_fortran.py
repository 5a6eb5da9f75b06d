"""The preloaded library under Fortran's three bindings.

Needs gfortran, and libopenmpi-dev or libmpich-dev from apt.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from mpis import DEBIAN, TRACER, Mpi, traced
from needs import FORTRAN

from cloudcoll.launch import shim
from cloudcoll.profile import load_profile

pytestmark = pytest.mark.system

SOURCE = Path(__file__).with_name("bindings.F90")
RANKS = 4
WORLD = (0, 1, 2, 3)
ORDER = ("h0", "h3", "h1", "h2")
PERSISTENT = ("Allreduce_init", "Bcast_init", "Reduce_init", "Barrier_init")

# Ranks pose as hosts.
POSE = (
    'export CLOUDCOLL_HOST="h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" '
    f'LD_PRELOAD="{shim.LIBRARY}:$BEHIND"; exec "$@"'
)


@FORTRAN.mark
@pytest.mark.parametrize("mpi", DEBIAN)
@pytest.mark.parametrize(
    "binding", [8, *(pytest.param(one, marks=pytest.mark.slow) for one in (90, 77))]
)
def test_bindings(mpi: Mpi, binding: int, tmp_path: Path) -> None:
    """Tests results and places in another order, and that each call counts once."""
    program, profile = tmp_path / "program", tmp_path / "profile.json"
    tracer = mpi.compile(tmp_path / "tracer", TRACER, shared=True)
    mismatch = ["-fallow-argument-mismatch"] if binding != 8 else []
    # Open MPI 4.1 has persistent collectives as an extension.
    extended = ["-DEXTENDED"] if "(OpenRTE) 4" in mpi.version else []
    options = [*extended, *mismatch, f"-DBINDING={binding}"]
    build: list[str | Path] = [mpi.program("mpifort"), *options, "-o", program, SOURCE]
    subprocess.run(build, check=True, timeout=120)
    ended = mpi.mpirun(
        *(RANKS, "sh", "-c", POSE, "sh", str(program)),
        BEHIND=tracer,
        CLOUDCOLL_SHIM_ORDER=",".join(ORDER),
        CLOUDCOLL_PROFILE=str(profile),
        CLOUDCOLL_DEBUG="1",
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert ended.stderr.count("shadow communicators were made") == RANKS
    places = traced(ended.stderr, RANKS)
    assert {name: places[name] for name in PERSISTENT} == dict.fromkeys(
        PERSISTENT, ORDER
    )
    assert {
        (one.collective, one.group, one.calls) for one in load_profile(profile).calls
    } == {
        ("allreduce", WORLD, 6),
        ("reduce", WORLD, 4),
        ("bcast", WORLD, 3),
        ("allgather", WORLD, 3),
        ("reduce_scatter", WORLD, 2),
        ("alltoall", WORLD, 1),
        ("barrier", WORLD, 2),
        ("barrier", (0, 2), 1),
        ("barrier", (1, 3), 1),
    }
