"""Tests of when a bench measures what messages cost, and of where that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model.message_costs import MessageCosts, costs_in
from cloudcoll.tune.choose import TuningJob
from cloudcoll.tune.decide import TuningBench
from cloudcoll.work import message_costs
from cloudcoll.work.message_costs import with_costs_of_launch

COSTS = MessageCosts((1024.0, 65536.0), (1e-4, 2e-4))
SLOTS = (1,) * 4
LAUNCHER, PROGRAM = ("mpirun",), ("python3", "bench")
ENOUGH_S = 60.0

Measured = list[tuple[tuple[str, ...], tuple[str, ...], bool]]
"""Hosts, command line, and whether that makes the library run rings."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A snapshot's file."""
    fabric = racks((2, 2))
    path = tmp_path / "net.snap"
    observe(fabric, samples=2).with_fabric(fabric).save(path)
    return path


@pytest.fixture
def request_of() -> Callable[..., LaunchRequest]:
    """Returns what makes a launch of the snapshot's hosts."""

    def made(snapshot: NetworkSnapshot) -> LaunchRequest:
        return LaunchRequest(
            OpenMpi4(),
            (*LAUNCHER, *PROGRAM),
            1,
            tuple(map(Host, snapshot.names)),
            "F",
            SLOTS,
            library="openmpi@5.0.11",
        )

    return made


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """The measurements that were asked for; nothing is started."""
    found: Measured = []
    monkeypatch.setattr(message_costs, "parse_launch", lambda argv, env: argv)

    def measure(job: TuningJob, bench: TuningBench, forced: bool) -> MessageCosts:
        found.append((job.given, tuple(bench.request), forced))  # type: ignore[arg-type]
        return COSTS

    monkeypatch.setattr(message_costs, "measured_costs", measure)
    return found


def until(seconds: float) -> float:
    return time.monotonic() + seconds


def test_measured_once_and_kept(
    path: Path, request_of: Callable[..., LaunchRequest], measured: Measured
) -> None:
    """Tests that the next bench finds them in the file."""
    old = load_snapshot(path)
    found = with_costs_of_launch(old, LAUNCHER, request_of(old), path, until(ENOUGH_S))
    assert costs_in(found, "openmpi", SLOTS) == COSTS
    kept = load_snapshot(path)
    assert kept.digest == found.digest != old.digest
    assert kept.metadata == found.metadata
    assert (
        with_costs_of_launch(kept, LAUNCHER, request_of(kept), path, until(60.0))
        is kept
    )
    ((hosts, argv, forced),) = measured
    assert hosts == old.names
    assert forced
    assert argv[0] == "mpirun"
    assert "coll_tuned_allgather_algorithm" in argv
    assert argv[-2:] == PROGRAM


def test_a_newer_snapshot_is_not_overwritten(
    path: Path, request_of: Callable[..., LaunchRequest], measured: Measured
) -> None:
    """Tests a file that a probe has replaced meanwhile: costs are used, not kept."""
    old = load_snapshot(path)
    newer = replace(old, created=old.created + 1.0).save(path)
    found = with_costs_of_launch(old, LAUNCHER, request_of(old), path, until(ENOUGH_S))
    assert costs_in(found, "openmpi", SLOTS) == COSTS
    assert found.digest == old.digest
    assert load_snapshot(path).digest == newer.digest
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 15.0),
        ({"library": "impi@2021"}, ENOUGH_S),
        ({"library": "mpich@5.0.2"}, ENOUGH_S),
        ({"library": ""}, ENOUGH_S),
        ({"cyclic": True}, ENOUGH_S),
        ({"counts": (4, 0, 0, 0)}, ENOUGH_S),
    ],
)
def test_not_where_it_can_not_be_known(
    path: Path,
    request_of: Callable[..., LaunchRequest],
    measured: Measured,
    changes: dict[str, object],
    seconds: float,
) -> None:
    """Tests little time, other libraries, ranks dealt in turn, and a single host."""
    old = load_snapshot(path)
    request = replace(request_of(old), **changes)  # type: ignore[arg-type]
    assert with_costs_of_launch(old, LAUNCHER, request, path, until(seconds)) is old
    assert not measured


def test_what_is_told_to_a_communicator(
    path: Path, request_of: Callable[..., LaunchRequest], measured: Measured
) -> None:
    """Tests MPICH, whose command line forces nothing: our program in C tells it."""
    old = load_snapshot(path)
    request = replace(
        request_of(old), library="mpich@5.0.2", argv=(*LAUNCHER, "bench-in-c")
    )
    found = with_costs_of_launch(old, LAUNCHER, request, path, until(ENOUGH_S))
    assert costs_in(found, "mpich", SLOTS) == COSTS
    assert measured == [(old.names, ("mpirun", "bench-in-c"), False)]
