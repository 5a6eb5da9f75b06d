from __future__ import annotations

import os
import signal

import pytest

from cloudcoll.launch.signals import FORWARDED, held_signals, other_threads


@pytest.mark.parametrize(
    ("threads", "told"), [(["7"], False), (["7", "8"], True), (None, True)]
)
def test_threads_that_may_take_our_signals(
    threads: list[str] | None, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests one thread, two, and a system that does not tell."""

    def listdir(path: str) -> list[str]:
        assert path == "/proc/self/task"
        if threads is None:
            raise FileNotFoundError(path)
        return threads

    monkeypatch.setattr(os, "listdir", listdir)
    assert other_threads() is told


def test_handlers_are_as_before_when_the_job_is_over() -> None:
    """Tests it of a program that runs a job, but for what was ignored meanwhile."""
    before = {number: signal.getsignal(number) for number in FORWARDED}
    children = signal.getsignal(signal.SIGCHLD)
    try:
        with held_signals():
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        after = {number: signal.getsignal(number) for number in FORWARDED}
        assert after == before | {signal.SIGUSR2: signal.SIG_IGN}
        assert signal.getsignal(signal.SIGCHLD) == children
    finally:
        signal.signal(signal.SIGUSR2, before[signal.SIGUSR2])
