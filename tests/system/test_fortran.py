"""The preloaded library under Fortran's three bindings.

Needs gfortran, and libopenmpi-dev or libmpich-dev from apt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cloudcoll.launch import shim
from cloudcoll.profile import load_profile

pytestmark = pytest.mark.system

SOURCE = Path(__file__).with_name("bindings.F90")
# Open MPI has persistent collectives in Fortran since 5.
OPTIONS = {"mpifort.mpich": ["-DPERSISTENT"], "mpifort.openmpi": []}
COMPILERS = {"mpifort.openmpi": "mpirun.openmpi", "mpifort.mpich": "mpiexec.mpich"}
RANKS = 4
WORLD = (0, 1, 2, 3)

# Ranks pose as hosts.
POSE = (
    'export CLOUDCOLL_HOST="h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" '
    f'LD_PRELOAD="{shim.LIBRARY}"; exec "$@"'
)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("binding", [8, 90, 77])
def test_bindings(compiler: str, binding: int, tmp_path: Path) -> None:
    """Tests results in another order, and that each call is counted once."""
    if not (shutil.which(compiler) and shutil.which("gfortran")):
        pytest.skip(f"no {compiler} with gfortran")
    program, profile = tmp_path / "program", tmp_path / "profile.json"
    mismatch = ["-fallow-argument-mismatch"] if binding != 8 else []
    options = [*OPTIONS[compiler], *mismatch]
    compile_it = [compiler, *options, f"-DBINDING={binding}", "-o", str(program)]
    subprocess.run([*compile_it, str(SOURCE)], check=True, timeout=60)
    many = ["--oversubscribe"] if "openmpi" in compiler else []
    ended = subprocess.run(
        [COMPILERS[compiler], *many, "-n", "4", "sh", "-c", POSE, "sh", str(program)],
        env={
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "CLOUDCOLL_SHIM_ORDER": "h0,h3,h1,h2",
            "CLOUDCOLL_PROFILE": str(profile),
            "CLOUDCOLL_DEBUG": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert ended.stderr.count("shadow communicators were made") == RANKS
    persistent = "-DPERSISTENT" in options
    assert {
        (one.collective, one.group, one.calls) for one in load_profile(profile).calls
    } == {
        ("allreduce", WORLD, 5 + persistent),
        ("reduce", WORLD, 3 + persistent),
        ("bcast", WORLD, 2 + persistent),
        ("allgather", WORLD, 3),
        ("reduce_scatter", WORLD, 2),
        ("alltoall", WORLD, 1),
        ("barrier", WORLD, 1 + persistent),
        ("barrier", (0, 2), 1),
        ("barrier", (1, 3), 1),
    }
