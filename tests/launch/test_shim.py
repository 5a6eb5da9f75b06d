from __future__ import annotations

import os
import random
import shutil
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
from cloudcoll.profile import load_profile
from cloudcoll.rankmap import RankMap

CHECKS = Path(__file__).with_name("shim_checks.py")
MPIRUN = shutil.which("mpirun")
OPTIONS = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
DEADLINE_S = 240

# Ranks pose as hosts; R is the rank that the launcher gives.
POSE = (
    'R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ "$R" != "$ODD" ] || eval "$CHANGE"; '
    'export CLOUDCOLL_HOST="${NAMED:-h$R}" LD_PRELOAD; exec "$@"'
)

needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="no mpirun")


def run(ranks: int, program: list[str], **env: str) -> tuple[int, str, str]:
    """Start ranks under the shim; `CHANGE` is shell for rank `ODD` alone."""
    assert MPIRUN
    ended = subprocess.run(
        [MPIRUN, *OPTIONS, "-n", str(ranks), "sh", "-c", POSE, "sh", *program],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("CLOUDCOLL")},
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "LD_PRELOAD": str(shim.LIBRARY),
            **env,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return ended.returncode, ended.stdout, ended.stderr


def shuffled(ranks: int, seed: int) -> str:
    names = [f"h{rank}" for rank in range(ranks)]
    random.Random(seed).shuffle(names)
    return ",".join(names)


CASES = [(mpi, n) for mpi in MPIS for n in ([1, 3, 4] if mpi is MPIS[0] else [3])]


@pytest.mark.parametrize(("mpi", "ranks"), CASES)
def test_checks_in_random_orders(mpi: Mpi, ranks: int, tmp_path: Path) -> None:
    """Tests that every promise of MPI holds in any order, while it is counted."""
    ended = mpi.mpirun(
        *(ranks, "sh", "-c", POSE, "sh", sys.executable, str(CHECKS)),
        CLOUDCOLL_SHIM_ORDER=shuffled(ranks, seed=ranks),
        CLOUDCOLL_PROFILE=str(tmp_path / "profile.json"),
        CLOUDCOLL_DEBUG="1",
        LD_PRELOAD=str(shim.LIBRARY),
    )
    assert ended.stdout.endswith(" checks, 0 failed\n"), ended.stdout + ended.stderr
    assert ended.returncode == 0
    # That there were shadows at all is not seen in any result.
    assert ("shadow communicators were made" in ended.stderr) == (ranks > 1)
    assert load_profile(tmp_path / "profile.json").ranks == ranks


WORLD = """
import sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
assert total == sum(range(MPI.COMM_WORLD.size))
"""

DISAGREE = "only 2 of 3 ranks have the order"


@needs_mpi
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"CHANGE": "unset CLOUDCOLL_SHIM_ORDER"}, DISAGREE),
        ({"CHANGE": "CLOUDCOLL_SHIM_ORDER=h0,h1,h2"}, DISAGREE),
        ({"CHANGE": "export CLOUDCOLL_EXACT=1"}, DISAGREE),
        ({"CHANGE": "NAMED=elsewhere"}, DISAGREE),
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
    show = ["sh", "-c", "echo $LD_PRELOAD $A"]
    ended = subprocess.run(
        ["sh", "-c", shim.BECOME, str(library), "A=b c", "--", *show],
        env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(shim.LIBRARY)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert ended.stdout == f"{preloaded.format(shim.LIBRARY)} b c\n"
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
