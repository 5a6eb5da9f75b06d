from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.launch import HOST_LAUNCHERS, LAUNCHERS
from cloudcoll.work.doctor import (
    FoundLauncher,
    package_version,
    survey_launchers,
    torch_groups,
)

ANSWERS = {
    "mpirun": "mpirun (Open MPI) 5.0.11\n",
    "mpiexec": "HYDRA build details:\n    Version:    4.3.2\n",
    "mpirun.openmpi": "mpirun (Open MPI) 4.1.4\n",
    "mpiexec.hydra": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build\n",
    "srun": "slurm-wlm 22.05.8\n",
    "mpirun.old": "mpirun (Open MPI) 3.1.6\n",
}


def programs(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch(mode=0o755)
    return str(folder)


def here(found: list[FoundLauncher]) -> dict[str, tuple[str, str]]:
    return {
        one.title.partition(" (")[0]: (Path(one.program).name, one.version)
        for one in found
        if one.program
    }


def test_programs_that_share_names(tmp_path: Path) -> None:
    """Tests that each MPI is found by what its program says, and others are told."""
    path = programs(tmp_path, *ANSWERS)
    found, strangers = survey_launchers(path, lambda one: ANSWERS[Path(one).name])
    assert here(found) == {
        "Open MPI 5": ("mpirun", "5.0.11"),
        "Open MPI 4.1": ("mpirun.openmpi", "4.1.4"),
        "MPICH": ("mpiexec", "4.3.2"),
        "Intel MPI": ("mpiexec.hydra", "2021.18.1"),
        "Slurm": ("srun", "22.05.8"),
    }
    assert strangers == {
        f"{path}/mpirun.old": "says 'mpirun (Open MPI) 3.1.6' to --version"
    }


def test_python_packages_are_not_asked(tmp_path: Path) -> None:
    """Tests that a launcher which imports for seconds tells its version unasked."""
    path = programs(tmp_path, "torchrun", "python3", "lightgbm")
    found, strangers = survey_launchers(path, pytest.fail)
    assert here(found) == {
        "torchrun": ("torchrun", package_version("torch")),
        "lightgbm": ("lightgbm", package_version("lightgbm")),
    }
    assert not strangers


def test_a_program_that_does_not_answer(tmp_path: Path) -> None:
    """Tests that a program which can't be asked is told of, and holds up none."""
    path = programs(tmp_path, "mpirun", "flux")

    def ask(program: str) -> str:
        if program.endswith("mpirun"):
            raise LaunchError("mpirun --version did not answer")
        return "commands: 0.50.0"

    found, strangers = survey_launchers(path, ask)
    assert here(found) == {"Flux": ("flux", "0.50.0")}
    assert strangers == {f"{path}/mpirun": "mpirun --version did not answer"}


def test_every_launcher_says_what_it_does() -> None:
    """Tests that all in the tables are listed, with mechanism and source."""
    found, _ = survey_launchers("")
    assert len(found) == len(LAUNCHERS) + len(HOST_LAUNCHERS)
    assert all(one.mechanism and one.source for one in found)
    assert len({one.title for one in found}) == len(found)


@pytest.mark.parametrize(
    ("version", "here", "remedy"),
    [
        ("2.13.0+cpu", "each in its own order, by new_group", "'torch>=2.13'"),
        ("3.1.0", "from_group; 2.13 was read", "'torch>=2.13'"),
        ("2.12.1", "", "(here 2.12.1: all in the order of ranks, which is the la"),
        ("2.6.0a0", "", "(here 2.6.0a0: all in"),
        ("", "", "pip install 'torch>=2.13'"),
    ],
)
def test_the_order_of_torchs_groups(version: str, here: str, remedy: str) -> None:
    """Tests that each version is told its way, or how to get one that has groups."""
    found = torch_groups(version)
    assert (bool(found.here), bool(here)) in {(True, True), (False, False)}
    assert here in found.here
    assert remedy in found.remedy
    assert ("was read" in found.here) == (version == "3.1.0")
