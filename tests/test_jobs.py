from __future__ import annotations

import os
import sys

import pytest

from cloudcoll.errors import CloudcollError
from cloudcoll.jobs import MAX_LINE, run_job
from cloudcoll.probe.frames import FrameError


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
