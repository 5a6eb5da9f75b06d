"""``make gpu`` says what is missing, a line for each thing, and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
        timeout=60,
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
