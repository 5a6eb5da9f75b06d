from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import needs
import pytest
from mpis import EACH, INTEL, MPIS, Mpi, newest

from cloudcoll.launch import shim

# Ranks pose as hosts; R is the rank that the launcher gives.
POSE = (
    'R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ "$R" != "$ODD" ] || eval "$CHANGE"; '
    'export CLOUDCOLL_HOST="${NAMED:-h$R}" LD_PRELOAD; exec "$@"'
)


def run(ranks: int, program: list[str], **env: str) -> tuple[int, str, str]:
    """Start ranks under the shim; `CHANGE` is shell for rank `ODD` alone."""
    env = {"LD_PRELOAD": str(shim.LIBRARY), **env}
    ended = MPIS[0].mpirun(ranks, "sh", "-c", POSE, "sh", *program, **env)
    return ended.returncode, ended.stdout, ended.stderr


WORLD = """
import sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
assert total == sum(range(MPI.COMM_WORLD.size))
MPI.COMM_WORLD.Allreduce(bytearray(8), bytearray(8), MPI.MAX)
MPI.COMM_WORLD.Allreduce(bytearray(800), bytearray(800), MPI.MAX)
"""

DISAGREE = "only 2 of 3 ranks have the order"
RULE = ",@allreduce 0 99,h2,h1,h0"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"CHANGE": "unset CLOUDCOLL_SHIM_ORDER"}, DISAGREE),
        ({"CHANGE": "CLOUDCOLL_SHIM_ORDER=h0,h1,h2"}, DISAGREE),
        ({"CHANGE": "export CLOUDCOLL_EXACT=1"}, DISAGREE),
        ({"CHANGE": "NAMED=elsewhere"}, DISAGREE),
        ({"CHANGE": f"CLOUDCOLL_SHIM_ORDER='h2,h0,h1{RULE}'"}, DISAGREE),
        (
            {
                "CLOUDCOLL_SHIM_ORDER": f"h2,h0,h1{RULE}",
                "CHANGE": "unset CLOUDCOLL_SHIM_ORDER",
            },
            DISAGREE,
        ),
        ({"ODD": "0", "CHANGE": "NAMED=elsewhere"}, "does not name this host"),
        ({"CLOUDCOLL_SHIM_ORDER": ""}, "CLOUDCOLL_SHIM_MAP is not set"),
        ({"CLOUDCOLL_SHIM_ORDER": ",# none"}, "names no hosts"),
        ({"CLOUDCOLL_SHIM_ORDER": "h0,h2,h1,h0"}, "names this host twice"),
        (
            {"CLOUDCOLL_SHIM_ORDER": "", "CLOUDCOLL_SHIM_MAP": "/none"},
            "cannot read /none",
        ),
    ],
)
def test_without_a_common_order(env: dict[str, str], said: str) -> None:
    """Tests that a job runs as given, with one line that says why."""
    order = {"CLOUDCOLL_SHIM_ORDER": "h2,h0,h1", "ODD": "1"}
    code, _, err = run(3, [sys.executable, "-c", WORLD], **{**order, **env})
    lines = [line for line in err.splitlines() if line.startswith("cloudcoll:")]
    assert code == 0, err
    assert len(lines) == 1
    assert said in lines[0]


def test_a_library_that_lacks_a_function(tmp_path: Path) -> None:
    """Tests that the job runs as given, with one line that names it."""
    libmpi = Path(MPIS[0].environment()["MPI4PY_LIBMPI"])
    for file in libmpi.parent.iterdir():
        (tmp_path / file.name).symlink_to(file)
    lacking = tmp_path / libmpi.name
    lacking.unlink()
    name = b"PMPI_Ireduce_scatter_block\0"
    # The rest of the name may be another's, MPI_Ireduce_scatter_block.
    lacking.write_bytes(libmpi.read_bytes().replace(b"\0" + name, b"\0X" + name[1:]))
    code, _, err = run(
        *(3, [sys.executable, "-c", WORLD]),
        CLOUDCOLL_SHIM_ORDER="h2,h0,h1",
        LD_LIBRARY_PATH=str(tmp_path),
        MPI4PY_LIBMPI=str(lacking),
    )
    said = f"{lacking} has no PMPI_Ireduce_scatter_block: running in the order given"
    assert code == 0, err
    assert [line for line in err.splitlines() if said in line] == [f"cloudcoll: {said}"]
    assert err.count("cloudcoll:") == 1


@pytest.mark.parametrize("starved", ["0", "1"])
def test_no_memory_on_one_rank(starved: str, tmp_path: Path) -> None:
    """Tests that a rank whose library gets none parts with no other one."""
    here = Path(__file__).parent
    program = MPIS[0].compile(tmp_path / "program", here / "profiled.c")
    library, order = tmp_path / "starved", tmp_path / "order"
    compiler = ["cc", "-shared", "-fPIC", "-o", str(library), str(here / "starved.c")]
    subprocess.run(compiler, check=True, timeout=120)
    order.write_text("h2\nh0\nh3\nh1\n")
    code, _, err = run(
        *(4, [program]),
        ODD=starved,
        CHANGE=f"LD_PRELOAD={library}:$LD_PRELOAD",
        CLOUDCOLL_SHIM_MAP=str(order),
        CLOUDCOLL_PROFILE=str(tmp_path / "profile.json"),
        CLOUDCOLL_DEBUG="1",
    )
    assert code == 0, err
    # On the world and on one of the halves; the other one has its shadow.
    assert err.count("no room for another shadow: running in the order given") == 2
    assert err.count("1 shadow communicators were made") == 2


@pytest.mark.parametrize("mpi", newest(EACH))
@pytest.mark.parametrize("refused", ["0", "2"])
def test_a_split_that_fails_on_one_rank(mpi: Mpi, refused: str, tmp_path: Path) -> None:
    """Tests that all ranks go without a shadow where one of them has none."""
    here = Path(__file__).parent
    program = mpi.compile(tmp_path / "program", here / "profiled.c")
    library = mpi.compile(tmp_path / "refused", here / "refused.c", shared=True)
    ended = mpi.mpirun(
        *(4, "sh", "-c", POSE, "sh", program),
        ODD=refused,
        CHANGE="export REFUSED=1",
        CLOUDCOLL_SHIM_ORDER="h2,h0,h3,h1",
        CLOUDCOLL_DEBUG="1",
        LD_PRELOAD=f"{shim.LIBRARY}:{library}",
    )
    assert ended.returncode == 0, ended.stderr
    # On the world all four say so, and both of the half in which that rank is.
    assert ended.stderr.count("could not be split: running in the order given") == 6
    assert ended.stderr.count("1 shadow communicators were made") == 2


@needs.WHEELS.unless(INTEL.prefix.exists())
def test_wide_integers_of_fortran(tmp_path: Path) -> None:
    """Tests that MPICH's family gets Fortran's arguments as the program gave them."""
    program, source = tmp_path / "program", Path(__file__).with_name("wide.c")
    wide = [f"-L{INTEL.prefix / 'lib'}", "-lmpi_ilp64", "-lmpifort", "-lmpi"]
    compile_it = ["cc", "-o", str(program), str(source), *wide]
    subprocess.run(compile_it, check=True, timeout=120)
    ended = INTEL.mpirun(
        *(3, "sh", "-c", POSE, "sh", str(program)),
        CLOUDCOLL_SHIM_ORDER="h2,h0,h1",
        CLOUDCOLL_DEBUG="1",
        LD_PRELOAD=str(shim.LIBRARY),
    )
    assert ended.stdout == "2 1 0\n" * 3, ended.stderr
    assert ended.stderr.count("1 shadow communicators were made") == 3


MANY = """
from array import array
from mpi4py import MPI
alive = [MPI.COMM_WORLD.Dup() for _ in range(260)]
for one in alive + alive[::-1]:
    total = array("i", [0])
    one.Allreduce(array("i", [1]), total)
    assert total[0] == one.size
alive[0].Allreduce(bytearray(4000), bytearray(4000))
for one in alive:
    one.Free()
"""


def test_no_more_shadows_than_leave_room() -> None:
    """Tests that many communicators at a time work, the last ones as given."""
    order = "h1,h0,@allreduce 4000 4000,h0,h1"
    env = {"CLOUDCOLL_SHIM_ORDER": order, "CLOUDCOLL_DEBUG": "1"}
    code, _, err = run(2, [sys.executable, "-c", MANY], **env)
    assert code == 0, err
    # One that can't have a second shadow keeps the first, and frees it.
    end = "256 shadow communicators were made; tables of 0 bytes are left"
    assert err.count(end) == 2
    assert "no room for another shadow: running in the order given" in err


CHANGED = """
import os
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    os.environ.clear()
MPI.COMM_WORLD.Allreduce(bytearray(8), bytearray(8), MPI.MAX)
"""


@pytest.mark.parametrize(
    "env",
    [
        {"CLOUDCOLL_SHIM_ORDER": "-"},
        {"CLOUDCOLL_SHIM_ORDER": "h1,h0", "CLOUDCOLL_SHIM_ROLL": "- 9 127.0.0.1"},
    ],
)
def test_a_program_that_changes_its_environment(env: dict[str, str]) -> None:
    """Tests that ranks go on to agree when one clears its variables."""
    code, _, err = run(2, [sys.executable, "-c", CHANGED], **env, CLOUDCOLL_DEBUG="1")
    assert code == 0, err
    assert "shadow communicators" not in err


SUM = """
from mpi4py import MPI
import numpy as np
mine = np.random.default_rng(MPI.COMM_WORLD.rank).standard_normal(4000)
out = np.empty_like(mine)
persistent = np.empty_like(mine)
request = MPI.COMM_WORLD.Allreduce_init(mine, persistent)
request.Start()
request.Wait()
request.Free()
MPI.COMM_WORLD.Allreduce(mine, out)
if MPI.COMM_WORLD.rank == 0:
    print(out.tobytes().hex(), persistent.tobytes().hex())
"""


@pytest.mark.slow
def test_exact_sums() -> None:
    """Tests that sums of floats keep their bits where that is asked for."""
    sums = {
        order + exact: run(
            5,
            [sys.executable, "-c", SUM],
            CLOUDCOLL_SHIM_ORDER=order,
            CLOUDCOLL_EXACT=exact,
        )[1]
        for order in ("h0,h1,h2,h3,h4", "h0,h3,h1,h4,h2")
        for exact in ("", "1")
    }
    for given, exact_given, other, exact_other in zip(
        *(printed.split() for printed in sums.values()), strict=True
    ):
        assert given == exact_given == exact_other
        # Otherwise the test would see no order at all.
        assert given != other


CALLS_OF_TWO_SIZES = """
from array import array
from mpi4py import MPI
world = MPI.COMM_WORLD
for count in (1, 1000):
    total = array("i", [0]) * count
    world.Allreduce(array("i", [world.rank]) * count, total)
    assert set(total) == {sum(range(world.size))}
"""


@pytest.mark.parametrize(
    ("rules", "made"),
    [
        ("", 1),
        (",@allreduce 4000 4000,h1,h2,h0", 2),
        (",@allreduce 4001 9999,h1,h2,h0", 1),
        (",@allreduce 4000 4000,h0,h2,h1", 1),
        (",@allreduce 0 9999,h1,h2,h0", 1),
        (",@allreduce 0 9999,h0,h1,h2", 0),
        (",@scan 0 9999,h1,h2,h0", 1),
        (",h7,h5", 1),  # hosts that the job does not have
    ],
)
def test_a_shadow_for_each_order_that_is_used(rules: str, made: int) -> None:
    """Tests that calls of some sizes take an order of their own."""
    ended = MPIS[-1].mpirun(
        *(3, "sh", "-c", POSE, "sh", sys.executable, "-c", CALLS_OF_TWO_SIZES),
        CLOUDCOLL_SHIM_ORDER=f"h0,h2,h1{rules}",
        CLOUDCOLL_DEBUG="1",
        LD_PRELOAD=str(shim.LIBRARY),
    )
    assert ended.returncode == 0, ended.stderr
    words = f"{made} shadow communicators were made"
    assert ended.stderr.count(words) == (3 if made else 0)
