from __future__ import annotations

import subprocess

import pytest

from cloudcoll.launch.readback import started_values

NAME = "CLOUDCOLL_TEST_RANK"
INNER = f"{NAME}=inner sh -c 'echo ready; read line'; :"


def test_values_of_all_that_descend_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a child and its child, what they lack, and a value that is our own."""
    monkeypatch.delenv(NAME, raising=False)
    assert started_values(NAME) == set()
    with subprocess.Popen(
        ["sh", "-c", INNER],
        env={NAME: "outer=1", "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert started_values(NAME) == {"outer=1", "inner"}
        assert started_values(NAME[:-1]) == set()
        # Of a child that has not become its program yet this is ours.
        monkeypatch.setenv(NAME, "inner")
        assert started_values(NAME) == {"outer=1"}
        child.communicate(b"\n", timeout=120)
    assert started_values(NAME) == set()
