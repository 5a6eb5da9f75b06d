"""Launchers that nothing here can run: Cray's, Flux', MVAPICH 2's, PALS'."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import plan_launch
from cloudcoll.launch.cray import Pals
from cloudcoll.launch.flux import FluxRun, instance_hosts
from cloudcoll.launch.hydra import MpirunRsh
from cloudcoll.rankmap import RankMap

FOLDER = Path("/run/job")


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


def test_flux_without_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that it is said what could not be asked for the hosts."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LaunchError, match="'flux hostlist instance' failed"):
        instance_hosts()


def test_recognised() -> None:
    """Tests that what mpiexec says of itself, or the verb, tells whose it is."""
    assert Pals().recognises(["mpiexec"], lambda: "mpiexec (PALS) 1.4.0")
    assert not Pals().recognises(["mpiexec"], lambda: "HYDRA build details:")
    assert FluxRun().recognises(["/usr/bin/flux", "run"], str)
    assert not FluxRun().recognises(["flux", "submit"], str)
