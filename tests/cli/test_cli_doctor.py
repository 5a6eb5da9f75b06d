from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def doctor(path: str, *words: str) -> tuple[str, str]:
    """Return stdout and what was imported."""
    code = (
        "import sys; from cloudcoll.cli import main; "
        "code = main(['doctor', *sys.argv[1:]])"
        "; print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def test_lists_what_is_here(tmp_path: Path) -> None:
    """Tests that a launcher is told with its mechanism, the rest with a remedy."""
    launcher = tmp_path / "mpirun"
    launcher.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    launcher.chmod(0o755)
    out, imported = doctor(str(tmp_path))
    assert f"  Open MPI 5 (mpirun, mpiexec) 5.0.11: {launcher}\n      a seq" in out
    assert "\n  ssh (probe hosts): apt install openssh-client" in out
    assert "\n  Slurm (srun): apt install slurm-client" in out
    assert not {"numpy", "scipy", "torch", "mpi4py", "rich"} & set(imported.split())


def test_json(tmp_path: Path) -> None:
    """Tests that the same is there for programs, what is missing as empty text."""
    seen = json.loads(doctor(str(tmp_path), "--json")[0])
    assert {one["program"] for one in seen["launchers"]} == {""}
    assert seen["python"].startswith("3.")
    assert {one["name"]: one["here"] for one in seen["programs"]}["bash"] == ""
    built = [Path(one["here"]).is_file() for one in seen["shims"]]
    assert built == [True, True, True]
    assert [one["name"] for one in seen["permissions"]] == [
        *("state folder", "network namespaces")
    ]
    assert seen["permissions"][1]["here"] == ""  # there is no unshare to try it with
