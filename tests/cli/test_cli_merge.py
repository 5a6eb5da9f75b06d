"""``cloudcoll merge`` on planted snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import load_snapshot


def saved(folder: Path, seed: int, hosts: int = 5) -> str:
    fabric = synth.racks((3, hosts - 3), seed=4)
    path = folder / f"{seed}-{hosts}.snap"
    synth.observe(fabric, seed=seed, rounds=3).save(path)
    return str(path)


def test_merge_writes_a_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the file has all samples, and a fabric of them."""
    paths = [saved(tmp_path, seed) for seed in range(3)]
    output = tmp_path / "all.snap"
    assert main(["merge", *paths, "-o", str(output)]) == 0
    assert "3 snapshots over" in capsys.readouterr().out
    merged = load_snapshot(output)
    assert len(merged.rtt.src) == 3 * 10
    assert merged.fabric is not None
    assert main(["show", str(output), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["metadata"]["merged"]) == 3
    assert shown["repeats"]["transient"] > 0.0


@pytest.mark.parametrize(
    ("hosts", "message"),
    [(6, "host set is 5 hosts in the first and 6 hosts with vm-6"), (5, "twice")],
)
def test_what_cannot_be_merged_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: int, message: str
) -> None:
    """Tests that one line says why, and that no file is written."""
    paths = [saved(tmp_path, 1), saved(tmp_path, 1, hosts)]
    output = tmp_path / "all.snap"
    assert main(["merge", *paths, "-o", str(output)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not output.exists()
