"""What the driver makes of jobs that go wrong; real ones are in tests/lab."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe import Conduct, job
from cloudcoll.probe.job import Mpi
from cloudcoll.probe.plan import plan_probes

HOSTS = (Host("vm-0"), Host("vm-1"), Host("vm-2"))
PLAN = plan_probes(HOSTS)
HELLO = {"library": "MPI", "names": ["vm-0", "vm-1", "vm-2"], "hosts": [0, 1, 2]}
ROUND = next(PLAN.rounds())
ASKER, PEER = ROUND.pairs[0]
RTT = {
    "host": ASKER,
    "type": "rtt",
    "slot": ROUND.number,
    "peer": PEER,
    "sent": 2,
    "ns": [7000, 8000],
}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "a.snap.partial"


def launcher(tmp_path: Path, *printed: object, code: int = 0) -> list[str]:
    """Return a launcher whose job prints these lines, whatever it is asked."""
    lines = [line if isinstance(line, str) else json.dumps(line) for line in printed]
    script = tmp_path / "launcher"
    text = "\n".join(f"echo {shlex.quote(line)}" for line in lines)
    script.write_text(f"#!/bin/sh\n{text}\nexit {code}\n")
    script.chmod(0o755)
    return [str(script)]


def probe(command: list[str], spool: Path, **options: Any) -> None:
    conduct = Conduct(spool=spool, **options)
    Mpi(command).measure(HOSTS, PLAN, conduct)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{half", "not JSON"),
        ({**RTT, "type": "hello"}, "hello frame with"),
        ({**RTT, "type": "flow"}, "flow frame with windows"),
        ({**RTT, "host": "0"}, "no measurement"),
        ({**RTT, "host": True}, "no measurement"),
        ({**RTT, "host": PEER, "peer": ASKER}, "nobody asked for"),
        ({**RTT, "host": 9}, "nobody asked for"),
        ({**RTT, "slot": 10**6}, "nobody asked for"),
        ({**RTT, "sent": 1}, "2 replies to 1 requests"),
        ({**RTT, "ns": [-1]}, "rtt frame with ns"),
        ({**RTT, "ns": ["7000"]}, "rtt frame with ns"),
    ],
)
def test_wrong_rows_are_refused(
    tmp_path: Path, spool: Path, row: object, words: str
) -> None:
    """Tests that nothing is believed that the plan did not ask for."""
    with pytest.raises(UnusableError, match=words):
        probe(launcher(tmp_path, "a remark", HELLO, row), spool)
    assert not spool.exists()


def test_a_row_counts_once(tmp_path: Path, spool: Path) -> None:
    """Tests that a row that comes twice ends the job, and is kept once."""
    with pytest.raises(UnusableError, match=r"came before; 1 of \d+ .* --resume"):
        probe(launcher(tmp_path, HELLO, RTT, RTT), spool)
    assert json.loads(spool.read_bytes().splitlines()[1]) == RTT


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({}, "did not start our program"),
        ({**HELLO, "hosts": ["0"]}, "did not start our program"),
        ({**HELLO, "names": [1]}, "did not start our program"),
        ({**HELLO, "hosts": [0, -1, -1]}, "two hosts of the list are needed"),
        ({**HELLO, "names": ["x"], "hosts": [-1]}, r"ran on x: .* \(vm-0, vm-1"),
        ({**HELLO, "names": ["vm-0"], "hosts": [0]}, "is srun's --mpi right"),
        ({**HELLO, "hosts": [0, 7, 8]}, "two hosts of the list are needed"),
    ],
)
def test_a_job_elsewhere(
    tmp_path: Path, spool: Path, hello: object, words: str
) -> None:
    """Tests a job that is not ours, or runs on hosts that nobody named."""
    with pytest.raises(UnusableError, match=words):
        probe(launcher(tmp_path, hello), spool)


@pytest.mark.parametrize(
    ("code", "words"), [(0, "ended before the probe did"), (9, "exit code 9")]
)
def test_a_job_that_ends_early(
    tmp_path: Path, spool: Path, code: int, words: str
) -> None:
    """Tests that what came is kept, and what to do next is said."""
    command = launcher(tmp_path, HELLO, RTT, code=code)
    with pytest.raises(UnusableError, match=f"{words}.*; 1 of .* --resume"):
        probe(command, spool)
    assert len(spool.read_bytes().splitlines()) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-launcher"], "cannot run no-such-launcher"),
        (["true"], "did not start our program"),
        (["false"], "did not start our program"),
    ],
)
def test_a_bad_launcher(spool: Path, command: list[str], words: str) -> None:
    """Tests that a command line that starts nothing is a clear answer."""
    with pytest.raises(UnusableError, match=f"nothing was measured .*{words}"):
        probe(command, spool)


def test_a_job_that_hangs(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a job that says nothing more is ended, its rows kept."""
    monkeypatch.setattr(job, "SILENCE_SECONDS", 0.0)
    command = launcher(tmp_path, HELLO, RTT)
    script = Path(command[0])
    script.write_text(script.read_text().replace("exit 0", "exec tail -f /dev/null"))
    with pytest.raises(UnusableError, match=r"out of time .*; 1 of"):
        probe(command, spool)


def test_resuming_needs_the_same_probe(tmp_path: Path, spool: Path) -> None:
    """Tests that rows of another probe are refused before a job starts."""
    with pytest.raises(UsageError, match="nothing to resume"):
        probe(["no-such-launcher"], spool, resume=True)


def test_one_host_needs_no_job(spool: Path) -> None:
    """Tests that there is nothing to measure on a single host."""
    plan = plan_probes(HOSTS[:1])
    snapshot = Mpi(["no"]).measure(HOSTS[:1], plan, Conduct(spool=spool))
    assert (snapshot.failed, spool.exists()) == ({}, False)


class Absent(Mpi):
    """A job whose library nobody has."""

    name = "absent"
    module = "no_such_library"


def test_a_missing_library_is_a_clear_answer(spool: Path) -> None:
    """Tests that nothing is started that could not work, and what to install."""
    with pytest.raises(UnusableError, match=r"no_such_library .* cloudcoll\[absent\]"):
        Absent("true").measure(HOSTS, PLAN, Conduct(spool=spool))
    assert not spool.exists()


@pytest.mark.parametrize(("cores", "at_once"), [(None, 4), (1, 1), (2, 1), (6, 3)])
def test_the_plan_leaves_cores_to_those_who_wait(
    cores: int | None, at_once: int
) -> None:
    """Tests that ranks that share cores meet in few pairs, asked for once."""
    hosts = tuple(Host(f"vm-{i}") for i in range(8))
    plan = Mpi(["true"]).plan(hosts, "standard", 0, cores)
    assert plan.concurrency == at_once
    assert (plan.uplink_s, plan.uplink_flows) == (0.0, 0)


@pytest.mark.parametrize(
    ("launcher", "advised"),
    [
        ("srun -N 4", True),
        ("/usr/bin/srun -N 4", True),
        ("srun -N 4 --ntasks-per-node=1", False),
        ("srun --ntasks-per-node 1", False),
        ("mpirun -N 4", False),
    ],
)
def test_one_task_on_each_host_is_advised(launcher: str, advised: bool) -> None:
    """Tests that srun's command line is judged, and any shown as it will be."""
    first, *more = Mpi(launcher.split()).describe(HOSTS, Conduct())
    assert first.startswith(f"started by: {launcher} ")
    assert first.endswith("start.py mpi_probe")
    assert any("--ntasks-per-node=1" in line for line in more) == advised
