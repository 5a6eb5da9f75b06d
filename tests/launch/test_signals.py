from __future__ import annotations

import os

import pytest

from cloudcoll.launch.signals import other_threads


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
