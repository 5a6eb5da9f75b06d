"""Tests of when a bench measures what messages cost, and of where that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model.message_costs import MessageCosts, costs_in
from cloudcoll.tune.choose import TuningJob
from cloudcoll.work import message_costs
from cloudcoll.work.message_costs import with_costs_of_launch

COSTS = MessageCosts((1024.0, 65536.0), (1e-4, 2e-4))
SLOTS = (1,) * 4
ENOUGH_S = 60.0

Measured = list[tuple[str, ...]]


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
            ("mpirun", "program"),
            1,
            tuple(map(Host, snapshot.names)),
            "F",
            SLOTS,
            library="openmpi@5.0.11",
        )

    return made


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """The hosts of each measurement that was asked for; nothing is started."""
    found: Measured = []
    monkeypatch.setattr(message_costs, "find_mpicc", lambda *_: "mpicc")
    monkeypatch.setattr(message_costs, "mpi_program", lambda *_: ("bench",))
    monkeypatch.setattr(message_costs, "parse_launch", lambda argv, env: argv)

    def measure(job: TuningJob, bench: object) -> MessageCosts:
        found.append(job.given)
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
    found = with_costs_of_launch(old, request_of(old), path, until(ENOUGH_S))
    assert costs_in(found, "openmpi", SLOTS) == COSTS
    kept = load_snapshot(path)
    assert kept.digest == found.digest != old.digest
    assert kept.metadata == found.metadata
    assert with_costs_of_launch(kept, request_of(kept), path, until(60.0)) is kept
    assert measured == [old.names]


def test_a_newer_snapshot_is_not_overwritten(
    path: Path, request_of: Callable[..., LaunchRequest], measured: Measured
) -> None:
    """Tests a file that a probe has replaced meanwhile: costs are used, not kept."""
    old = load_snapshot(path)
    newer = replace(old, created=old.created + 1.0).save(path)
    found = with_costs_of_launch(old, request_of(old), path, until(ENOUGH_S))
    assert costs_in(found, "openmpi", SLOTS) == COSTS
    assert found.digest == old.digest
    assert load_snapshot(path).digest == newer.digest
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 15.0),
        ({"library": "impi@2021"}, ENOUGH_S),
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
    assert with_costs_of_launch(old, request, path, until(seconds)) is old
    assert not measured


def test_not_without_a_compiler(
    path: Path,
    request_of: Callable[..., LaunchRequest],
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests hosts on which nobody compiles: a bench by mpi4py needs none."""

    def missing(*_: object) -> str:
        raise LaunchError("no mpicc")

    monkeypatch.setattr(message_costs, "find_mpicc", missing)
    old = load_snapshot(path)
    assert with_costs_of_launch(old, request_of(old), path, until(ENOUGH_S)) is old
    assert not measured
