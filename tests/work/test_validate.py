from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.cli.output import TERMINAL
from cloudcoll.launch import parse_launch
from cloudcoll.probe import rehearsal
from cloudcoll.rankmap import RankMap
from cloudcoll.work.order import validated
from cloudcoll.work.request import OrderRequest

ROOT = Path(__file__).parents[2]
LAUNCHER = """#!/bin/sh
[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || echo "$@"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a launcher that prints its words, a hostfile and a map."""
    (tmp_path / "mpirun").write_text(LAUNCHER)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in "abcd"))
    RankMap(("a", "c", "b", "d"), (1, 1, 1, 1)).save(tmp_path / "map")
    return tmp_path


JOB = ("./mpirun", "--hostfile", "hosts", "app")


def validate(
    folder: Path, *options: str, job: tuple[str, ...] = JOB
) -> tuple[str, str]:
    cloudcoll = [sys.executable, "-m", "cloudcoll.cli", "run", "--validate"]
    done = subprocess.run(
        [*cloudcoll, *options, *job],
        cwd=folder,
        # Nobody answers, and nobody waits for that.
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CLOUDCOLL_RSH": "false",
            "CLOUDCOLL_HOST": "a",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def test_what_cannot_be_measured_is_not_launched(folder: Path) -> None:
    """Tests that the order given starts where no other could be validated."""
    out, err = validate(folder, "--map", "map", "--algorithm", "ring")
    assert out == "--hostfile hosts app\n"
    assert err.count("\n") == 1
    assert err.startswith("cloudcoll: no other could be validated (0 of 4 hosts could")
    assert err.endswith("): order kept\n")


def test_orders_that_send_alike(folder: Path) -> None:
    """Tests that the order given stays where another loads the very same pairs."""
    sent = ["--collective", "alltoall", "--algorithm", "linear"]
    out, err = validate(folder, "--map", "map", *sent)
    assert "--map-by" not in out
    assert err.splitlines()[0] == (
        "cloudcoll: both orders load the same links alike: the one given is launched"
    )


def test_a_launcher_without_a_list(folder: Path) -> None:
    """Tests that what is started on every host says that nothing is validated."""
    job = ("torchrun", "--nnodes=4", "--node-rank=0", "train.py")
    _, err = validate(folder, "--dry-run", "--map", "map", job=job)
    assert err == (
        "cloudcoll: torchrun is started on every host: the order is not validated\n"
    )


def test_a_dry_run_measures_nothing(folder: Path) -> None:
    """Tests that --dry-run reaches for no host."""
    out, err = validate(folder, "--dry-run", "--map", "map", "--algorithm", "ring")
    assert "# order: a c b d" in out
    assert err == ""


@pytest.mark.parametrize(
    ("given_s", "chosen_s", "launched"),
    [(0.2, 0.1, "acbd"), (0.1, 0.2, "abcd"), (0.1, 0.1, "abcd")],
)
def test_the_order_of_less_time_is_launched(
    given_s: float,
    chosen_s: float,
    launched: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests all outcomes of a measurement; the lab's tests measure for real."""

    def measured(hosts: object, orders: object, transport: object) -> dict[str, float]:
        return {"given": given_s, "chosen": chosen_s}

    monkeypatch.setattr(rehearsal, "rehearse", measured)
    argv = ["mpirun", "--hostfile", str(folder / "hosts"), "app"]
    request = parse_launch(argv, {}, lambda: "mpirun (Open MPI) 5.0.11")
    chosen = RankMap(tuple("acbd"), (1, 1, 1, 1))
    taken = validated(request, chosen, OrderRequest(algorithm="ring"), TERMINAL)
    assert "".join(taken.order) == launched
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("not launched") == (launched == "abcd")
