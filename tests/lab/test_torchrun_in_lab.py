"""``cloudcoll run torchrun``: real torchrun and Gloo on the hosts of a lab."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import ACCELERATE, TORCH

from cloudcoll import lab as labs
from cloudcoll.rankmap import RankMap

pytestmark = [
    pytest.mark.lab,
    TORCH.mark,
]

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SCRIPT = """
import os, socket
import torch.distributed as dist
dist.init_process_group("gloo")
hosts = [None] * dist.get_world_size()
dist.all_gather_object(hosts, socket.gethostname())
print("job", os.environ["MASTER_ADDR"], *hosts, flush=True)
# Without it torch may abort at the end, for a thread of its own.
dist.destroy_process_group()
"""
# Without torch, which each rank would import for seconds.
SHOW = """
import os, socket
rank, size, first = (os.environ[n] for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
print("rank", rank, "of", size, "on", socket.gethostname(), "store on", first)
"""
FAIL_ONCE = """
import os, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1)
"""


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Two racks of two hosts."""
    return shared_lab(far_racks((2, 2), seed=4))


@pytest.fixture(autouse=True)
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch, which every rank imports, start no thread for each core."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def show(tmp_path: Path) -> str:
    path = tmp_path / "show.py"
    path.write_text(SHOW)
    return str(path)


def in_order(order: list[str]) -> set[str]:
    """Return what `SHOW` prints where ranks are in this order, the store with 0."""
    return {
        f"rank {rank} of {len(order)} on {host} store on {order[0]}"
        for rank, host in enumerate(order)
    }


def save_map(folder: Path, order: list[str]) -> str:
    path = folder / "map.json"
    RankMap(tuple(order), (1,) * len(order)).save(path)
    return str(path)


def popen(lab: labs.Lab, commands: dict[str, list[str]]) -> list[subprocess.Popen[str]]:
    """Start a command on every host."""
    running = []
    for host, argv in commands.items():
        line = [sys.executable, "-m", "cloudcoll.cli", "run", *argv]
        command, env = labs.exec_argv(lab, host, line)
        running.append(
            subprocess.Popen(
                command,
                env=env,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return running


def start(lab: labs.Lab, commands: dict[str, list[str]]) -> tuple[set[str], str]:
    """Run a command on every host; return what each printed, and stderr."""
    running = popen(lab, commands)
    try:
        ended = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    errors = "".join(err for _, err in ended)
    assert [process.returncode for process in running] == [0] * len(running), errors
    return {out.strip() for out, _ in ended}, errors


@pytest.mark.slow
def test_static(cluster: labs.Lab, tmp_path: Path, script: str) -> None:
    """Tests that ranks land where the map has them, and the store with rank 0."""
    names = [host.name for host in cluster.hosts[:3]]
    order = [names[2], names[0], names[1]]
    command = ["--map", save_map(tmp_path, order), "--strict", "--free-rank0"]
    command += [TORCHRUN, "--nnodes=3", f"--master-addr={names[0]}"]
    command += ["--master-port=29511"]
    jobs, errors = start(
        cluster,
        {
            name: [*command, "--node-rank", str(rank), script]
            for rank, name in enumerate(names)
        },
    )
    assert jobs == {" ".join(["job", order[0], *order])}
    assert "cloudcoll:" not in errors


@pytest.mark.slow
def test_a_part_of_the_cluster(cluster: labs.Lab, tmp_path: Path, show: str) -> None:
    """Tests what docs/torch.md shows: the cluster's map is refused with the command."""
    names = [host.name for host in cluster.hosts]
    snapshot, whole = str(tmp_path / "a.snap"), str(tmp_path / "map.json")

    def cloudcoll(*words: str, most: int = 0) -> None:
        done = subprocess.run([sys.executable, "-m", "cloudcoll.cli", *words])
        assert done.returncode <= most

    # On a busy machine a quick probe may lack a pair, and says so with 1.
    cloudcoll("probe", "--lab", cluster.name, "--quick", "-o", snapshot, most=1)
    solve = ["solve", snapshot, "--library", "gloo", "-o"]
    cloudcoll(*solve, whole)
    command = [TORCHRUN, "--nnodes", "2", "--master-addr", names[0]]
    command += ["--master-port", "29515", "--node-rank"]
    run = [sys.executable, "-m", "cloudcoll.cli", "run", "--strict", "--map", whole]
    asked = subprocess.run([*run, *command, "0", show], capture_output=True, text=True)
    assert asked.returncode == 125
    part = str(tmp_path / "map-2.json")
    assert f"-w HOST1,...,HOST2 --library gloo -o {part}" in asked.stderr
    cloudcoll(*solve, part, "-w", ",".join(names[:2]))
    jobs, errors = start(
        cluster,
        {
            name: ["--map", part, "--strict", *command, str(rank), show]
            for rank, name in enumerate(names[:2])
        },
    )
    assert jobs == in_order(names[:2])
    assert "cloudcoll:" not in errors


@pytest.mark.slow
def test_an_order_that_did_not_take(cluster: labs.Lab, tmp_path: Path) -> None:
    """Tests that hosts whose ranks got another place are found out, each by itself."""
    wrapper = tmp_path / "torchrun"
    wrapper.write_text(
        "#!/bin/sh\n"
        'case "$1" in *=1) at=2;; *=2) at=1;; *) at=0;; esac; shift\n'
        f'exec {TORCHRUN} --node-rank=$at "$@"\n'
    )
    wrapper.chmod(0o755)
    script = tmp_path / "wait.py"
    script.write_text("import time\ntime.sleep(60)\n")
    names = [host.name for host in cluster.hosts[:3]]
    command = ["--map", save_map(tmp_path, names), "--strict", str(wrapper)]
    command += ["--nnodes=3", f"--master-addr={names[0]}", "--master-port=29513"]
    with contextlib.ExitStack() as stack:
        running = popen(cluster, {name: [*command, str(script)] for name in names})
        for process in running:
            stack.enter_context(process)
            stack.callback(process.kill)
        for place, (one, wrong) in enumerate(zip(running[1:], (2, 1), strict=True), 1):
            assert one.stderr is not None
            assert (
                f"cloudcoll: the order did not take: GROUP_RANK is {wrong} here, "
                f"planned is {place}\n"
            ) in iter(one.stderr)
            assert one.wait(timeout=120) == 125


@pytest.mark.parametrize(
    "ending", ["exit code", pytest.param("SIGTERM", marks=pytest.mark.slow)]
)
def test_nothing_is_disturbed(cluster: labs.Lab, tmp_path: Path, ending: str) -> None:
    """Tests that 10 MB of output, exit codes and signals come through as ever."""
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    os.mkfifo(gate)
    script.write_text(
        "import sys\nsys.stdout.write('0123456789abcde\\n' * 655360)\n"
        "print('up', flush=True)\n"
        f"open({str(gate)!r})\nsys.exit(3)\n"  # until somebody opens it to write
    )
    names = [host.name for host in cluster.hosts[:2]]
    command = ["--map", save_map(tmp_path, names), "--strict", TORCHRUN]
    command += ["--nnodes=2", f"--master-addr={names[0]}", "--master-port=29514"]
    with contextlib.ExitStack() as stack:
        running = popen(cluster, {name: [*command, str(script)] for name in names})
        for process in running:
            stack.enter_context(process)
            stack.callback(process.kill)
        for process in running:
            assert process.stdout is not None
            assert process.stderr is not None
            lines = list(itertools.takewhile("up\n".__ne__, process.stdout))
            assert len(lines) == 655360, process.stderr.read()
            assert set(lines) == {"0123456789abcde\n"}
        if ending == "SIGTERM":
            for process in running:
                process.send_signal(signal.SIGTERM)
        else:
            stack.enter_context(gate.open("w"))
        for process in running:
            assert process.stderr is not None
            said = process.stderr.read()
            assert process.wait(timeout=120) == 1
            assert ("got signal: 15" in said) == (ending == "SIGTERM")
            assert "cloudcoll:" not in said


@pytest.mark.slow
def test_elastic(cluster: labs.Lab, tmp_path: Path) -> None:
    """Tests that c10d's sorted hosts get the map's order, after a restart too."""
    script = tmp_path / "train.py"
    script.write_text(FAIL_ONCE + SHOW)
    names = [host.name for host in cluster.hosts[:3]]
    order = sorted(names, reverse=True)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3"]
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={names[2]}:29411"]
    waiting = ["--rdzv-conf", "last_call_timeout=40", "--max-restarts=1"]
    command = ["--map", save_map(tmp_path, order), "--strict", *launch, *rendezvous]
    jobs, errors = start(
        cluster, {name: [*command, *waiting, str(script)] for name in names}
    )
    assert jobs == in_order(order)
    assert "cloudcoll:" not in errors


@ACCELERATE.mark
def test_accelerate(cluster: labs.Lab, tmp_path: Path, show: str) -> None:
    """Tests that Accelerate's machines get the map's ranks, rank 0 its store."""
    names = [host.name for host in cluster.hosts[:2]]
    order = [*reversed(names)]
    command = ["--map", save_map(tmp_path, order), "--strict", "--free-rank0"]
    command += [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    command += ["--num_machines=2", "--num_processes=2", "--main_process_port=29512"]
    command += ["--mixed_precision=no", "--dynamo_backend=no"]
    command += [f"--main_process_ip={names[0]}"]
    jobs, errors = start(
        cluster,
        {
            name: [*command, "--machine_rank", str(rank), show]
            for rank, name in enumerate(names)
        },
    )
    assert jobs == in_order(order)
    assert "cloudcoll:" not in errors
