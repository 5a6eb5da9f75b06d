"""The profile of a job in ``cloudcoll show``, ``solve`` and ``schedule``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.cli import main
from cloudcoll.measured import synth
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.solve import solve

# What each rack should hold, whatever hosts the fabric has in it.
GROUPS = {"even": [0, 2, 4, 6], "odd": [1, 3, 5, 7]}


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """A profile of eight ranks that talk in two groups, as the library writes it."""
    calls = [
        {
            "group": group,
            "collective": "allreduce",
            "calls": 4 * 100,
            "bytes": 4 * 100 << 20,
            "seconds": 4 * 2.0,
            "least_seconds": 1.5,
        }
        for group in GROUPS
    ]
    data = {
        "schema": "cloudcoll-profile-1",
        "ranks": 8,
        "seconds": 4.0,
        "library": "MPICH Version:      5.0.2",
        "groups": GROUPS,
        "calls": calls,
    }
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(data))
    return str(path)


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of two racks of four hosts, names dealt at random."""
    fabric = synth.racks((4, 4), seed=3)
    path = tmp_path / "net.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return str(path)


def test_show(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests the report, and the same as JSON."""
    assert main(["show", profile]) == 0
    first, _, _, row, *_ = capsys.readouterr().out.splitlines()
    assert first == "profile of 8 ranks, MPICH 5.0.2: 4 s, 50% in collectives"
    assert row == "100%   allreduce   2 x 4   100    1 MiB  20 ms   15 ms"
    assert main(["show", profile, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["calls"][0]["calls"] == 100
    assert data["share"] == 0.5


def test_solve(
    profile: str, snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the groups that the job really has end in one rack each."""
    path = tmp_path / "map.json"
    assert main(["solve", snap, "--workload", profile, "-o", str(path)]) == 0
    assert " 2 x 4 groups 1" in capsys.readouterr().out
    order = load_rankmap(path).order
    racks = [set(rack.leaves()) for rack in synth.racks((4, 4), seed=3).groups()[0]]
    for ranks in GROUPS.values():
        assert {order[rank] for rank in ranks} in racks


def test_a_profile_of_other_ranks(
    profile: str, snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a job of another size, or a split beside it, is refused."""
    assert main(["schedule", "--workload", profile, "--ranks", "16"]) == 2
    assert "is of 8 ranks, the job has 16" in capsys.readouterr().err
    both = ["--workload", profile, "--parallel", "tp=4,dp=2"]
    assert main(["solve", snap, *both]) == 2
    assert "leave out --parallel" in capsys.readouterr().err


def test_each_order_is_searched_within_the_time(
    snap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that --time holds for the orders of single collectives, too."""
    limits = []

    def watched(*args: Any, **kwargs: Any) -> RankMap:
        limits.append(kwargs["watch"].limit_s)
        return solve(*args, **kwargs)

    monkeypatch.setattr("cloudcoll.work.solve.solve", watched)
    options = ["--workload", "towers:tower=4", "--per-call", "--time", "7"]
    assert main(["solve", snap, *options]) == 0
    assert limits == [7.0, 7.0]


def test_an_order_for_each_collective(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that what gains by another order than the best for all has its own."""
    job, path = tmp_path / "job.json", tmp_path / "map.json"
    even, odd = [[0, 2, 4, 6], [1, 3, 5, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]]
    calls = [("allreduce", "even", "64M"), ("bcast", "odd", "1M")]
    operations = [
        {"collective": one, "algorithm": "ring", "groups": groups, "bytes": size}
        for one, groups, size in calls
    ]
    operations[1]["algorithm"] = "pipeline"
    text = {"ranks": 8, "groups": {"even": even, "odd": odd}, "operations": operations}
    job.write_text(json.dumps(text))
    options = ["--workload", str(job), "--per-call", "-o", str(path)]
    assert main(["solve", snap, *options]) == 0
    assert "bcast of 1 MiB to 2 MiB, inside MPI: " in capsys.readouterr().out
    found = load_rankmap(path)
    (call,) = found.calls
    assert (call.collective, call.least, call.most) == ("bcast", 1 << 20, (2 << 20) - 1)
    racks = [set(rack.leaves()) for rack in synth.racks((4, 4), seed=3).groups()[0]]
    assert {call.order[rank] for rank in odd[0]} in racks
    assert {found.order[rank] for rank in even[0]} in racks
    assert main(["solve", snap, "--per-call"]) == 2
    assert "add --workload" in capsys.readouterr().err
