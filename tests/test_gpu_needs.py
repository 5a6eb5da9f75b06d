"""``make gpu`` says what is missing and starts nothing; it reads what was found."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import TORCH

GPU = Path(__file__).parents[1] / "benchmarks" / "gpu"


def test_what_is_missing(tmp_path: Path) -> None:
    """Tests the lines where neither iproute2 nor a driver is on the PATH."""
    done = subprocess.run(
        [sys.executable, str(GPU), "--output", str(tmp_path / "gpu.json")],
        env={"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert not (tmp_path / "gpu.json").exists()
    lines = done.stderr.splitlines()
    assert all(line.startswith("gpu: ") for line in lines), done.stderr
    assert lines[0].startswith("gpu: the lab needs 'ip', which is not on the PATH; ")
    assert "gpu: no NVIDIA driver: nvidia-smi is not on the PATH" in lines
    assert lines[-1].startswith("gpu: no MPS: nvidia-cuda-mps-control is not on the ")
    said = "sees no GPU" if TORCH.here else f"no torch in {sys.executable}"
    assert sum(said in line for line in lines) == 1


@pytest.mark.parametrize(
    ("rows", "failed", "waited", "problem"),
    [
        ([{"step": "ddp"}, {"done": True}], [], "", ""),
        ([{"step": "ddp"}], [], "", "rank 0 did not come to its end"),
        ([{"done": True}], [], "ranks [1]", "ranks [1]"),
        ([{"done": True}], [["why", "", " "]], "ranks [1]", "why"),
        ([], [["", ""], []], "", "a rank ended early"),
    ],
)
def test_a_job_that_failed_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, object]],
    failed: list[list[str]],
    waited: str,
    problem: str,
) -> None:
    """Tests what is said of a job, also where the last line of its ranks is empty."""
    monkeypatch.syspath_prepend(GPU)
    jobs = importlib.import_module("jobs")
    assert jobs.problem_of(rows, failed, waited) == problem


def read(results: Path, output: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of a file of results, by name, as the record gets them."""
    done = subprocess.run(
        [sys.executable, str(GPU), "--read", str(results), "--json", str(output)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(done.stdout.splitlines()) == len(rows)
    return {row["what"]: row for row in rows}


def test_what_was_found_on_a_gpu(tmp_path: Path) -> None:
    """Tests the figures that are asked for, each with its limit, machine and commit."""
    results = GPU / "results" / "h100-8-hosts.json"
    found = read(results, tmp_path / "figures")
    limits = {
        "wrong elements of all results": ("most", 0),
        "failed checks": ("most", 0),
        "8 hosts, ring of 16 MiB: bytes of a host, off the schedule at most": (
            "most",
            5,
        ),
        "8 hosts, ring, allreduce of 16 MiB: random over ours": ("least", 2),
        "8 hosts, allreduce of 16 MiB: shim over launch placement": ("most", 1.1),
    }
    for name, (limit, value) in limits.items():
        row = found[name]
        assert row[limit] == value
        assert row["value"] <= value if limit == "most" else row["value"] >= value
    assert {row["machine"] for row in found.values()} == {
        "NVIDIA H100 80GB HBM3, 16 cores"
    }
    (commit,) = {row["commit"] for row in found.values()}
    assert commit == json.loads(results.read_text())["commit"]


def test_figures_of_one_call(tmp_path: Path) -> None:
    """Tests medians, ranges and shares by results that are easy to count."""
    times = [
        {"op": "allreduce", "bytes": 8, "order": order, "seconds": seconds}
        | {"repeats": 3, "wrong": 1, "predicted": 1.5}
        for order, seconds in (
            *(("cloudcoll", 1.0), ("given", 3.0)),
            *(("random-1", 2.0), ("random-2", 5.0), ("random-3", 4.0)),
        )
    ]
    ring = {"hosts": 8, "variant": "ring", "times": times, "largest": 8}
    ring |= {
        "bytes": [{"bytes": 8, "host_off": 0.25}, {"bytes": 8, "host_off": 0.5}],
        "check": [{"good": True}, {"good": False}],
        "step": [],
    }
    shim = {**ring, "variant": "shim", "times": [{**times[1], "seconds": 1.2}]}
    shim |= {"bytes": [], "check": []}
    stamp = {"commit": "c", "time": "t", "machine": "m"}
    results = tmp_path / "gpu.json"
    results.write_text(json.dumps({**stamp, "parts": [ring, shim]}))
    found = read(results, tmp_path / "figures")
    values = {name: row["value"] for name, row in found.items()}
    assert values == {
        "wrong elements of all results": 6,
        "calls whose results were looked at": 18,
        "failed checks": 1,
        "8 hosts, ring of 8 B: bytes of a host, off the schedule at most": 50,
        "8 hosts, ring, allreduce of 8 B: random over ours": 4,
        "8 hosts, ring, allreduce of 8 B: given over ours": 3,
        "8 hosts, allreduce of 8 B: shim over launch placement": 1.2,
        "8 hosts, ring, allreduce of 8 B: seconds predicted, off by: median": 50,
        "8 hosts, ring, allreduce of 8 B: seconds predicted, off by: worst": 70,
        "8 hosts, shim, allreduce of 8 B: seconds predicted, off by: median": 25,
        "8 hosts, shim, allreduce of 8 B: seconds predicted, off by: worst": 25,
    }
    ratio = found["8 hosts, ring, allreduce of 8 B: random over ours"]
    assert (ratio["low"], ratio["high"], ratio["interval"]) == (2, 5, "range of 3")
