"""``cloudcoll show``, ``solve`` and ``export`` on a planted snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from noisy import Noise, planted, probed, slowed

from cloudcoll.cli import main
from cloudcoll.infer import with_rates_of
from cloudcoll.measured import synth
from cloudcoll.rankmap import RankMap, load_rankmap


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


@pytest.mark.parametrize(("columns", "longest"), [(40, 35), (80, 77), (200, 101)])
def test_show_is_as_wide_as_the_terminal(
    columns: int,
    longest: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests where names are wrapped."""
    fabric, path = synth.racks((16,)), str(tmp_path / "net.snap")
    synth.observe(fabric).with_fabric(fabric).save(path)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["show", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "vm-" in line) == longest


def test_show_draws_heat_maps(snap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that both maps come when asked for, and not into a pipe by themselves."""
    assert main(["show", snap, "--heatmap"]) == 0
    text = capsys.readouterr().out
    assert text.count("dark is slow") == 2
    assert "\x1b[" not in text
    assert main(["show", snap]) == 0
    assert "dark is slow" not in capsys.readouterr().out


def test_show_gives_maps_as_numbers(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that --json --heatmap has every pair, and --json alone has none."""
    assert main(["show", snap, "--json", "--heatmap"]) == 0
    rtt = json.loads(capsys.readouterr().out)["matrices"]["rtt_s"]
    assert [len(row) for row in rtt] == [5] * 5
    assert rtt[0][0] is None
    assert main(["show", snap, "--json"]) == 0
    assert "matrices" not in json.loads(capsys.readouterr().out)


def test_a_map_of_too_many_hosts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the limit and the way out are named."""
    path = str(tmp_path / "big.snap")
    synth.observe(synth.racks((40, 25)), samples=1).save(path)
    assert main(["show", path, "--heatmap"]) == 2
    assert "65 hosts: at most 64 fit" in capsys.readouterr().err
    assert main(["show", path]) == 0


def test_heat_maps_are_of_snapshots_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that --heatmap is not passed over where a map has none."""
    path = tmp_path / "map.json"
    RankMap(("a", "b"), (1, 1)).save(path)
    assert main(["show", str(path), "--heatmap"]) == 2
    assert capsys.readouterr() == (
        "",
        f"cloudcoll: {path} is no snapshot, and only snapshots have a heat map: "
        "leave out --heatmap\n",
    )
    assert main(["show", str(path), "--no-heatmap"]) == 0


def test_solve_and_show_say_how_far_from_perfect(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the line for people and the numbers for programs, then and later."""
    path = tmp_path / "map.json"
    argv = ["solve", snap, "--algorithm", "rabenseifner", "--solver", "local"]
    assert main([*argv, "-o", str(path)]) == 0
    assert "% from perfect: no order takes less than" in capsys.readouterr().out
    rank_map = load_rankmap(path)
    for command in (argv, ["show", str(path)]):
        assert main([*command, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["lower_bound"] == rank_map.lower_bound
        assert found["gap"] == rank_map.gap > 0.0


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


def sick_snapshot(path: Path, factor: float) -> str:
    """Save what a probe sees of 16 hosts, of which one has a slow card."""
    fabric = planted((16,), 50e6, 150e-6, 1)
    slow = slowed(fabric, {"vm-05": (factor, factor)})
    snapshot = probed(slow, Noise(0.1, 0.05), 1)
    snapshot.with_fabric(with_rates_of(snapshot, fabric)).save(path)
    return str(path)


def test_solve_says_what_is_gained_without_a_slow_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the gain that is predicted, and where no such words are due."""
    snap = sick_snapshot(tmp_path / "sick.snap", 0.5)
    ring = ["solve", snap, "--algorithm", "ring"]
    assert main(ring) == 0
    (said,) = capsys.readouterr().err.splitlines()
    # A ring is as slow as its slowest card: of half the rate, here.
    assert said == (
        "cloudcoll: without vm-05: allreduce of 16 MiB on 15 hosts should take "
        "634 ms, not 1.25 s"
    )
    for unasked in (
        # It holds rank 0 or is not in the job, or the job cannot be any smaller.
        [*ring, "-w", "vm-05,vm-[01-04],vm-[06-16]"],
        [*ring, "-w", "vm-[01-04],vm-[06-16]"],
        [*ring, "--take", "15"],
        ["solve", snap, "--parallel", "tp=4,dp=4"],
        ["solve", sick_snapshot(tmp_path / "well.snap", 1.0), "--algorithm", "ring"],
    ):
        assert main(unasked) == 0
        assert "without" not in capsys.readouterr().err


def test_a_maps_order_is_drawn_through_the_racks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests `solve --picture`, and the same of a map and its snapshot later."""
    fabric = synth.racks((3, 2))
    snap, path = str(tmp_path / "net.snap"), str(tmp_path / "map.json")
    synth.observe(fabric, samples=2).with_fabric(fabric).save(Path(snap))
    assert main(["solve", snap, "-o", path]) == 0
    plain = capsys.readouterr().out
    assert "█" not in plain
    assert main(["solve", snap, "--picture"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(plain)
    assert main(["show", snap, "--map", path]) == 0
    assert plain + capsys.readouterr().out == out
    assert "██" in out
    assert "\x1b" not in out
    assert main(["show", path, "--map", path]) == 2
    assert "it goes with a snapshot" in capsys.readouterr().err
    other = tmp_path / "other.snap"
    fabric = synth.racks((2,))
    synth.observe(fabric, samples=2).with_fabric(fabric).save(other)
    assert main(["show", str(other), "--map", path]) == 2
    assert "is of other hosts" in capsys.readouterr().err
