"""The commands as functions: what they return, and what a reporter hears."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cloudcoll
from cloudcoll.errors import LaunchError, UsageError
from cloudcoll.measured import synth
from cloudcoll.work.measure import prepare
from cloudcoll.work.tune import TuneOptions, tune_on


class Listener(cloudcoll.Reporter):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.works: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextlib.contextmanager
    def progress(
        self, what: str, *, patience: float | None = None
    ) -> Iterator[Callable[[float, float], None]]:
        self.works.append(what)
        yield lambda done, planned: None


@pytest.fixture
def snapshot() -> cloudcoll.NetworkSnapshot:
    """Two uneven racks, whose hosts are mixed in the order given."""
    fabric = synth.racks((4, 3), nic=50e6, uplink=50e6, seed=2)
    return synth.observe(fabric).with_fabric(fabric)


def test_an_order_from_python(snapshot: cloudcoll.NetworkSnapshot) -> None:
    """Tests that the ring follows the racks, and that the choice is told."""
    heard = Listener()
    best = cloudcoll.order_for(snapshot, algorithm="ring", reporter=heard)
    assert snapshot.fabric
    racks = [set(rack.leaves()) for rack in snapshot.fabric.root.children]
    where = [next(i for i, r in enumerate(racks) if n in r) for n in best.order]
    changes = sum(a != b for a, b in zip(where, [*where[1:], where[0]], strict=True))
    assert changes == len(racks)
    assert heard.works == ["searching orders of 7 hosts"]
    chosen = cloudcoll.order_for(snapshot, library="mpich@4.1", reporter=heard)
    assert chosen.schedule["run_by"] == "mpich"
    assert "MPICH 4.1" in heard.lines[0]


def test_some_of_the_hosts_with_their_slots(
    snapshot: cloudcoll.NetworkSnapshot,
) -> None:
    """Tests that hosts and slots are those of the job, and rank 0 stays."""
    some = [cloudcoll.Host(name, slots=2) for name in snapshot.names[2:6]]
    best = cloudcoll.order_for(snapshot, some, size=1 << 20)
    assert sorted(best.order) == sorted(host.name for host in some)
    assert (best.order[0], best.slots) == (some[0].name, (2, 2, 2, 2))
    with pytest.raises(UsageError, match="unknown collective"):
        cloudcoll.order_for(snapshot, collective="allredcue")


def test_a_path_may_be_text() -> None:
    """Tests that what types forbid does not fail after all has been measured."""
    wanted = cloudcoll.OrderRequest(snapshot_path="a.snap", map_path="b.json")  # type: ignore[arg-type]
    assert (wanted.snapshot_path, wanted.map_path) == (Path("a.snap"), Path("b.json"))


def test_a_job_from_python(tmp_path: Path) -> None:
    """Tests the job's exit code, that it ran once, and that signals are ours again."""
    before = signal.getsignal(signal.SIGTERM)
    mark, heard = tmp_path / "ran", Listener()
    words = ["sh", "-c", f"echo once >> {mark}; exit 7"]
    assert cloudcoll.start(words, reporter=heard) == 7
    assert mark.read_text() == "once\n"
    assert signal.getsignal(signal.SIGTERM) is before
    assert heard.lines[0].endswith("running the command unchanged")


def test_a_strict_job_is_not_started(tmp_path: Path) -> None:
    """Tests that what can't be reordered does not run where that is asked."""
    mark = tmp_path / "ran"
    strict = cloudcoll.StartOptions(strict=True)
    with pytest.raises(LaunchError, match="not started because of --strict"):
        cloudcoll.start(["touch", str(mark)], options=strict)
    assert not mark.exists()


def test_a_probe_that_is_only_planned() -> None:
    """Tests that nothing is sent, and what would be is known."""
    with pytest.raises(UsageError, match="no hosts"):
        prepare((), via="local")
    named = tuple(cloudcoll.Host(f"127.0.0.{i}") for i in (1, 2, 3))
    planned = prepare(named, via="local", mode="quick", seed=5)
    assert (planned.plan.hosts, planned.plan.seed) == (3, 5)
    assert planned.notes()[0].startswith("started by: python3")


@pytest.mark.usefixtures("patient_probes")
def test_a_measurement_from_python(tmp_path: Path) -> None:
    """Tests that a snapshot is kept where it is asked for, with its network."""
    heard, path = Listener(), tmp_path / "net.snap"
    snapshot = cloudcoll.measure(
        "127.0.0.[1-3]", via="local", mode="quick", output=path, reporter=heard
    )
    assert cloudcoll.load_snapshot(path).digest == snapshot.digest
    assert snapshot.fabric
    assert set(snapshot.fabric.hosts) == set(snapshot.names)
    assert heard.works[0].startswith("probing 3 hosts, at most ")


def test_a_job_ends_for_a_program_with_threads() -> None:
    """Tests that other threads may take the signal of a job's end."""
    program = (
        "import threading, cloudcoll\n"
        "for _ in range(8):\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "codes = {cloudcoll.start(['sh', '-c', 'exit 3']) for _ in range(12)}\n"
        "raise SystemExit(codes != {3})\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)


@pytest.mark.slow
def test_a_signal_reaches_the_job_of_a_program_with_threads() -> None:
    """Tests that a signal that another thread takes is handed on, too."""
    program = (
        "import threading, cloudcoll\n"
        "for _ in range(8):\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "job = \"trap 'exit 7' TERM; echo up; sleep 50 & wait\"\n"
        "raise SystemExit(cloudcoll.start(['sh', '-c', job]))\n"
    )
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as started:
            try:
                assert started.stdout
                assert started.stdout.readline() == b"up\n"
                started.terminate()
                assert started.wait(timeout=120) == 7
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)


def test_order_and_algorithms_from_python(
    snapshot: cloudcoll.NetworkSnapshot,
) -> None:
    """Tests that what is chosen comes back, and its words go to the reporter alone."""
    heard = Listener()
    asked = TuneOptions(library="openmpi@5.0.11", size=8 << 20)
    answer = tune_on(snapshot, options=asked, reporter=heard)
    assert answer.rank_map.tuning
    assert answer.rank_map.tuning.library == "openmpi@5.0.11"
    assert answer.tuned <= answer.ordered <= answer.given
    assert heard.lines
    with pytest.raises(UsageError, match="whose algorithms"):
        tune_on(snapshot)
