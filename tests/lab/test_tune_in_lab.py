"""``cloudcoll tune``: real Open MPI runs each candidate on the hosts of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudcoll import lab as labs
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.rankmap import load_rankmap

pytestmark = pytest.mark.lab

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Uneven racks of six hosts."""
    return shared_lab(far_racks((3, 1, 2), seed=1))


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
    gains = told["gains"]
    # The order given stays unless another is beyond doubt faster by 3 %.
    assert 0 < gains["tuned"] <= max(gains["given"], gains["ordered"]) * 1.0001
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
    # What a message costs was measured first, and is kept.
    kept = load_snapshot(snapshot)
    assert kept.digest == rank_map.snapshot
    costs = kept.metadata["message_costs"]["openmpi x 1"]
    assert costs["sizes"][:2] == [1 << 10, 64 << 10]
    assert all(0 <= seconds < 0.1 for seconds in costs["each"])
    assert "messages cost: one of 1 KiB" in done.stderr
