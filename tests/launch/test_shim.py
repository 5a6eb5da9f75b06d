from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest, shim
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.seal import new_secret
from cloudcoll.launch.wrapper import Inbox
from cloudcoll.rankmap import CallOrder, RankMap

DEADLINE_S = 240


def request(launcher: OpenMpi | DeepSpeed) -> LaunchRequest:
    return LaunchRequest(
        launcher=launcher,
        argv=("mpirun", "--hostfile", "F", "app", "-n"),
        start=3,
        hosts=(Host("a", "10.0.0.1"), Host("b"), Host("c")),
        source="F",
        counts=(1, 1, 1),
    )


@pytest.mark.parametrize(
    ("library", "kind", "file"),
    [
        ("nccl", "NCCL", shim.NCCL),
        ("nccl@2.27", "NCCL", shim.NCCL),
        ("", "MPI", shim.LIBRARY),
        ("open-mpi@5.0.11", "MPI", shim.LIBRARY),
    ],
)
def test_each_library_has_its_shim(library: str, kind: str, file: Path) -> None:
    """Tests that whose collectives a job runs tells what is preloaded."""
    assert shim.shim_of(library) == (kind, file)


INBOX = Inbox(
    ("10.0.0.9", "192.168.0.9"), 4711, new_secret(), variable="OMPI_CLOUDCOLL_SHIM_KEY"
)
CALLS = "CLOUDCOLL_SHIM_ROLL=OMPI_CLOUDCOLL_SHIM_KEY 4711 10.0.0.9 192.168.0.9"


def test_the_command_line_stays() -> None:
    """Tests that only the program is wrapped, with the order and addresses."""
    plan = shim.plan_shim(request(OpenMpi()), RankMap(tuple("cab"), (1, 1, 1)), INBOX)
    assert plan.argv[:5] == ("mpirun", "--hostfile", "F", "/bin/sh", "-c")
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
    words = ("horovodrun", "--gloo", "-np", "2", "-H", "a:1,b:1", "app")
    with pytest.raises(LaunchError, match="starts no program"):
        shim.plan_profile(words, {}, Path("/p"), INBOX)


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


def test_a_profile_that_is_no_file() -> None:
    """Tests that a device is never a profile: that would take its place."""
    with pytest.raises(LaunchError, match="/dev/null is no file"):
        shim.plan_profile(("site-run", "app"), {}, Path("/dev/null"), INBOX)


@pytest.mark.parametrize("argv", [("site-run", "app"), ("mpirun", "--host", "a", "x")])
def test_calls_are_counted_as_typed(argv: tuple[str, ...], tmp_path: Path) -> None:
    """Tests that a profile leaves the order, whether the command is read or not."""
    path = tmp_path / "p.json"
    plan = shim.plan_profile(argv, {}, path, INBOX)
    settings = {f"CLOUDCOLL_PROFILE={path}", "CLOUDCOLL_SHIM_ORDER=-", CALLS}
    variables = {f"{name}={value}" for name, value in plan.env.items()}
    assert settings <= variables | set(plan.argv)
    assert plan.roll == INBOX
