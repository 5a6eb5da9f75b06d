"""``--workload`` and ``--parallel`` of ``cloudcoll solve`` and ``schedule``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.cli import main
from cloudcoll.measured import synth
from cloudcoll.rankmap import load_rankmap


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of two racks of four hosts, names dealt at random."""
    fabric = synth.racks((4, 4), seed=3)
    path = tmp_path / "net.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return str(path)


@pytest.fixture
def job(tmp_path: Path) -> str:
    """A workload of two operations, as a user writes it."""
    path = tmp_path / "job.json"
    operations: list[dict[str, Any]] = [
        {"collective": "allreduce", "groups": "tp", "bytes": "4M", "calls": 8},
        {"collective": "alltoall", "groups": "odd", "bytes": "1M"},
    ]
    groups = {"odd": [[0, 2, 4, 6], [1, 3, 5, 7]]}
    text = {"parallel": "tp=4,dp=2", "groups": groups, "operations": operations}
    path.write_text(json.dumps(text))
    return str(path)


ALL_TO_ALL = "no order cuts its bytes per pair, choosing other VMs can help"


def test_solve_a_file_and_show_the_map(
    snap: str, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a map says what it was solved for, then and when shown later."""
    path = tmp_path / "map.json"
    assert main(["solve", snap, "--workload", job, "-o", str(path)]) == 0
    solved = capsys.readouterr().out
    assert "8        4 MiB  allreduce nccl_ring          2 x 4 tp" in solved
    assert "1        1 MiB  alltoall nccl_p2p            2 x 4 odd" in solved
    assert ALL_TO_ALL in solved
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == solved
    found = load_rankmap(path)
    assert found.schedule["operations"][0]["bytes"] == 4 << 20
    assert found.predicted["cloudcoll"] < found.predicted["given"]


def test_schedule_shows_a_step(
    snap: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests text and JSON, with the levels of a snapshot in two orders."""
    argv = ["schedule", "--workload", job, "--snapshot", snap]
    assert main([*argv, "--compare", "given,cloudcoll"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"workload {job}, 8 ranks, tp=4,dp=2, one step")
    assert "MiB through the busiest rank" in text
    assert ALL_TO_ALL in text
    assert main([*argv, "--compare", "given,cloudcoll", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ranks"] == 8
    assert [op["calls"] for op in data["operations"]] == [8, 1]
    # 8 rings of four send 2 (N - 1) of 4 MiB in each of two groups.
    sums = 8 * 2 * 6 * (4 << 20) + 2 * 3 * (1 << 20)
    assert sum(size for *_, size in data["pairs"]) == pytest.approx(sums)
    racks = {name: levels[1]["share"] for name, levels in data["levels"].items()}
    assert racks["cloudcoll"] < racks["given"]


def test_a_split_alone_is_a_job_of_megatrons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that the ranks follow from the split."""
    assert main(["schedule", "--parallel", "tp=2,pp=2,dp=2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["workload"], data["ranks"]) == ("megatron", 8)
    assert [op["groups"] for op in data["operations"]] == ["tp", "pp", "dp-cp"]


def test_an_all_to_all_is_honest_about_itself(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that both commands say it of one collective, and not of others."""
    words = ["--collective", "alltoall", "--algorithm", "linear"]
    for argv in (["solve", snap], ["schedule", "--ranks", "4"]):
        assert main([*argv, *words]) == 0
        assert capsys.readouterr().out.count(ALL_TO_ALL) == 1
        assert main(argv) == 0
        assert ALL_TO_ALL not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["solve", "SNAP", "--workload", "fspd"], "cannot read the workload 'fspd'"),
        (["solve", "SNAP", "--workload", ""], "cannot read the workload ''"),
        (["solve", "SNAP", "--workload", "SNAP"], "not text (ready-made without a"),
        (["solve", "SNAP", "--workload", "ddp:x=1"], "workload ddp takes no 'x'"),
        (["solve", "SNAP", "--workload", "ddp", "--bytes", "1M"], "--bytes is for one"),
        (["solve", "SNAP", "--workload", "JOB", "--parallel", "tp=8"], "leave out"),
        (["solve", "SNAP", "--parallel", "tp=3,pp=2"], "is 6 ranks, the job has 8"),
        (["solve", "SNAP", "--parallel", "tp=8,xp=1"], "unknown token 'xp'"),
        (["solve", "SNAP", "--bytes", "0"], "0 bytes sends nothing"),
        (["schedule", "--workload", "ddp"], "how many ranks?"),
        (["schedule", "--workload", "ddp", "--ranks", "0"], "2 ranks or more, not 0"),
        (["schedule", "--workload", "ddp", "--ranks", "1"], "2 ranks or more, not 1"),
        (["schedule", "--workload", "JOB", "--ranks", "6"], "8 ranks, the job has 6"),
        (["schedule", "--workload", "ddp", "--set", "root=1"], "--set is for one"),
    ],
)
def test_bad_input_is_one_line(
    snap: str,
    job: str,
    argv: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that a wrong command line ends in exit code 2 and one line."""
    given = {"SNAP": snap, "JOB": job}
    assert main([given.get(word, word) for word in argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert message in line
