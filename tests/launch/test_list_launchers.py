"""Exact command lines of DeepSpeed's and Horovod's launchers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import parse_hosts
from cloudcoll.launch import LaunchPlan, plan_launch
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.horovod import Horovod
from cloudcoll.launch.hydra import MpirunRsh
from cloudcoll.launch.plan import Launcher
from cloudcoll.rankmap import RankMap

HOSTS = parse_hosts("a slots=2\nb slots=4\nc slots=2\nd slots=2\n", "F", "hostfile")
DEEPSPEED = DeepSpeed(lambda path, _: HOSTS)
HOROVOD = Horovod(lambda path, _: HOSTS)
MVAPICH = MpirunRsh(lambda path, _: HOSTS)
FOLDER = Path("/run/job")


def plan(launcher: Launcher, words: str, order: str, **options: bool) -> LaunchPlan:
    request = launcher.parse(words.split(), {}, lambda: "")
    counts = dict(zip((h.name for h in request.hosts), request.counts, strict=True))
    rank_map = RankMap(tuple(order), tuple(counts[name] for name in order))
    made = plan_launch(request, rank_map, directory=FOLDER, **options)
    assert made.placement == tuple(n for n in order for _ in range(counts[n]))
    return made


FILE = "--hostfile=/run/job/hostfile"


@pytest.mark.parametrize(
    ("given", "order", "expected", "listed"),
    [
        ("deepspeed a.py", "adcb", f"deepspeed {FILE} a.py", "a2 d2 c2 b4"),
        (
            "deepspeed --hostfile=F --include b@d:0@a:1 --master_addr a "
            "--launcher_args x --no_python --save_pid ./app -x",
            "adb",
            f"deepspeed {FILE} --include b@d:0@a:1 --master_addr a "
            "--launcher_args x --no_python --save_pid ./app -x",
            "a2 d2 b4 c2",
        ),
        (
            "deepspeed -H F -e b@a:1 a.py",
            "adc",
            f"deepspeed {FILE} -e b@a:1 a.py",
            "a2 d2 c2 b4",
        ),
    ],
)
def test_deepspeed(given: str, order: str, expected: str, listed: str) -> None:
    """Tests that the hostfile has the map's order, and the hosts without ranks."""
    made = plan(DEEPSPEED, given, order)
    assert " ".join(made.argv) == expected
    text = "".join(f"{word[0]} slots={word[1]}\n" for word in listed.split())
    assert made.files == {"/run/job/hostfile": text}


def test_deepspeed_moves_its_store() -> None:
    """Tests that the address of the store follows rank 0."""
    made = plan(DEEPSPEED, "deepspeed --master_addr a x.py", "dacb", free_rank0=True)
    assert made.argv == ("deepspeed", FILE, "--master_addr=d", "x.py")


@pytest.mark.parametrize(
    ("launcher", "words", "counts"),
    [
        (DEEPSPEED, "deepspeed a.py", (2, 4, 2, 2)),
        (DEEPSPEED, "deepspeed --exclude b a.py", (2, 0, 2, 2)),
        (DEEPSPEED, "deepspeed -e b:0,3@d a.py", (2, 2, 2, 0)),
        (DEEPSPEED, "deepspeed --include b:1@c a.py", (0, 1, 2, 0)),
        (DEEPSPEED, "deepspeed --num_nodes 1 a.py", (2, 0, 0, 0)),
        (DEEPSPEED, "deepspeed --num_nodes 2 a.py", (2, 4, 0, 0)),
        (DEEPSPEED, "deepspeed --num_gpus 1 a.py", (1, 1, 1, 1)),
        (DEEPSPEED, "deepspeed --num_gpus 3 a.py", (2, 3, 2, 2)),
        (DEEPSPEED, "deepspeed --num_nodes -1 --num_gpus=-1 a.py", (2, 4, 2, 2)),
        (HOROVOD, "horovodrun -np 1 -H a:2,b x", (1, 0)),
        (HOROVOD, "horovodrun -np 3 -H a:2,b x", (2, 1)),
        (HOROVOD, "horovodrun -np 10 --hostfile F x", (2, 4, 2, 2)),
        (MVAPICH, "mpirun_rsh -np 7 -hostfile F x", (2, 4, 1, 0)),
        (MVAPICH, "mpirun_rsh -np 10 -hostfile F x", (2, 4, 2, 2)),
    ],
)
def test_ranks_of_each_host(
    launcher: Launcher, words: str, counts: tuple[int, ...]
) -> None:
    """Tests hosts of two, four, two and two slots, and options that use fewer."""
    assert launcher.parse(words.split(), {}, lambda: "").counts == counts


@pytest.mark.parametrize("launcher", [DeepSpeed(), Horovod()])
def test_a_pipe_is_left_to_the_launcher(launcher: Launcher, tmp_path: Path) -> None:
    """Tests that a list that can be read once alone is not read here."""
    os.mkfifo(tmp_path / "hosts")
    words = [launcher.title, f"--hostfile={tmp_path}/hosts", "a.py"]
    with pytest.raises(LaunchError, match="not a regular file"):
        launcher.parse(words, {}, lambda: "")
