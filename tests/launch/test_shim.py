from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpis import MPIS, Mpi

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest, shim
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.leaf import Inbox
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.rankmap import CallOrder, RankMap

DEADLINE_S = 240

# Ranks pose as hosts; R is the rank that the launcher gives.
POSE = (
    'R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ "$R" != "$ODD" ] || eval "$CHANGE"; '
    'export CLOUDCOLL_HOST="${NAMED:-h$R}" LD_PRELOAD; exec "$@"'
)

needs_mpi = pytest.mark.skipif(not MPIS, reason="no MPI with a compiler")


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


@needs_mpi
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


MANY = """
from mpi4py import MPI
alive = [MPI.COMM_WORLD.Dup() for _ in range(260)]
assert all(one.allreduce(1) == one.size for one in alive + alive[::-1])
"""


@needs_mpi
def test_no_more_shadows_than_leave_room() -> None:
    """Tests that many communicators at a time work, the last ones as given."""
    env = {"CLOUDCOLL_SHIM_ORDER": "h1,h0", "CLOUDCOLL_DEBUG": "1"}
    code, _, err = run(2, [sys.executable, "-c", MANY], **env)
    assert code == 0, err
    assert err.count("256 shadow communicators were made") == 2
    assert "no room for another shadow: running in the order given" in err


SUM = """
from mpi4py import MPI
import numpy as np
mine = np.random.default_rng(MPI.COMM_WORLD.rank).standard_normal(4000)
out = np.empty_like(mine)
MPI.COMM_WORLD.Allreduce(mine, out)
if MPI.COMM_WORLD.rank == 0:
    print(out.tobytes().hex())
"""


@needs_mpi
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
    given, exact_given, other, exact_other = sums.values()
    assert given
    assert given == exact_given == exact_other
    # Otherwise the test would see no order at all.
    assert given != other


def request(launcher: OpenMpi | DeepSpeed) -> LaunchRequest:
    return LaunchRequest(
        launcher=launcher,
        argv=("mpirun", "--hostfile", "F", "app", "-n"),
        start=3,
        hosts=(Host("a", "10.0.0.1"), Host("b"), Host("c")),
        source="F",
        counts=(1, 1, 1),
    )


INBOX = Inbox(("10.0.0.9", "192.168.0.9"), 4711, "t0ken")
CALLS = "CLOUDCOLL_SHIM_ROLL=t0ken 4711 10.0.0.9 192.168.0.9"


def test_the_command_line_stays() -> None:
    """Tests that only the program is wrapped, with the order and addresses."""
    plan = shim.plan_shim(request(OpenMpi()), RankMap(tuple("cab"), (1, 1, 1)), INBOX)
    assert plan.argv[:5] == ("mpirun", "--hostfile", "F", "sh", "-c")
    settings = "CLOUDCOLL_SHIM_ORDER=c,a 10.0.0.1,b", CALLS
    assert plan.argv[6:] == (str(shim.LIBRARY), *settings, "--", "app", "-n")
    assert not plan.placement
    assert plan.roll == INBOX


def test_every_program_is_wrapped() -> None:
    """Tests that ranks of all programs (``:``) are preloaded, none is without."""
    argv = ["mpirun", "-H", "a,b,c", "-n", "1", "--", "one", ":", "-n", "2", "two"]
    asked = OpenMpi().parse(argv, {}, lambda: "mpirun (Open MPI) 5.0.11\n")
    plan = shim.plan_shim(asked, RankMap(tuple("cab"), (1, 1, 1)), INBOX)
    inside = plan.argv[6:13]
    settings = "CLOUDCOLL_SHIM_ORDER=c,a,b", CALLS
    assert inside[3:] == (str(shim.LIBRARY), *settings, "--")
    assert plan.argv == (*argv[:6], *inside, *argv[6:10], *inside, "two")


def test_orders_of_calls_follow() -> None:
    """Tests the text of a map whose collectives have orders of their own."""
    calls = (CallOrder("bcast", 1, 9, tuple("bca")),)
    rank_map = RankMap(tuple("abc"), (1, 1, 1), calls=calls)
    plan = shim.plan_shim(request(OpenMpi()), rank_map, INBOX)
    order = "a 10.0.0.1,b,c,@bcast 1 9,b,c,a 10.0.0.1"
    assert f"CLOUDCOLL_SHIM_ORDER={order}" in plan.argv


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
    ],
)
@needs_mpi
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


def test_the_order_given_is_left_alone() -> None:
    """Tests that nothing is preloaded for the order that is there anyway."""
    plan = shim.plan_shim(request(OpenMpi()), RankMap(tuple("abc"), (1, 1, 1)), INBOX)
    assert plan.argv == request(OpenMpi()).argv
    assert plan.roll is None


def test_what_can_not_be_reordered() -> None:
    """Tests that other hosts and launchers of other programs are refused."""
    with pytest.raises(LaunchError, match="does not name c of F"):
        shim.plan_shim(request(OpenMpi()), RankMap(tuple("ab"), (1, 1)), INBOX)
    with pytest.raises(LaunchError, match="starts no program"):
        shim.plan_shim(request(DeepSpeed()), RankMap(tuple("cab"), (1, 1, 1)), INBOX)


@pytest.mark.parametrize(
    ("library", "preloaded"), [(shim.LIBRARY, "{0}:{0}"), ("/none/a", "{0}")]
)
def test_what_is_preloaded_stays(library: Path, preloaded: str) -> None:
    """Tests that the library comes first, where there is one, and variables."""
    show = ["sh", "-c", "echo $LD_PRELOAD $A,$B"]
    ended = subprocess.run(
        ["sh", "-c", shim.BECOME, str(library), "A=b $c='\"", "B=new", "--", *show],
        env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(shim.LIBRARY), "B": "old"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert ended.stdout == f"{preloaded.format(shim.LIBRARY)} b $c='\",old\n"
    assert ended.stderr == ""


def test_an_unread_command_line_gets_variables() -> None:
    """Tests that a wrapper's command stays and its environment has the order."""
    rank_map, env = RankMap(tuple("cab"), (1, 1, 1)), {"LD_PRELOAD": "x"}
    plan = shim.plan_shim_unread(("site-run", "app"), rank_map, env, INBOX)
    assert plan.argv == ("site-run", "app")
    assert plan.roll == INBOX
    assert [f"{name}={value}" for name, value in plan.env.items()] == [
        "CLOUDCOLL_SHIM_ORDER=c,a,b",
        CALLS,
        f"LD_PRELOAD={shim.LIBRARY}:x",
    ]


@pytest.mark.parametrize("argv", [("site-run", "app"), ("mpirun", "--host", "a", "x")])
def test_calls_are_counted_as_typed(argv: tuple[str, ...], tmp_path: Path) -> None:
    """Tests that a profile leaves the order, whether the command is read or not."""
    path = tmp_path / "p.json"
    plan = shim.plan_profile(argv, {}, path, INBOX)
    settings = {f"CLOUDCOLL_PROFILE={path}", "CLOUDCOLL_SHIM_ORDER=-", CALLS}
    variables = {f"{name}={value}" for name, value in plan.env.items()}
    assert settings <= variables | set(plan.argv)
    assert plan.roll == INBOX


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


@pytest.mark.parametrize("mpi", MPIS, ids=lambda mpi: mpi.prefix.name)
def test_spawned_processes_need_no_library(mpi: Mpi) -> None:
    """Tests that communicators with processes that may lack it are left alone."""
    # Set in the ranks, not in what they inherit: spawned ones do without.
    pose = f'LD_PRELOAD="{shim.LIBRARY}"; {POSE}'
    ended = mpi.mpirun(
        *(3, "sh", "-c", pose, "sh", sys.executable, "-c", SPAWN),
        CLOUDCOLL_SHIM_ORDER="h0,h2,h1",
        CLOUDCOLL_DEBUG="1",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("1 shadow communicators were made") == 3
