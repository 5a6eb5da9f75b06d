"""``cloudcoll probe --via mpi``: real Open MPI on the hosts of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloudcoll import lab as labs
from cloudcoll.errors import UnusableError
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.probe import Conduct, plan_probes
from cloudcoll.probe.job import Mpi

# Ranks wait for each other: on a busy machine, too, each pair has a result.
pytestmark = pytest.mark.lab

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
MBIT_400 = 50e6

Run = Callable[..., subprocess.CompletedProcess[str]]
Progress = Callable[[int, int], None]


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Racks of three and of two hosts; the second rank of each host rests."""
    return shared_lab(far_racks((3, 2), rtt=4e-3, slots=2, seed=3))


@pytest.mark.alone
@pytest.mark.slow
def test_the_racks_are_found(cluster: labs.Lab, inside: Run, tmp_path: Path) -> None:
    """Tests that a probe through mpirun sees the racks and keeps a snapshot."""
    output = tmp_path / "a.snap"
    hostfile = str(cluster.directory / "hosts")
    command = ("probe", "--via", "mpi", "--json", "-o", str(output))
    done = inside(
        *(cluster, labs.HEAD, *CLOUDCOLL, *command),
        *("--", MPIRUN, "--hostfile", hostfile),
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    groups = {frozenset(group) for group in summary["levels"][0]["groups"]}
    assert groups == {frozenset(group) for group in cluster.groups}
    assert summary["metadata"]["transport"] == "mpi"
    assert (summary["metadata"]["ranks"], summary["failed"]) == (10, {})
    snapshot = load_snapshot(output)
    check_measurements(cluster, snapshot)
    assert [path.name for path in tmp_path.iterdir()] == ["a.snap"]


def check_measurements(cluster: labs.Lab, snapshot: NetworkSnapshot) -> None:
    """Check every pair's RTT, and rates that no card exceeds."""
    racks = {name: i for i, group in enumerate(cluster.groups) for name in group}
    rack = np.array([racks[host.name] for host in cluster.hosts])
    pairs = snapshot.rtt
    apart = rack[pairs.src] != rack[pairs.dst]
    assert np.isfinite(snapshot.latency.values).sum() == len(rack) * (len(rack) - 1)
    # The fastest of each pair: the machine has other things to do.
    least = np.minimum.reduceat(pairs.seconds, [0, *pairs.ends[:-1]])
    assert least[apart].min() > 3.6e-3 > least[~apart].max()
    rate = snapshot.bandwidth.values
    assert np.isfinite(rate).sum() == len(snapshot.flows.src)
    assert np.nanmax(rate) < 1.2 * MBIT_400


def probe(
    cluster: labs.Lab, spool: Path, *, resume: bool = False, progress: Progress
) -> NetworkSnapshot:
    hostfile = str(cluster.directory / "hosts")
    command, env = labs.exec_argv(
        cluster, labs.HEAD, [MPIRUN, "--hostfile", hostfile, "--map-by", "node"]
    )
    plan = plan_probes(cluster.hosts, concurrency=1, duplex=False)
    conduct = Conduct(spool=spool, resume=resume, env=env, progress=progress)
    return Mpi(command).measure(cluster.hosts, plan, conduct)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("what", ["host", pytest.param("rank", marks=pytest.mark.soak)])
def test_what_died_is_resumed(
    cluster: labs.Lab,
    kill_a_rank: Callable[[labs.Lab, int], None],
    tmp_path: Path,
    what: str,
) -> None:
    """Tests that after a death only the pairs that are missing are measured."""
    spool = tmp_path / "a.snap.partial"

    def progress(done: int, planned: int) -> None:
        if done == 4 and what == "host":
            labs.kill(cluster, cluster.hosts[3].name)
        elif done == 4:
            kill_a_rank(cluster, 3)

    with pytest.raises(UnusableError, match=r"of \d+ measurements .* --resume"):
        probe(cluster, spool, progress=progress)
    before = [json.loads(line) for line in spool.read_bytes().splitlines()[1:]]
    labs.heal(cluster)
    seen: list[tuple[int, int]] = []
    snapshot = probe(
        cluster, spool, resume=True, progress=lambda *count: seen.append(count)
    )
    planned = seen[-1][1]
    assert seen == [(done, planned) for done in range(1, planned + 1)]
    assert 4 <= len(before) < planned
    assert snapshot.failed == {}
    check_measurements(cluster, snapshot)
    after = [json.loads(line) for line in spool.read_bytes().splitlines()[1:]]
    assert after[: len(before)] == before
    assert len(after) == planned


def test_a_host_without_a_rank(cluster: labs.Lab, tmp_path: Path) -> None:
    """Tests that it costs its own row and column, and is named."""
    hosts = [host.name for host in cluster.hosts]
    command, env = labs.exec_argv(
        cluster, labs.HEAD, [MPIRUN, "--host", ",".join(hosts[:4])]
    )
    plan = plan_probes(cluster.hosts, concurrency=1, duplex=False)
    # Whose pairs are there is tested, not what they carry.
    plan = replace(plan, passes=(plan.passes[0], ("load", 2, False)))
    conduct = Conduct(spool=tmp_path / "spool", env=env)
    snapshot = Mpi(command).measure(cluster.hosts, plan, conduct)
    assert snapshot.failed == {hosts[4]: "no rank of the job ran there"}
    measured = np.isfinite(snapshot.latency.values)
    assert not measured[4].any()
    assert measured[:4, :4].sum() == 4 * 3


def test_a_host_list_of_addresses(cluster: labs.Lab, inside: Run) -> None:
    """Tests that ranks find themselves in a list that has no names."""
    addresses = ",".join(host.address for host in cluster.hosts[:2])
    names = ",".join(host.name for host in cluster.hosts[:2])
    done = inside(
        *(cluster, labs.HEAD, *CLOUDCOLL, "probe", "--via", "mpi", "--quick"),
        *("-w", addresses, "--", MPIRUN, "--host", names),
    )
    assert done.returncode == 0, done.stderr
    assert "2 hosts" in done.stdout
