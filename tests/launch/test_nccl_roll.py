from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nccl_job import CHECKS, TURNED, Job, build_standin, counted, ended
from needs import TORCH
from ports import own_port

from cloudcoll.launch import choose_inbox, shim
from cloudcoll.launch.roll import _World
from cloudcoll.rankmap import RankMap

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NCCL, under the name that programs ask for."""
    return build_standin(tmp_path_factory.mktemp("nccl"))


@pytest.mark.many
@pytest.mark.parametrize(("missing", "local"), [(0, 1), (2, 1), (1, 2)])
def test_a_host_without_the_library(standin: Path, missing: int, local: int) -> None:
    """Tests that no check hangs, all run as given, and one line says so."""
    job, size = Job(standin, 3, local), 3 * local
    lack = ", ".join(str(missing * local + i) for i in range(local))
    told = (
        f"{local} of {size} ranks do without the preloaded library ({lack}): "
        "running in the order given"
    )
    with counted(told) as roll:
        env = {**roll, "CLOUDCOLL_SHIM_ORDER": "h2,h1,h0"}
        without = [{"LD_PRELOAD": ""} if i == missing else {} for i in range(3)]
        started = [job.start(i, **env, **without[i]) for i in range(3)]
        assert ended(started) == ["", "", ""]


def test_nobody_counts(standin: Path) -> None:
    """Tests that a job which is not answered runs as given, and waits only once."""
    found = choose_inbox()
    env = {shim.ROLL: f"- {found.port} 127.0.0.1", "CLOUDCOLL_SHIM_ORDER": "h1,h0"}
    first, second = ended(Job(standin, 2).start_all("several_at_a_time", **env))
    assert first == (
        "cloudcoll: cloudcoll run does not answer: running in the order given\n"
    )
    assert second == ""


def test_nothing_to_reorder_takes_no_memory(standin: Path) -> None:
    """Tests that ranks which are in order already get no shadow."""
    with counted() as roll:
        env = {**roll, "CLOUDCOLL_SHIM_ORDER": "h0,h1", "CLOUDCOLL_DEBUG": "1"}
        for said in ended(Job(standin, 2, local=2).start_all("an_allreduce", **env)):
            assert "of the shadow" not in said


@pytest.mark.parametrize(
    "places", ["", "1", "1,0,2", "x", "1,", "1*0,0", "1*99999999", "-1,0", "1,0 "]
)
def test_places_that_make_no_sense(
    standin: Path, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that roots stay, and allreduces follow the order all the same."""
    monkeypatch.setattr(_World, "places", places)
    with counted() as roll:
        env = {**TURNED, **roll}
        names = ["an_allreduce", "roots_stay"]
        assert ended(Job(standin, 2).start_all(*names, **env)) == ["", ""]


TORCHRUN = Path(sys.executable).with_name("torchrun")

# What torchrun tells its ranks, as the program of the checks wants it.
RANKED = 'export FIRST="$RANK" SIZE="$WORLD_SIZE" LOCAL=1; exec "$@"'


@TORCH.mark
@pytest.mark.parametrize(
    # One that lacks it, in less time: test_a_host_without_the_library.
    "lacking",
    [False, pytest.param(True, marks=pytest.mark.soak)],
)
@pytest.mark.slow
def test_a_job_of_torchrun(standin: Path, tmp_path: Path, lacking: bool) -> None:
    """Tests the whole way: a map, cloudcoll run, torchrun, allreduces reordered.

    One host may be started without cloudcoll: then none reorders.
    """
    RankMap(("h1", "h0"), (1, 1)).save(tmp_path / "map")
    port = str(own_port())
    started = []
    for i in range(2):
        prefix = [sys.executable, "-m", "cloudcoll.cli", "run", "--inject", "shim"]
        torchrun = [
            *(str(TORCHRUN), "--nnodes=2", f"--node-rank={i}", "--no-python"),
            *("--master-addr=127.0.0.1", f"--master-port={port}"),
        ]
        program = ["sh", "-c", RANKED, "sh", sys.executable, str(CHECKS)]
        env = {
            "CLOUDCOLL_HOST": f"h{i}",
            "CLOUDCOLL_MAP": str(tmp_path / "map"),
            "JOB": f"/standin-{port}",
            "STANDIN": str(standin),
            "PLACES": "[0, 1]" if lacking else "[1, 0]",
        }
        started.append(
            subprocess.Popen(
                [*prefix * (not (lacking and i)), *torchrun, *program, "an_allreduce"],
                cwd=ROOT,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    first, _ = ended(started)
    assert first.count("1 of 2 ranks do without the preloaded library (1)") == lacking
