from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from mpis import BESIDE, DEBIAN, EACH, Mpi, newest

from cloudcoll.launch import shim
from cloudcoll.profile import load_profile

SOURCES = sorted(Path(__file__).with_name("checks").glob("*.c"))

# Ranks pose as hosts.
POSE = (
    'export CLOUDCOLL_HOST="h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" '
    f'LD_PRELOAD="{shim.LIBRARY}"; exec "$@"'
)


def shuffled(ranks: int) -> str:
    names = [f"h{rank}" for rank in range(ranks)]
    random.Random(ranks).shuffle(names)
    return ",".join(names)


@pytest.mark.many
@pytest.mark.parametrize("mpi", newest([*EACH, *DEBIAN]))
def test_checks_in_random_orders(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that every promise of MPI holds in any order, while it is counted."""
    program = mpi.compile(tmp_path / "checks", *SOURCES)
    plain = mpi.mpirun(3, program)
    assert re.fullmatch(r"\d+ checks, 0 failed\n", plain.stdout), plain.stdout
    for ranks in (1, 3, 4) if mpi is BESIDE else (3,):
        profile = tmp_path / f"{ranks}.json"
        ended = mpi.mpirun(
            *(ranks, "sh", "-c", POSE, "sh", program),
            CLOUDCOLL_SHIM_ORDER=shuffled(ranks),
            CLOUDCOLL_PROFILE=str(profile),
            CLOUDCOLL_DEBUG="1",
        )
        assert ended.stdout == plain.stdout, ended.stderr
        assert ended.returncode == 0
        # That there were shadows at all is not seen in any result.
        assert ("shadow communicators were made" in ended.stderr) == (ranks > 1)
        assert load_profile(profile).ranks == ranks
