"""``cloudcoll run deepspeed``: the real one, by pdsh, on the hosts of a lab."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import needs
import pytest

from cloudcoll import lab as labs
from cloudcoll.rankmap import RankMap

pytestmark = [
    pytest.mark.lab,
    needs.DEEPSPEED.mark,
    needs.PDSH.mark,
]

DEEPSPEED = str(Path(sys.executable).with_name("deepspeed"))
SCRIPT = """
import os, socket
# At once: pdsh hands on what it gets, as soon as it does.
os.write(1, f"job {os.environ['RANK']} {socket.gethostname()}\\n".encode())
"""


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Two racks, of two hosts and of one."""
    return shared_lab(far_racks((2, 1), rtt=0, slots=2, seed=5))


@pytest.mark.parametrize(
    ("options", "order", "expected"),
    [
        ((), "021", "0 0 2 2 1 1"),
        pytest.param(("--include", "{1}@{0}:0"), "10", "1 1 0", marks=pytest.mark.soak),
    ],
)
@pytest.mark.slow
def test_ranks_follow_the_map(
    cluster: labs.Lab,
    tmp_path: Path,
    options: tuple[str, ...],
    order: str,
    expected: str,
) -> None:
    """Tests where ranks of two slots a host land, all hosts and some of them."""
    names = [host.name for host in cluster.hosts]
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "hosts").write_text("".join(f"{name} slots=2\n" for name in names))
    chosen = tuple(names[int(at)] for at in order)
    slots = tuple(expected.split().count(at) for at in order)
    RankMap(chosen, slots).save(tmp_path / "map")
    given = [word.format(*names) for word in options]
    wrapped = ["cloudcoll.cli", "run", "--strict", "--free-rank0", "--map", "map"]
    line = [sys.executable, "-m", *wrapped, DEEPSPEED, "-H", "hosts", *given]
    line += ["--master_addr", names[0], "train.py"]
    command, env = labs.exec_argv(cluster, labs.HEAD, line)
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={
            **env,
            "CLOUDCOLL_HOME": str(cluster.directory.parents[1]),
            "DS_ACCELERATOR": "cpu",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    placed = dict(re.findall(r"job (\d+) (\S+)$", ended.stdout, re.MULTILINE))
    assert [placed[str(rank)] for rank in range(len(placed))] == [
        names[int(at)] for at in expected.split()
    ]
