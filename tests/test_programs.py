from __future__ import annotations

import json
import os
import sys

import pytest

from cloudcoll.errors import CloudcollError
from cloudcoll.probe.frames import FrameError
from cloudcoll.programs import MAX_LINE, PIECE, program_folder, run_job

READER = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from probes.start import read_request; "
    "print(read_request(sys.stdin.buffer).decode())"
)
LOSSY = """
import os, subprocess, sys
job = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
while data := os.read(0, 1 << 20):
    # The last of what is there, as PRRTE does.
    job.stdin.write(data[(len(data) - 1) // 4096 * 4096:])
    job.stdin.flush()
    if job.poll() is not None:
        break
"""
"""A launcher that loses what PRRTE loses."""


def run(code: str, *, timeout: float = 30.0, silence: float = 30.0) -> list[bytes]:
    argv = [sys.executable, "-c", code]
    with run_job(argv, {"answer": 42}, os.environ, timeout, silence) as lines:
        return list(lines)


def test_a_line_in_and_lines_out() -> None:
    """Tests that the job reads its request, and that remarks are passed over."""
    code = "print('remark'); print(input()); print('{}', end='\\n[1]\\n{half')"
    assert run(code) == [b'{"answer": 42}', b"{}"]


def test_a_job_that_reads_nothing_stops_nobody() -> None:
    """Tests that a request larger than a pipe needs no reader."""
    argv = [sys.executable, "-c", "print('{}')"]
    with run_job(argv, {"long": "x" * (1 << 20)}, os.environ, 30.0) as lines:
        assert list(lines) == [b"{}"]


@pytest.mark.parametrize("length", [1, PIECE - 9, PIECE - 8, 3 * PIECE, 1 << 19])
@pytest.mark.parametrize("launcher", [(), (sys.executable, "-c", LOSSY)])
def test_a_request_of_any_length_arrives(
    length: int, launcher: tuple[str, ...]
) -> None:
    """Tests pieces, whatever they begin with, also where PRRTE would lose some."""
    request = {"x": (".+" * length)[:length]}
    reader = (sys.executable, "-c", READER, str(program_folder().parent))
    with run_job([*launcher, *reader], request, os.environ, 30.0) as lines:
        assert json.loads(next(lines)) == request
        assert list(lines) == []


def test_what_came_before_a_failure_is_taken() -> None:
    """Tests that an exit code is an error only after the last line."""
    argv = [sys.executable, "-c", "print('{}'); raise SystemExit(3)"]
    taken = []
    with (
        pytest.raises(CloudcollError, match="exit code 3"),
        run_job(argv, {}, os.environ, 30.0) as lines,
    ):
        taken = list(lines)
    assert taken == [b"{}"]


@pytest.mark.parametrize(
    ("code", "limits", "words"),
    [
        ("import signal; signal.pause()", {"timeout": 0.1}, "out of time"),
        (
            "import signal; print('{}', flush=True); signal.pause()",
            {"silence": 0.1},
            "no word for 100 ms",
        ),
        (f"print('{{' + 'x' * {2 * MAX_LINE})", {}, "a line of over"),
    ],
)
def test_a_job_out_of_hand_is_ended(
    code: str, limits: dict[str, float], words: str
) -> None:
    """Tests that waits have a deadline, from start to end and between lines."""
    with pytest.raises(CloudcollError, match=words):
        run(code, **limits)


def test_a_launcher_that_is_not_there() -> None:
    """Tests that a program that cannot be started is named."""
    with (
        pytest.raises(CloudcollError, match="cannot run no-such-launcher"),
        run_job(["no-such-launcher"], {}, os.environ, 1.0),
    ):
        pass


def test_a_reader_that_fails_leaves_no_job() -> None:
    """Tests that the job has ended when its block is left by an error."""
    code = "import os, signal; print('{%d' % os.getpid(), flush=True); signal.pause()"
    pids = []

    def read() -> None:
        with run_job([sys.executable, "-c", code], {}, os.environ, 30.0) as lines:
            pids.append(int(next(lines)[1:]))
            raise FrameError("not ours")

    with pytest.raises(FrameError):
        read()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
