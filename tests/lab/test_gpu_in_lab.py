"""``make gpu`` without a GPU: its whole flow, with Gloo in NCCL's place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import TORCH

pytestmark = [pytest.mark.lab, TORCH.mark]

GPU = (sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
SIZE = 65536


def run(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script on Gloo."""
    return subprocess.run(
        [*GPU, "--backend", "gloo", "--output", str(output), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def check_part(part: dict[str, Any]) -> None:
    """Check what was found in one part, whatever the machine's speed is."""
    assert part["problem"] == ""
    assert all(row["wrong"] == 0 and row["repeats"] >= 1 for row in part["times"])
    large = {
        row["order"]: row
        for row in part["times"]
        if (row["op"], row["bytes"]) == ("allreduce", SIZE)
    }
    assert set(large) == set(part["orders"])
    assert all(row["predicted"] > 0 for row in large.values())


def check_whole(part: dict[str, Any]) -> None:
    """Check bytes, steps and what collectives promise."""
    assert all(row["host_off"] < 0.05 > row["pairs_off"] for row in part["bytes"])
    assert {row["order"] for row in part["bytes"]} == set(part["orders"])
    assert len(part["check"]) == 7
    assert all(row["good"] for row in part["check"])
    losses = {row["loss"] for row in part["step"]}
    assert {row["step"] for row in part["step"]} == {"ddp", "fsdp"}
    assert max(losses) - min(losses) < 1e-6 * max(losses)


@pytest.mark.slow
def test_the_flow_on_gloo(tmp_path: Path) -> None:
    """Tests a probe, a job in a lab, and what is made of its rows."""
    output = tmp_path / "gpu.json"
    options = ("--hosts", "2", "--only", "ring", "--sizes", str(SIZE), "--box", "0.3")
    done = run(output, *options, "--nic", "400mbit")
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    (part,) = found["parts"]
    check_part(part)
    check_whole(part)
    assert {row["op"] for row in part["times"]} >= {"allgather", "reduce_scatter"}
    assert 0 < part["pairs"][0]["pairs"]["1"] < 1
    assert found["versions"]["torch"] in part["library"][0]["library"]
    figures = {row["what"]: row["value"] for row in found["figures"]}
    assert figures["wrong elements of all results"] == 0
    assert figures["failed checks"] == 0
    assert (
        figures["2 hosts, ring of 64 KiB: bytes of a host, off the schedule at most"]
        < 5
    )
    assert figures["2 hosts, ring, allreduce of 64 KiB: given over ours"] > 0
    assert found["machine"].endswith(" cores")
    assert found["left_out"] == []


@pytest.mark.soak  # five jobs of four ranks that import torch
def test_all_variants_on_gloo(tmp_path: Path) -> None:
    """Tests that each variant ends well in racks, with its variables in its ranks."""
    output = tmp_path / "gpu.json"
    done = run(output, "--hosts", "4", "--sizes", f"8,{SIZE}", "--nic", "400mbit")
    assert done.returncode == 0, done.stderr
    parts = json.loads(output.read_text())["parts"]
    named = {part["variant"]: part for part in parts}
    assert list(named) == ["ring", "shim", "tuner", "tree", "own"]
    for part in parts:
        check_part(part)
    check_whole(named["ring"])
    check_whole(named["shim"])
    assert named["shim"]["environment"]["LD_PRELOAD"].endswith("/nccl/preload")
    assert "tree 0,allreduce" in named["tuner"]["environment"]["CLOUDCOLL_NCCL_TABLE"]
    assert named["own"]["environment"].keys() == {
        *("NCCL_TUNER_PLUGIN", "CLOUDCOLL_NCCL_CHOICES")
    }


@pytest.mark.slow
def test_time_that_is_up(tmp_path: Path) -> None:
    """Tests that what there is no time for is left out, with its name, in the file."""
    output = tmp_path / "gpu.json"
    done = run(output, "--hosts", "2,4", "--seconds", "1")
    assert done.returncode == 1
    left_out = json.loads(output.read_text())["left_out"]
    assert left_out == ["2 hosts: no time was left", "4 hosts: no time was left"]
