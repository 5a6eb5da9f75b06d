"""MPICH's, MVAPICH's and Intel MPI's command lines, word by word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest, parse_launch, plan_launch
from cloudcoll.launch.command_line import read_parts
from cloudcoll.launch.hydra import SYNTAX, Hydra, IntelMpi
from cloudcoll.launch.wrapper import choose_inbox
from cloudcoll.rankmap import RankMap

FOLDER = Path("/run/job")
FILE = "/run/job/hosts"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626\n"
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "a,b,c",
    "SLURM_TASKS_PER_NODE": "2(x3)",
}


def mpich(version: str) -> str:
    return f"HYDRA build details:\n    Version:                 {version}\n"


def request_for(
    line: str,
    env: Mapping[str, str] | None = None,
    version: str = mpich("4.3.2"),
    slots: int | None = 2,
) -> LaunchRequest:
    """Parse a command line whose host file has a, b, c."""
    hosts = tuple(Host(name, slots=slots) for name in "abc")
    kind = IntelMpi if version == INTEL else Hydra
    return kind(lambda path, _: hosts).parse(line.split(), env or {}, lambda: version)


def plan_for(line: str, **options: object) -> LaunchPlan:
    request = request_for(f"mpiexec {line}", **options)  # type: ignore[arg-type]
    return plan_launch(request, RankMap(tuple("acb"), (1, 1, 1)), directory=FOLDER)


@pytest.mark.parametrize(
    ("line", "expected", "text"),
    [
        ("-f F app", "app", "a:2;c:2;b:2"),
        ("-hosts a,b,c app", "app", "a:1;c:1;b:1"),
        ("-hosts a:2,b:1,c:3 app", "app", "a:2;c:3;b:1"),
        ("-f F -ppn 1 -n 3 app", "-n 3 app", "a:1;c:1;b:1"),
        ("-n 5 -f F app", "-n 5 app", "a:2;c:1;b:2"),
        ("-hostfile F -np 6 ./app -f x", "-np 6 ./app -f x", "a:2;c:2;b:2"),
        ("-f F -n 2 a : -n 4 -env A 1 b", "-n 2 a : -n 4 -env A 1 b", "a:2;c:2;b:2"),
        ("-f F -bind-to core -- app", "-bind-to core -- app", "a:2;c:2;b:2"),
    ],
)
def test_command_line(line: str, expected: str, text: str) -> None:
    """Tests that MPICH gets the exact command line and machine file."""
    plan = plan_for(line)
    assert " ".join(plan.argv) == f"mpiexec -f {FILE} {expected}"
    assert plan.files == {FILE: "".join(f"{x}\n" for x in text.split(";"))}


@pytest.mark.parametrize(
    ("line", "env", "text"),
    [
        ("-machinefile F app", {}, "a:2;c:2;b:2"),
        ("-machinefile F -ppn 1 app", {}, "a:2;c:2;b:2"),
        ("-f F -ppn 1 app", {}, "a:1;c:1;b:1"),
        ("-hosts a,b,c -perhost 3 app", {}, "a:3;c:3;b:3"),
        ("-f F app", {"I_MPI_PERHOST": "4"}, "a:4;c:4;b:4"),
        ("app", {"I_MPI_HYDRA_HOST_FILE": "F", "I_MPI_PERHOST": "1"}, "a:1;c:1;b:1"),
    ],
)
def test_intel(line: str, env: dict[str, str], text: str) -> None:
    """Tests that Intel MPI gets a machine file, whose counts it obeys."""
    plan = plan_for(line, env=env, version=INTEL)
    assert " ".join(plan.argv) == f"mpiexec -machinefile {FILE} app"
    assert plan.files == {FILE: "".join(f"{x}\n" for x in text.split(";"))}


def test_slurm_allocation() -> None:
    """Tests what makes an order survive Slurm's sorting: ssh, or a rank map."""
    plan = plan_for("-n 5 app", env=SLURM)
    assert " ".join(plan.argv) == f"mpiexec -f {FILE} -launcher ssh -n 5 app"
    assert "by ssh" in plan.caution
    plan = plan_for("-launcher slurm -f F app", env=SLURM)
    assert " ".join(plan.argv) == f"mpiexec -f {FILE} -launcher ssh app"
    plan = plan_for("-n 5 app", env=SLURM, version=mpich("5.0.2"))
    assert " ".join(plan.argv) == "mpiexec -rankmap 0,0,2,1,1 -n 5 app"
    assert (plan.files, plan.caution) == ({}, "")
    for line, env in (("-launcher ssh", {}), ("", {"HYDRA_LAUNCHER": "ssh"})):
        plan = plan_for(f"{line} -f F app", env={**SLURM, **env})
        assert " ".join(plan.argv) == " ".join(
            ["mpiexec", "-f", FILE, *line.split(), "app"]
        )
    plan = plan_for("-ppn 2 app", env=SLURM, version=INTEL)
    assert " ".join(plan.argv) == f"mpiexec -machinefile {FILE} -launcher ssh app"


def test_slurm_sorts_a_list_of_ones_own() -> None:
    """Tests that the order in force without us is Slurm's, not the list's."""
    assert request_for("mpiexec -hosts c,a,b app", env=SLURM).used == tuple("abc")
    assert request_for("mpiexec -hosts c,a,b app").used == tuple("cab")


@pytest.mark.parametrize(
    ("version", "kind", "library"),
    [
        (mpich("4.0.2"), Hydra, "mpich@4.0.2"),
        (mpich("3.0") + "    Configure options: --with-mvapich\n", Hydra, ""),
        (INTEL, IntelMpi, ""),
    ],
)
def test_recognised_by_version(
    version: str, kind: type, library: str, tmp_path: Path
) -> None:
    """Tests that what mpiexec says of itself tells whose it is."""
    hosts = tmp_path / "hosts"
    hosts.write_text("a:1\nb:1\n")
    argv = ["/usr/bin/mpiexec", "-machinefile", str(hosts), "app"]
    request = parse_launch(argv, {}, lambda: version)
    assert type(request.launcher) is kind
    assert (request.library, request.used) == (library, ("a", "b"))
    argv[2] = "/dev/null"
    with pytest.raises(LaunchError, match="not a regular file"):
        parse_launch(argv, {}, lambda: version)


@pytest.mark.parametrize(
    ("typed", "handed"),
    [
        ("x", "x"),
        ("-genvall x -envnone", "-genvall x -envnone"),
        ("-genvnone x", "-genvlist=OMPI_KEY x"),
        ("-envnone x", "-envlist=OMPI_KEY x"),
        ("-genvlist A,B x", "-genvlist A,B,OMPI_KEY x"),
        ("-envlist=A x", "-envlist=A,OMPI_KEY x"),
        (
            "-genv A 1 -n 1 -envnone x : -n 2 -envlist C y",
            "-genv A 1 -n 1 -envlist=OMPI_KEY x : -n 2 -envlist C,OMPI_KEY y",
        ),
    ],
)
def test_variables_that_are_withheld(typed: str, handed: str) -> None:
    """Tests that ranks of all programs get the secret's, and no others but before."""
    request = request_for(f"mpiexec -hosts a,b,c {typed}")
    inbox = choose_inbox(request, "KEY")
    assert request.handing_on(None) is request
    assert request.handing_on(inbox).argv[3:] == tuple(handed.split())


def test_settings() -> None:
    """Tests that MPICH's variables are found, the command line's over others."""
    env = {"MPIR_CVAR_A": "1", "MPIR_CVAR_B": "2", "OTHER": "3"}
    request = request_for("mpiexec -genv MPIR_CVAR_B 4 -f F app", env=env)
    assert request.settings == {"MPIR_CVAR_A": "1", "MPIR_CVAR_B": "4"}
    line = "mpiexec -genv I_MPI_ADJUST_BCAST 3 -machinefile F app"
    assert request_for(line, env=env).settings == {
        "MPIR_CVAR_A": "1",
        "MPIR_CVAR_B": "2",
    }
    assert request_for(line, version=INTEL).settings == {"I_MPI_ADJUST_BCAST": "3"}


@given(st.lists(st.sampled_from([*sorted(SYNTAX.flags | SYNTAX.valued), ":", "app"])))
def test_any_known_options(names: list[str]) -> None:
    """Tests that known options are refused or planned around."""
    words = [
        word
        for name in names
        for word in ([name] if name in {":", "app"} else [f"-{name}", "1"])
        if word != "1" or name in SYNTAX.valued
    ]
    try:
        request = request_for(f"mpiexec -hosts a,b {' '.join(words)} app")
    except CloudcollError:
        return
    assert all(part.program < part.end for part in read_parts(request.argv, SYNTAX))
