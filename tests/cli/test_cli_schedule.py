"""``cloudcoll schedule`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.cli import main
from cloudcoll.collectives import build_schedule
from cloudcoll.measured import synth
from cloudcoll.rankmap import RankMap


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of two racks of four hosts, names dealt at random."""
    fabric = synth.racks((4, 4), seed=3)
    path = tmp_path / "net.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return str(path)


def schedule(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """Return what --json prints."""
    assert main(["schedule", "--json", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_the_bytes_of_each_pair(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that a ring of five sends 2 (N - 1) / N of the vector to one neighbour."""
    data = schedule(capsys, "--algorithm", "ring", "--ranks", "5", "--bytes", "1000")
    assert data["pairs"] == [[rank, (rank + 1) % 5, 1600.0] for rank in range(5)]
    sent = sum(
        step["repeat"] * size
        for step in data["steps"]
        for _, _, size in step["messages"]
    )
    assert sent == 8000.0


def test_text_shows_steps_and_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests the lines that people read."""
    assert main(["schedule", "--ranks", "4", "--bytes", "8K"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("allreduce rabenseifner of 8 KiB, 4 ranks, as in Open MPI")
    assert "    1         4        4 KiB  0 to 1" in text
    assert "       8 KiB  0-1 1-0 2-3 3-2" in text
    assert "48 KiB in all, 12 KiB through the busiest rank" in text


def test_a_parameter_reaches_the_family(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --set root=2 makes rank 2 the root."""
    argv = ("--collective", "bcast", "--algorithm", "linear", "--ranks", "4")
    data = schedule(capsys, *argv, "--set", "root=2", "--bytes", "8")
    assert data["pairs"] == [[2, rank, 8.0] for rank in (0, 1, 3)]
    assert data["parameters"] == {"root": 2}


def test_a_library_names_its_own_variant(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that the same word means MPICH's algorithm with --library mpich."""
    argv = ("--collective", "bcast", "--algorithm", "binomial", "--ranks", "6")
    assert schedule(capsys, *argv)["algorithm"] == "binomial"
    own = schedule(capsys, *argv, "--library", "MPICH")
    assert own["algorithm"] == "mpich_binomial"


def test_a_library_chooses_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that each library's own algorithm is taken, and that it is told why."""
    argv = ("--ranks", "12", "--bytes", "64K", "--library")
    expected = {
        "openmpi@5.0.11": "rabenseifner",
        "mpich@4.0.2": "mpich_reduce_scatter_allgather",
        "nccl": "nccl_ring",
        "torch@2.13.0": "gloo_ring",
    }
    for library, algorithm in expected.items():
        assert schedule(capsys, *argv, library)["algorithm"] == algorithm
    assert main(["schedule", *argv, "nccl"]) == 0
    assert "a ring is assumed; version 2.30 assumed" in capsys.readouterr().err


def test_orders_are_compared_level_by_level(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the shares of a ring: two of eight edges leave racks that are in order."""
    argv = ("--snapshot", snap, "--algorithm", "ring")
    data = schedule(capsys, *argv, "--compare", "given,grouped,cloudcoll")
    hosts, racks = data["levels"]["grouped"]
    assert (hosts["level"], hosts["groups"], hosts["share"]) == (-1, 8, 1.0)
    assert (racks["level"], racks["groups"], racks["share"]) == (0, 2, 0.25)
    assert data["levels"]["cloudcoll"][1]["share"] == 0.25
    assert data["levels"]["given"][1]["share"] > 0.25
    assert main(["schedule", *argv, "--compare", "grouped"]) == 0
    assert "grouped        100.0%         25.0%" in capsys.readouterr().out


def test_no_order_helps_an_all_to_all(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that all orders have the same shares, and that this is said."""
    argv = ("--snapshot", snap, "--collective", "alltoall", "--algorithm", "pairwise")
    data = schedule(capsys, *argv, "--compare", "given,grouped,random:3")
    shares = [[level["share"] for level in found] for found in data["levels"].values()]
    assert len(shares) == 5
    assert shares[0][1] == pytest.approx(4 / 7)
    assert all(share == pytest.approx(shares[0]) for share in shares)
    assert main(["schedule", *argv]) == 0
    assert "no order cuts its bytes per pair" in capsys.readouterr().out


def test_a_map_gives_order_and_slots(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that two ranks per host keep every second edge of a ring at home."""
    path = tmp_path / "map.json"
    fabric = synth.racks((4, 4), seed=3)
    RankMap(fabric.hosts, (2,) * 8).save(path)
    data = schedule(
        capsys, "--snapshot", snap, "--map", str(path), "--algorithm", "ring"
    )
    assert data["ranks"] == 16
    assert [level["share"] for level in data["levels"]["cloudcoll"]] == [0.5, 0.125]


def test_a_barrier_needs_no_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --bytes means nothing to a barrier."""
    argv = ("--collective", "barrier", "--algorithm", "linear", "--ranks", "3")
    barrier = build_schedule("barrier", "linear", 3, 0)
    assert len(schedule(capsys, *argv)["steps"]) == len(barrier.steps)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "how many ranks? add --ranks N"),
        (["--ranks", "0"], "2 ranks or more, not 0"),
        (["--ranks", "1"], "2 ranks or more, not 1"),
        (["--ranks", "1000000000"], "at most 8192 ranks are shown"),
        (["--parallel", "tp=8,dp=2048"], "at most 8192 ranks are shown"),
        (["--ranks", "4", "--bytes", "0"], "0 bytes sends nothing"),
        (["--ranks", "4", "--algorithm", "x"], "unknown allreduce algorithm 'x'"),
        (
            ["--ranks", "4", "--collective", "x"],
            "unknown collective 'x' of Open MPI (known: ",
        ),
        (["--ranks", "4", "--library", "y2"], "unknown library 'y2' (known: openmpi"),
        (
            ["--ranks", "4", "--library", "y2", "--algorithm", "ring"],
            "of library 'y2' is known (known: ",
        ),
        (["--ranks", "4", "--library", "mpich@x"], "'x' is not a version such as"),
        (
            ["--ranks", "4", "--library", "mpich", "--algorithm", "x"],
            "unknown allreduce algorithm 'x' of mpich (known: ",
        ),
        (["--ranks", "4", "--set", "root"], "'root' is not NAME=NUMBER"),
        (["--ranks", "4", "--set", "root=1"], "has no parameter 'root'"),
        (["--ranks", "4", "--compare", "given"], "add --snapshot SNAP"),
        (["--ranks", "4", "--snapshot", "SNAP"], "take 8 ranks, not 4"),
        (["--snapshot", "SNAP", "--compare", "best"], "unknown order 'best'"),
        (["--snapshot", "/nowhere.snap"], "no snapshot at /nowhere.snap"),
    ],
)
def test_bad_input_is_one_line(
    snap: str, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a wrong command line ends in exit code 2 and one line."""
    assert main(["schedule", *(snap if w == "SNAP" else w for w in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert message in line
