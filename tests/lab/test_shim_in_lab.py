"""``cloudcoll run`` with the preloaded library, on the hosts of a lab."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mpis import MPIS, WELL, piped
from mpis import job as ended_job

from cloudcoll import lab as labs
from cloudcoll.launch.shim import LIBRARY
from cloudcoll.profile import load_profile
from cloudcoll.rankmap import RankMap

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
PROGRAM = """
from array import array
from mpi4py import MPI
world, total = MPI.COMM_WORLD, array("i", [0])
world.Allreduce(array("i", [world.rank]), total)
assert total[0] == sum(range(world.size))
"""


TAKING_PART = "all ranks take part"


class Job:
    """A lab, a map of its hosts in another order, and a program on all of them."""

    def __init__(self, lab: labs.Lab, folder: Path) -> None:
        self.lab = lab
        self.names = [host.name for host in lab.hosts]
        self.hosts = folder / "hosts"
        self.hosts.write_text("".join(f"{name} slots=1\n" for name in self.names))
        self.map = folder / "map.json"
        self.save_map([*self.names[:1], *self.names[:0:-1]])

    def save_map(self, order: list[str]) -> None:
        RankMap(tuple(order), (1,) * len(order)).save(self.map)

    def on(self, host: str, *argv: str) -> tuple[int, str]:
        """Run a command on one of the hosts; return its exit code and stderr."""
        command, env = labs.exec_argv(self.lab, host, argv)
        start = piped(command, env={**env, "CLOUDCOLL_DEBUG": ""}, cwd=ROOT)
        code, _, err = ended_job(start, seconds=60)
        return code, err

    def run(self, *options: str, mpirun: tuple[str, ...] = ()) -> list[str]:
        """Start the program on all hosts; return what was said."""
        code, err = self.on(
            labs.HEAD,
            *(sys.executable, "-m", "cloudcoll.cli", "run", *options),
            *(str(MPIS[0].prefix / "bin" / "mpirun"), *mpirun),
            *("--hostfile", str(self.hosts), sys.executable, "-c", PROGRAM),
        )
        assert code == 0, err
        own = [line for line in err.splitlines() if "cloudcoll" in line]
        # But that all is well.
        return [line for line in own if not line.endswith((*WELL, TAKING_PART))]


@pytest.fixture
def job(
    shared_lab: Callable[..., labs.Lab],
    far_racks: Callable[..., labs.LabSpec],
    tmp_path: Path,
) -> Job:
    return Job(shared_lab(far_racks((2, 2))), tmp_path)


@pytest.mark.slow
def test_a_host_without_the_library(job: Job) -> None:
    """Tests that the job runs in the order given everywhere, with one line."""
    shim = ("--inject", "shim", "--map", str(job.map))
    assert job.run(*shim) == []
    folder = str(LIBRARY.parent)
    code, err = job.on(job.names[2], "mount", "-t", "tmpfs", "none", folder)
    assert code == 0, err
    try:
        (line,) = job.run(*shim)
    finally:
        code, err = job.on(job.names[2], "umount", folder)
    assert code == 0, err
    assert line.endswith(
        "; 1 of 4 ranks do without the preloaded library (2): running in the order "
        "given"
    )


def test_maps_that_do_not_fit(job: Job) -> None:
    """Tests that the job runs as typed with a map of others, or none."""
    shim = ("--inject", "shim", "--map", str(job.map))
    job.save_map(job.names[1:])
    assert job.run(*shim) == [
        f"cloudcoll: the rank map does not name {job.names[0]} of {job.hosts}: solve "
        "again; running the command unchanged"
    ]
    job.map.write_text("{}")
    assert [line.split(";")[-1] for line in job.run(*shim)] == [
        " running the command unchanged"
    ]


def test_a_profile_beside_an_order(job: Job, tmp_path: Path) -> None:
    """Tests that calls are counted whoever puts the order in force."""
    profile = tmp_path / "profile.json"
    for inject in ("launcher", "shim", "none"):
        wanted = ("--inject", inject, "--map", str(job.map))
        assert job.run(*wanted, "--profile", str(profile)) == []
        (calls,) = load_profile(profile).calls
        assert (calls.collective, calls.calls) == ("allreduce", 1)
        assert calls.group == (0, 1, 2, 3)
        profile.unlink()


def test_ranks_that_the_launcher_can_not_place(job: Job, tmp_path: Path) -> None:
    """Tests that a rankfile's ranks stay and are reordered inside MPI."""
    rankfile = tmp_path / "ranks"
    rankfile.write_text(
        "".join(f"rank {i}={name} slot=0\n" for i, name in enumerate(job.names))
    )
    handed_on = ("LD_PRELOAD", "CLOUDCOLL_SHIM_ORDER", "CLOUDCOLL_SHIM_ROLL")
    said = job.run(
        *("--map", str(job.map)),
        mpirun=(
            *("--map-by", f"rankfile:file={rankfile}"),
            *(word for name in handed_on for word in ("-x", name)),
        ),
    )
    assert [line.split(";")[-1] for line in said] == [
        " reordering inside MPI, if variables reach the ranks"
    ]
