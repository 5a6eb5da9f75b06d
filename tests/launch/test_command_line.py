from __future__ import annotations

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import CommandLine, Syntax, options_start

SYNTAX = Syntax(
    flags=frozenset({"verbose", "no-python"}),
    valued=frozenset({"node-rank", "hostfile"}),
    synonyms={"H": "hostfile", "v": "verbose"},
)


@pytest.mark.parametrize(
    ("words", "values", "program"),
    [
        ("run a.py", {}, "a.py"),
        ("run -v --node_rank 3 a.py -v", {"verbose": "", "node-rank": "3"}, "a.py"),
        ("run -H=x --node-rank=1 --node-rank=2 -- -a", {"node-rank": "2"}, "--"),
        ("run --node-rank -1", {"node-rank": "-1"}, ""),
    ],
)
def test_reading(words: str, values: dict[str, str], program: str) -> None:
    """Tests where options end, and that the last of two counts."""
    line = CommandLine.read(words.split(), 1, SYNTAX)
    assert line.values == values | ({"hostfile": "x"} if "=x" in words else {})
    assert (*line.argv, "")[line.end] == program


def test_replacing() -> None:
    """Tests that new options stand first, and that the program's are left alone."""
    words = "run -v -H old --node_rank 3 --hostfile=older a.py --node-rank 7"
    line = CommandLine.read(words.split(), 1, SYNTAX)
    expected = "run --node-rank=1 -v a.py --node-rank 7"
    assert line.replaced("--node-rank=1", drop=["hostfile"]) == tuple(expected.split())


@pytest.mark.parametrize("words", ["--bogus a.py", "--node-rank", "-x"])
def test_refused(words: str) -> None:
    """Tests that an unknown option or a missing value is not guessed."""
    with pytest.raises(LaunchError, match=r"is not known here|lacks its value"):
        CommandLine.read(["run", *words.split()], 1, SYNTAX)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("/opt/bin/run a.py", 1),
        ("python3 -u -m pkg.run a.py", 4),
        ("python3 a.py -m pkg.run", 0),
        ("python3 pkg.run", 0),
        ("node -m pkg.run", 0),
    ],
)
def test_program_or_module(words: str, start: int) -> None:
    """Tests where options begin of a program that is also a Python module."""
    assert options_start(words.split(), "run", "pkg.run") == start
