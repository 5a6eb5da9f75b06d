"""Launchers that nothing here can run: Cray's, Flux', MVAPICH 2's, PALS'."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest, parse_launch, plan_launch
from cloudcoll.launch.cray import Pals
from cloudcoll.launch.flux import FluxRun, instance_hosts
from cloudcoll.launch.hydra import MpirunRsh
from cloudcoll.rankmap import RankMap

FOLDER = Path("/run/job")
ORDER = RankMap(tuple("acb"), (1, 1, 1))
CRAY = {"CRAY_MPICH_VERSION": "8.1.29"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "a,b,c",
    "SLURM_JOB_CPUS_PER_NODE": "4(x3)",
}
RANK_ORDER = {
    "MPICH_RANK_REORDER_METHOD": "3",
    "MPICH_RANK_REORDER_FILE": "/run/job/MPICH_RANK_ORDER",
}


def pals(line: str, env: dict[str, str] | None = None) -> LaunchRequest:
    hosts = tuple(Host(name, slots=1) for name in "abc")
    variables = {"PBS_NODEFILE": "N", **CRAY} if env is None else env
    return Pals(lambda path, _: hosts).parse(
        line.split(), variables, lambda: "PALS 1.4\n"
    )


def flux(line: str) -> LaunchRequest:
    return FluxRun(lambda: "a,b,c").parse(line.split(), {}, lambda: "")


def rsh(line: str) -> LaunchRequest:
    hosts = tuple(Host(name, slots=2) for name in "abc")
    return MpirunRsh(lambda path, _: hosts).parse(line.split(), {}, lambda: "")


def test_srun_with_cray_mpich() -> None:
    """Tests that dealt ranks, and a reordering of one's own, are left alone."""
    dealt = ["srun", "-m", "cyclic", "-n", "6", "app"]
    request = parse_launch(dealt, {**SLURM, **CRAY}, lambda: "slurm 23.11.1\n")
    with pytest.raises(LaunchError, match="only where they fill the hosts"):
        plan_launch(request, ORDER, directory=FOLDER)
    with pytest.raises(LaunchError, match="METHOD is set already"):
        parse_launch(dealt, {**SLURM, **RANK_ORDER}, lambda: "")


def test_mpirun_rsh() -> None:
    """Tests that ranks get the places of the last host file named, in our order."""
    asked: list[str] = []

    def read(path: str, form: str) -> tuple[Host, ...]:
        asked.append(path)
        return Host("a", slots=2), Host("b"), Host("c", slots=2)

    line = "mpirun_rsh -hostfile E -np 4 -hostfile F X=1 app -n 9"
    request = MpirunRsh(read).parse(line.split(), {}, lambda: "")
    assert (asked, request.source, request.counts) == (["F"], "F", (2, 1, 1))
    order = RankMap(("a", "c", "b"), (2, 1, 1))
    plan = plan_launch(request, order, directory=FOLDER)
    assert " ".join(plan.argv) == (
        "mpirun_rsh -hostfile /run/job/hosts -np 4 X=1 app -n 9"
    )
    assert plan.placement == ("a", "a", "c", "b")
    assert plan.files == {"/run/job/hosts": "a:2\nc:1\nb:1\n"}


@pytest.mark.parametrize(
    ("parse", "line", "reason"),
    [
        (pals, "mpiexec --ppn 2 app : app", "several programs"),
        (pals, "mpiexec app", "no ranks for 3 hosts"),
        (pals, "mpiexec -n 4 app", "4 ranks for 3 hosts"),
        (pals, "mpiexec -n 4 --ppn 2 app", "4 ranks are not 2 on each of 3"),
        (pals, "mpiexec --hosts a,b app", "'--hosts' is not known"),
        (rsh, "mpirun_rsh -np 2 a b app", "no host list"),
        (rsh, "mpirun_rsh -hostfile F app", "ranks is not given"),
        (rsh, "mpirun_rsh -np 7 -hostfile F app", "7 ranks for the 6 places of F"),
        (rsh, "mpirun_rsh -config F -hostfile F", "'-config' is not known"),
        (flux, "flux run -n 3 app", "add --nodes=3"),
        (flux, "flux run -N 2 -n 4 app", "add --nodes=3"),
        (flux, "flux run -N3 --taskmap=cyclic app", "is not known"),
        (flux, "flux run -N3 -n 3", "names no program"),
    ],
)
def test_refusals(parse: type, line: str, reason: str) -> None:
    """Tests that what can't be reordered is refused with its reason."""
    with pytest.raises(LaunchError) as caught:
        parse(line)
    assert reason in str(caught.value)


def test_where_they_do_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that PALS without Cray MPICH, and Flux without Flux, are refused."""
    with pytest.raises(LaunchError, match="PBS_NODEFILE or CRAY_MPICH_VERSION"):
        pals("mpiexec -n 3 app", {"PBS_NODEFILE": "N"})
    with pytest.raises(LaunchError, match="METHOD is set already"):
        pals("mpiexec -n 3 app", {"PBS_NODEFILE": "N", **CRAY, **RANK_ORDER})
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LaunchError, match="'flux hostlist instance' failed"):
        instance_hosts()


def test_recognised() -> None:
    """Tests that what mpiexec says of itself, or the verb, tells whose it is."""
    assert Pals().recognises(["mpiexec"], lambda: "mpiexec (PALS) 1.4.0")
    assert not Pals().recognises(["mpiexec"], lambda: "HYDRA build details:")
    assert FluxRun().recognises(["/usr/bin/flux", "run"], str)
    assert not FluxRun().recognises(["flux", "submit"], str)
