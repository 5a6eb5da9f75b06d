from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from cloudcoll.errors import UnusableError
from cloudcoll.probe.agents import Agents
from cloudcoll.resident import (
    Carried,
    Carrier,
    control_pair,
    hand_over,
    taken_over,
)

ECHO = """
import os, socket, sys
from cloudcoll.resident import taken_over
with socket.socket(fileno=0) as control:
    while taken := taken_over(control):
        (name, said), (stdin, stdout, stderr) = taken
        os.write(stdout, os.read(stdin, 100) + name.encode())
        os.write(stderr, said.encode())
        for pipe in (stdin, stdout, stderr):
            os.close(pipe)
"""


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    """A process that answers each host once, and ends with the driver."""
    with Carrier([sys.executable, "-c", ECHO]) as one:
        yield one
    assert one.process.returncode == 0


def test_hosts_share_a_process(carrier: Carrier) -> None:
    """Tests that each host has pipes of its own to the one process."""
    hosts = [carrier.start(name, f"{name} ended") for name in ("a", "b", "c")]
    for name, host in zip("abc", hosts, strict=True):
        with host.stdin, host.stdout, host.stderr:
            host.stdin.write(b"hello ")
            assert host.stdout.read() == f"hello {name}".encode()
            assert host.stderr.read() == f"{name} ended".encode()
    assert {host.pid for host in hosts} == {carrier.process.pid}


def test_a_carrier_that_is_gone() -> None:
    """Tests that hosts fail one by one, with a reason, and no descriptor is left."""
    before = len(os.listdir("/proc/self/fd"))
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Carrier(silent) as dead:
        begun = [("a", lambda: dead.start("a")), ("b", lambda: dead.start("b"))]
        dead.process.send_signal(signal.SIGKILL)
        dead.process.wait()
        with Agents(begun) as agents:
            assert agents.start() == {}
            assert [one.failed for one in agents.agents] == [
                f"cannot run {silent[0]}: Broken pipe"
            ] * 2
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_carrier_that_dies_on_the_way() -> None:
    """Tests that the end of the process is told as each host's."""
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Carrier(silent) as dying:

        def begin() -> Carried:
            begun = dying.start("a")
            dying.process.kill()
            dying.process.wait()
            return begun

        with Agents([("a", begin)]) as agents:
            assert agents.start() == {}
            assert agents.agents[0].failed == "killed by signal 9 (Killed)"


def test_a_carrier_that_cannot_be_started() -> None:
    """Tests the line that says so."""
    with pytest.raises(UnusableError, match="cannot run /no/such: No such file"):
        Carrier(["/no/such"]).__enter__()


def test_pipes_that_did_not_get_over_are_passed_over() -> None:
    """Tests that a host for whose pipes there was no room costs no other."""
    ours, theirs = control_pair()
    with ours, theirs:
        for words, count in (("broken", 2), ("whole", 3)):
            pipes = [end for _ in range(count) for end in os.pipe()]
            hand_over(ours, [words], pipes[:count])
            for end in pipes:
                os.close(end)
        taken = taken_over(theirs)
        assert taken is not None
        assert taken[0] == ["whole"]
        for pipe in taken[1]:
            os.close(pipe)
        ours.close()
        assert taken_over(theirs) is None
