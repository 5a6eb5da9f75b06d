from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from mpis import patient, piped

from cloudcoll import lab as labs
from cloudcoll.measured import synth
from cloudcoll.network.tree import Fabric, Node

ROOT = Path(__file__).parents[2]
MBIT_400 = 50e6


@pytest.fixture(scope="session")
def far_racks() -> Callable[..., labs.LabSpec]:
    """Make specs of racks 500 us apart, all links 400 Mbit/s if not told else.

    In the network that probes find easiest: these tests are of something else.
    """
    return partial(
        labs.quick, nic=MBIT_400, uplink=MBIT_400, rtt=500e-6, preset="tuned"
    )


@pytest.fixture
def lab() -> Iterator[Callable[..., labs.Lab]]:
    """Start labs of any spec; every one is taken down after the test."""
    started: list[str] = []

    def start(spec: labs.LabSpec) -> labs.Lab:
        name = f"test-{len(started)}"
        started.append(name)
        return labs.up(spec, name)

    yield start
    for name in started:
        labs.down(name)


@pytest.fixture(scope="module")
def labs_of_this_file(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, dict[labs.LabSpec, labs.Lab]]]:
    """Keep labs, and the state folder that they are in, for `shared_lab`."""
    home, kept = tmp_path_factory.mktemp("home"), dict[labs.LabSpec, labs.Lab]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(home))
        yield home, kept
        for lab in kept.values():
            labs.down(lab.name)


@pytest.fixture
def shared_lab(
    labs_of_this_file: tuple[Path, dict[labs.LabSpec, labs.Lab]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[labs.LabSpec], labs.Lab]]:
    """Give the tests of a file one lab of each spec, whole at the start of each."""
    home, kept = labs_of_this_file
    monkeypatch.setenv("CLOUDCOLL_HOME", str(home))

    def start(spec: labs.LabSpec) -> labs.Lab:
        if spec not in kept:
            kept[spec] = labs.up(spec, f"shared-{len(kept)}")
        return kept[spec]

    yield start
    for lab in kept.values():
        labs.heal(lab)


@pytest.fixture
def snapshot(cluster: labs.Lab, tmp_path: Path) -> Path:
    """The true fabric of a file's `cluster`, as a snapshot file: no probe needed."""
    racks = [
        Node(
            str(number),
            tuple(Node(name, (), MBIT_400, MBIT_400) for name in names),
            MBIT_400,
            MBIT_400,
            1.25e-4,
        )
        for number, names in enumerate(cluster.groups)
    ]
    fabric = Fabric(Node("core", tuple(racks)))
    path = tmp_path / "true.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return path


@pytest.fixture
def kill_a_rank() -> Callable[[labs.Lab, int], None]:
    """Kill one of our ranks that measure, wherever in the lab it is."""

    def kill(where: labs.Lab, rank: int) -> None:
        wanted = {f"CLOUDCOLL_LAB={where.directory}", f"PMIX_RANK={rank}"}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # gone, or somebody else's
                if wanted <= {"=".join(pair) for pair in process.environ().items()}:
                    process.kill()
                    return
        raise AssertionError(f"no rank {rank} to kill")

    return kill


@pytest.fixture
def inside() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program on a host of a lab and return how it ended."""

    def run(where: labs.Lab, host: str, *argv: str) -> subprocess.CompletedProcess[str]:
        command, env = labs.exec_argv(where, host, argv)
        started = piped(command, env=env)
        return subprocess.CompletedProcess(command, *patient(started, 120))

    return run


@pytest.fixture
def command_line() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``cloudcoll lab`` as a user does."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cloudcoll.cli", "lab", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
