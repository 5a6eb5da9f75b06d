"""``srun``'s command lines, word by word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import CloudcollError
from cloudcoll.launch import LaunchPlan, LaunchRequest, parse_launch, plan_launch
from cloudcoll.launch.hosts import per_node
from cloudcoll.launch.slurm import SYNTAX
from cloudcoll.rankmap import RankMap

FOLDER = Path("/run/job")
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "a,b,c",
    "SLURM_JOB_CPUS_PER_NODE": "4(x3)",
}
VERSION = "slurm 24.05.1\n"


def request_for(
    line: str, env: Mapping[str, str] | None = None, version: str = VERSION
) -> LaunchRequest:
    return parse_launch(line.split(), {**JOB, **(env or {})}, lambda: version)


def plan_for(line: str, **options: object) -> LaunchPlan:
    request = request_for(f"srun {line}", **options)  # type: ignore[arg-type]
    return plan_launch(request, RankMap(tuple("acb"), (1, 1, 1)), directory=FOLDER)


@pytest.mark.parametrize(
    ("line", "env", "ranks", "expected"),
    [
        ("app", {}, "acb", "app"),
        ("-n 6 app", {}, "aaccbb", "-n 6 app"),
        ("-n5 app", {}, "aacbb", "-n5 app"),
        ("--ntasks=5 -N3 app", {}, "aacbb", "--ntasks=5 -N3 app"),
        ("--ntasks-per-node=2 app", {}, "aaccbb", "app"),
        ("-m cyclic -n 6 app", {}, "acbacb", "-n 6 app"),
        ("-n 6 -mblock:cyclic app", {}, "aaccbb", "-n 6 app"),
        ("app", {"SLURM_NTASKS": "6"}, "aaccbb", "app"),
        ("-n 3 app", {"SLURM_NTASKS": "6"}, "acb", "-n 3 app"),
        ("-c 2 -n 6 app", {}, "aaccbb", "-c 2 -n 6 app"),
        (
            "-c 2 -n 5 app",
            {"SLURM_JOB_CPUS_PER_NODE": "8,2(x2)"},
            "aaacb",
            "-c 2 -n 5 app",
        ),
        ("app", {"SLURM_NTASKS": "6", "SLURM_DISTRIBUTION": "cyclic"}, "acbacb", "app"),
        (
            "-n 7 app",
            {"SLURM_JOB_CPUS_PER_NODE": "1,4(x2)"},
            "acccbbb",
            "-n 7 app",
        ),
    ],
)
def test_command_line(
    line: str, env: dict[str, str], ranks: str, expected: str
) -> None:
    """Tests that each layout gives the exact command line and file."""
    plan = plan_for(line, env=env)
    tasks = f"--distribution=arbitrary --ntasks={len(ranks)}"
    assert " ".join(plan.argv) == f"srun {tasks} {expected}"
    assert plan.files == {"/run/job/hosts": "".join(f"{host}\n" for host in ranks)}
    assert plan.env == {"SLURM_HOSTFILE": "/run/job/hosts"}
    assert plan.caution == ""


@pytest.mark.parametrize(
    ("version", "line", "warned"),
    [
        ("slurm 22.05.8\n", "-n 6 app", True),
        ("slurm 22.05.8\n", "-n 6 --mpi=pmi2 app", True),
        ("slurm 22.05.8\n", "-n 6 --mpi=pmix app", False),
        ("slurm 22.05.8\n", "-n 6 --mpi=pmi2 --mpi=pmix app", False),
        ("slurm 22.05.8\n", "-n 6 --mpi=pmix --mpi=pmi2 app", True),
        ("slurm 24.04.9\n", "-n 6 app", True),
        ("slurm 23.11.1\n", "-n 6 app", True),
        ("slurm 22.05.8\n", "-n 3 app", False),
        ("slurm 24.05.0\n", "-n 6 app", False),
    ],
)
def test_older_slurm_misleads_pmi2(version: str, line: str, warned: bool) -> None:
    """Tests that a version that hides shared nodes from PMI2 is warned of."""
    assert ("--mpi=pmix" in plan_for(line, version=version).caution) == warned


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 4)), min_size=1))
def test_per_node(groups: list[tuple[int, int]]) -> None:
    """Tests that Slurm's way to write equal numbers once is undone."""
    text = ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in groups)
    assert per_node(text) == [n for n, times in groups for _ in range(times)]


@given(st.lists(st.sampled_from(sorted(SYNTAX.flags | SYNTAX.valued)), max_size=4))
def test_any_known_options(names: list[str]) -> None:
    """Tests that known options are refused or planned around."""
    words = [f"--{name}{' 3' * (name in SYNTAX.valued)}" for name in names]
    try:
        request = request_for(f"srun {' '.join(words)} app")
    except CloudcollError:
        return
    assert request.argv[request.start] == "app"
