"""``cloudcoll tune``: real Open MPI runs each candidate on the hosts of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudcoll import lab as labs
from cloudcoll.measured import synth
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import load_rankmap

pytestmark = pytest.mark.lab

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")
MBIT_400 = 50e6

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, far_racks: Callable[..., labs.LabSpec]
) -> Iterator[labs.Lab]:
    """Uneven racks of six hosts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(tmp_path_factory.mktemp("home")))
        yield labs.up(far_racks((3, 1, 2), seed=1), "tune")
        labs.down("tune")


@pytest.fixture(autouse=True)
def home(cluster: labs.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the lab where it was started, not in the test's own folder."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(cluster.directory.parents[1]))


@pytest.fixture
def snapshot(cluster: labs.Lab, tmp_path: Path) -> Path:
    """The cluster's true fabric, as a snapshot file: no probe needed here."""
    racks = [
        Node(
            str(number),
            tuple(Node(name, (), MBIT_400, MBIT_400) for name in names),
            MBIT_400,
            MBIT_400,
            1.25e-4,
        )
        for number, names in enumerate(cluster.groups)
    ]
    fabric = Fabric(Node("core", tuple(racks)))
    path = tmp_path / "true.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return path


@pytest.mark.slow
def test_tune_measures_what_is_close(
    cluster: labs.Lab, inside: Run, snapshot: Path, tmp_path: Path
) -> None:
    """Tests that candidates run, each told to the library, and that a map comes of it.

    Ranges that are measured are so on both sides: by what was chosen and by the
    library's own.
    """
    path = tmp_path / "map.json"
    done = inside(
        cluster,
        labs.HEAD,
        *CLOUDCOLL,
        *("tune", "--snapshot", str(snapshot), "--collective", "allreduce"),
        *("--bytes", "512K", "--seconds", "25", "--json", "-o", str(path)),
        *("mpirun", "--hostfile", str(cluster.hostfile), "./app"),
    )
    assert done.returncode == 0, done.stderr
    assert "measuring allreduce" in done.stderr
    assert "was not measured" not in done.stderr
    told = json.loads(done.stdout)
    assert told["gains"]["measured"] is True
    assert 0 < told["gains"]["tuned"] <= told["gains"]["ordered"] * 1.0001
    rank_map = load_rankmap(path)
    tuning = rank_map.tuning
    assert tuning is not None
    assert tuning.ranks == 6
    assert tuning.library.startswith("openmpi@5")
    measured = [one for one in tuning.ranges if one.measured]
    assert [one.size for one in measured] == [512 << 10]
    (one,) = measured
    assert one.predicted > 0
    assert one.own > 0
    if one.algorithm:
        assert one.own > one.predicted
