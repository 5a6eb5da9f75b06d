"""``cloudcoll show``, ``solve`` and ``export`` on a planted snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.fabric import synth
from cloudcoll.rankmap import load_rankmap


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of two racks of three and two hosts."""
    fabric = synth.racks((3, 2), seed=4)
    path = tmp_path / "net.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return str(path)


def test_show_prints_groups(snap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that both racks are listed."""
    assert main(["show", snap]) == 0
    text = capsys.readouterr().out
    assert "core: 5 hosts" in text
    assert text.count("group ") == 2


def test_show_json_has_levels(snap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests the fields that programs read."""
    assert main(["show", snap, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    level = data["levels"][0]
    assert sorted(map(len, level["groups"])) == [2, 3]
    assert {"rtt_s", "uplink_bytes_per_s", "holdout_error"} <= set(level)


def test_solve_then_export(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the way from a snapshot to a rankfile."""
    path = tmp_path / "map.json"
    assert main(["solve", snap, "--algorithm", "ring", "-o", str(path)]) == 0
    rank_map = load_rankmap(path)
    assert rank_map.order[0] == "vm-1"
    assert rank_map.predicted["cloudcoll"] <= rank_map.predicted["given"]
    assert "predicted" in capsys.readouterr().out
    assert main(["show", str(path)]) == 0
    assert "order: vm-1" in capsys.readouterr().out
    assert main(["export", str(path), "--format", "ompi-rankfile"]) == 0
    assert f"rank 1={rank_map.order[1]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["show", "/nowhere.snap"], 2, "no snapshot at /nowhere.snap"),
        (["solve", "SNAP", "--algorithm", "x"], 2, "unknown allreduce algorithm 'x'"),
        (["solve", "SNAP", "--collective", "x"], 2, "unknown collective 'x'"),
        (["solve", "SNAP", "--solver", "x"], 2, "unknown solver 'x'"),
        (["solve", "SNAP", "-o", "/proc/no/map"], 3, "cannot write /proc/no/map"),
        (["solve", "SNAP", "--bytes", "much"], 2, "not a size"),
        (["export", "SNAP", "--format", "json"], 2, "cannot read the rank map"),
        (["export", "SNAP", "--format", "x"], 2, "unknown format 'x'"),
    ],
)
def test_bad_input_is_named(
    snap: str,
    argv: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests message and exit code of wrong input."""
    assert main([snap if word == "SNAP" else word for word in argv]) == code
    assert message in capsys.readouterr().err


def test_a_damaged_snapshot_is_named(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a flipped byte ends in exit code 3 and one line."""
    data = bytearray(Path(snap).read_bytes())
    data[len(data) // 2] ^= 1
    Path(snap).write_bytes(data)
    assert main(["show", snap]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "damaged" in line
