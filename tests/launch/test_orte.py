"""Open MPI 4.1's command lines, word by word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest, plan_launch
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.rankmap import RankMap

FOLDER = Path("/run/job")
HOSTS = tuple(Host(name, slots=2) for name in "abc")
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "a,b,c",
    "SLURM_TASKS_PER_NODE": "2(x3)",
}


def request_for(
    line: str, own: str = "head", env: Mapping[str, str] | None = None
) -> LaunchRequest:
    """Parse a command line on the machine `own`; its hostfile has a, b, c."""
    launcher = OpenMpi4(lambda path, _: HOSTS, lambda: own)
    version = "mpirun (Open MPI) 4.1.8\n"
    return launcher.parse(line.split(), env or {}, lambda: version)


def plan_for(line: str, order: str = "acb", **options: object) -> LaunchPlan:
    request = request_for(f"mpirun {line}", **options)  # type: ignore[arg-type]
    rank_map = RankMap(tuple(order), tuple(1 for _ in order))
    return plan_launch(request, rank_map, directory=FOLDER)


SEQ = "--hostfile /run/job/hosts --mca rmaps seq --bind-to none"  # after -np N
CORES = "--rankfile /run/job/hosts"
LIST = "--hostfile /run/job/hosts"


@pytest.mark.parametrize(
    ("line", "expected", "ranks", "text"),
    [
        ("--hostfile F app", f"{LIST} app", "aaccbb", "a slots=2;c slots=2;b slots=2"),
        ("-H a,b,c app", f"{LIST} app", "acb", "a slots=1;c slots=1;b slots=1"),
        (
            "--hostfile F -np 5 --map-by socket app",
            f"-np 5 --map-by socket {LIST} app",
            "aacbb",
            "a slots=2;c slots=1;b slots=2",
        ),
        (
            "--hostfile F --bynode app",
            f"--bynode {LIST} app",
            "acbacb",
            "a slots=2;c slots=2;b slots=2",
        ),
        (
            "--hostfile F --bind-to none app",
            f"-np 6 {SEQ} app",
            "aaccbb",
            "a;a;c;c;b;b",
        ),
        (
            "-n 5 --hostfile F --bind-to none app",
            f"-np 5 {SEQ} app",
            "aacbb",
            "a;a;c;b;b",
        ),
        ("--hostfile F --bind-to none -N 1 app", f"-np 3 {SEQ} app", "acb", "a;c;b"),
        (
            "--hostfile F --bind-to core -N 1 app",
            f"{CORES} app",
            "acb",
            "rank 0=a slot=0;rank 1=c slot=0;rank 2=b slot=0",
        ),
        (
            "-n 4 --hostfile F --map-by node --bind-to core app",
            f"-n 4 {CORES} app",
            "acba",
            "rank 0=a slot=0;rank 1=c slot=0;rank 2=b slot=0;rank 3=a slot=1",
        ),
        # On several sockets the cores are dealt: only mpirun knows them.
        (
            "--hostfile F --bind-to core app",
            f"--bind-to core {LIST} app",
            "aaccbb",
            "a slots=2;c slots=2;b slots=2",
        ),
    ],
)
def test_command_line(line: str, expected: str, ranks: str, text: str) -> None:
    """Tests that each way gives the exact command line and file."""
    plan = plan_for(line)
    assert " ".join(plan.argv) == f"mpirun {expected}"
    assert "".join(plan.placement) == ranks
    assert plan.files == {"/run/job/hosts": "".join(f"{x}\n" for x in text.split(";"))}


def test_whether_ranks_can_be_placed_is_not_asked() -> None:
    """Tests that no second launch tells if the first began: 4.1 says 0 to it always."""
    assert plan_for("--hostfile F --bind-to none app").maps_only == ()


def test_ranks_that_the_environment_leaves_unbound() -> None:
    """Tests that a setting which binds no rank is kept where no option is given."""
    env = {"OMPI_MCA_hwloc_base_binding_policy": "none"}
    plan = plan_for("--hostfile F app", env=env)
    assert " ".join(plan.argv) == f"mpirun -np 6 {SEQ} app"
    plan = plan_for("--hostfile F --bind-to socket app", env=env)
    assert " ".join(plan.argv) == f"mpirun --bind-to socket {LIST} app"
    with pytest.raises(LaunchError, match="hwloc_base_binding_policy decides"):
        plan_for("--hostfile F app", env=dict.fromkeys(env, "core"))


def test_launching_machine_comes_first() -> None:
    """Tests that mpirun's own machine has rank 0, wherever it is listed."""
    request = request_for("mpirun --hostfile F app", own="b.example.org")
    assert request.used == ("b", "a", "c")
    plan = plan_for("--hostfile F app", "bca", own="b")
    assert plan.files["/run/job/hosts"].startswith("b slots=2\nc slots=2\n")
    moved = RankMap(tuple("cba"), (1, 1, 1))
    with pytest.raises(LaunchError, match="first rank on b, where mpirun runs"):
        plan_launch(request, moved, directory=FOLDER, free_rank0=True)
    request = request_for("mpirun --hostfile F --bind-to none app", own="b")
    plan = plan_launch(request, moved, directory=FOLDER, free_rank0=True)
    assert plan.placement == tuple("ccbbaa")


def test_slurm_allocation() -> None:
    """Tests that Slurm's order is only changed where a contract allows it."""
    plan = plan_for("--bind-to none app", env=SLURM)
    assert " ".join(plan.argv) == f"mpirun -np 6 {SEQ} app"
    plan = plan_for("--map-by slot --bind-to core app", env=SLURM)
    assert " ".join(plan.argv) == f"mpirun {CORES} app"
    for line, reason in (
        ("app", "only with --bind-to none"),
        ("--hostfile F --bind-to none app", "a host list inside a Slurm"),
    ):
        with pytest.raises(LaunchError, match=reason):
            plan_for(line, env=SLURM)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("app", "no host list"),
        ("--hostfile F", "names no program"),
        ("--hostfile F --", "names no program"),
        ("--hostfile F -n 1 a : b", "has no -n"),
        ("--hostfile F -n 1 a : -n 1 -H b b", "after a ':'"),
        ("--hostfile F --map-by node -n 1 a : -n 1 b", "several programs"),
        ("--hostfile F --map-by socket -n 1 a : -n 1 b", "several programs"),
        ("--hostfile F --rankfile R app", "--rankfile decides"),
        ("--hostfile F -rf R app", "--rankfile decides"),
        ("--hostfile F --nolocal app", "--nolocal decides"),
        ("--hostfile F --map-by slot:PE=2 app", "--map-by slot:PE=2"),
        ("--hostfile F -n 7 app", "7 ranks for the 6 slots"),
        ("--hostfile F --mca rmaps seq app", "parameter rmaps"),
        ("--hostfile F --prtemca a b app", "'--prtemca' is not known"),
    ],
)
def test_refusals(line: str, reason: str) -> None:
    """Tests that what can't be reordered is refused with its reason."""
    with pytest.raises(LaunchError) as caught:
        request_for(f"mpirun {line}")
    assert reason in str(caught.value)
