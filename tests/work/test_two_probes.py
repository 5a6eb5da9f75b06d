"""Tests of two probes of the same hosts at once: the later one waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from cloudcoll.files.locks import lock
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path, load_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.work import Reporter
from cloudcoll.work.measure import measure
from cloudcoll.work.request import OrderRequest
from cloudcoll.work.snapshots import usable_snapshot

LOCAL = (Host("127.0.0.1"), Host("127.0.0.2"))
T = TypeVar("T")


class Heard(Reporter):
    """Knows what was said, and when a probe has to wait."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waits = threading.Event()

    def say(self, line: str) -> None:
        """Take a line."""
        self.lines.append(line)
        if "waiting for it" in line:
            self.waits.set()


@contextmanager
def beside(another: Path, heard: Heard, work: Callable[[], T]) -> Iterator[Future[T]]:
    """Begin work while another probe has this lock, which ends with the context."""
    another.parent.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool, another.open("ab") as file:
        assert lock(file)
        future = pool.submit(work)
        assert heard.waits.wait(60.0)
        assert not future.done()
        yield future


def lock_of(hosts: tuple[Host, ...]) -> Path:
    return latest_path(hosts).with_suffix(".lock")


def test_a_probe_waits_for_another_of_its_hosts() -> None:
    """Tests that it measures once the other one has ended, and says that it waits."""
    heard = Heard()

    def work() -> NetworkSnapshot:
        return measure(LOCAL, via="local", mode="quick", reporter=heard)

    with beside(lock_of(LOCAL), heard, work) as future:
        pass
    assert future.result().names == ("127.0.0.1", "127.0.0.2")
    assert len(heard.lines) == 1


def test_a_run_takes_what_the_other_probe_found() -> None:
    """Tests that nothing is probed where a snapshot is there by then."""
    fabric = racks((2, 2))
    network = observe(fabric, samples=2).with_fabric(fabric)
    hosts, heard = tuple(map(Host, network.names)), Heard()
    request = LaunchRequest(
        OpenMpi4(), ("mpirun", "app"), 1, hosts, "F", (1,) * 4, library="openmpi@5.0.11"
    )

    def work() -> NetworkSnapshot:
        return usable_snapshot(request, OrderRequest(), heard)

    with beside(lock_of(hosts), heard, work) as future:
        stored = network.save(latest_path(hosts))
    assert future.result().digest == stored.digest
    assert load_snapshot(latest_path(hosts)).digest == stored.digest


def test_a_forced_probe_waits_for_nobody() -> None:
    """Tests that it measures beside the other one."""
    path, heard = lock_of(LOCAL), Heard()
    path.parent.mkdir(parents=True)
    with path.open("ab") as another:
        assert lock(another)
        found = measure(LOCAL, via="local", mode="quick", reporter=heard, force=True)
    assert found.names == ("127.0.0.1", "127.0.0.2")
    assert not heard.lines


def test_nobody_waits_where_no_file_can_be_locked() -> None:
    """Tests a folder in the place of the lock."""
    lock_of(LOCAL).mkdir(parents=True)
    heard = Heard()
    found = measure(LOCAL, via="local", mode="quick", reporter=heard)
    assert found.names == ("127.0.0.1", "127.0.0.2")
    assert not heard.lines
