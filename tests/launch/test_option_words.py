from __future__ import annotations

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import (
    Option,
    Syntax,
    deal,
    even_counts,
    fill,
    program_start,
    rank_count,
    scan_options,
    where,
    without,
)

LONG = Syntax(frozenset({"flag"}), frozenset({"n"}), frozenset({"mca"}), {"np": "n"})
SHORT = Syntax(
    frozenset({"label", "quiet", "kill"}),
    frozenset({"tasks"}),
    synonyms={"l": "label", "q": "quiet", "K": "kill", "n": "tasks"},
    attached="n",
)


@pytest.mark.parametrize(
    ("syntax", "line", "options", "end"),
    [
        (LONG, "run app -n 3", [], 1),
        (LONG, "run - -n 3", [], 1),
        (LONG, "run -flag -np 3 app", [("flag", ()), ("n", ("3",))], 4),
        (LONG, "run --mca a b -n=2", [("mca", ("a", "b")), ("n", ("2",))], 5),
        (LONG, "run --flag=x -- -flag", [("flag", ("x",))], 2),
        (SHORT, "run -n4 -n 5 -lq", [("tasks", ("4",)), ("tasks", ("5",))], 5),
        (SHORT, "run -K1 --tasks=6 app", [("kill", ()), ("tasks", ("6",))], 3),
    ],
)
def test_options(
    syntax: Syntax, line: str, options: list[tuple[str, tuple[str, ...]]], end: int
) -> None:
    """Tests names and values of each way to write them, and where they end."""
    argv = line.split()
    found, last = scan_options(argv, syntax)
    named = [(option.name, option.values) for option in found]
    assert (named[: len(options)], last) == (options, end)
    ends = [option.end for option in found]
    assert [option.start for option in found] == [1, *ends][: len(found)]


@pytest.mark.parametrize(
    ("syntax", "line", "reason"),
    [
        (LONG, "run -x", "run option '-x' is not known here"),
        (LONG, "run --mca=a b", "run option '--mca=a' takes two words, no '='"),
        (LONG, "run --mca a", "run option '--mca' lacks its value"),
        (LONG, "run -n", "run option '-n' lacks its value"),
        (SHORT, "run -n", "run option '-n' lacks its value"),
        (SHORT, "run -lz", "run option '-lz' is not known here"),
    ],
)
def test_unknown_options(syntax: Syntax, line: str, reason: str) -> None:
    """Tests that each is named as it was typed."""
    with pytest.raises(LaunchError, match=reason):
        scan_options(line.split(), syntax)


def test_where_the_program_is() -> None:
    """Tests one behind a --, one without, and none."""
    assert program_start(["run", "-l", "app"], 2) == 2
    assert program_start(["run", "--", "app"], 1) == 2
    assert program_start(["run", "--", "--"], 1) == 2
    for argv in (["run"], ["run", "--"]):
        with pytest.raises(LaunchError, match="names no program"):
            program_start(argv, 1)


def test_some_options_are_left_out() -> None:
    """Tests that their words go, however many each has, up to where they end."""
    argv = ["run", "-n", "3", "-q", "-n", "4", "app"]
    options = [Option("n", ("3",), 1, 3), Option("q", (), 3, 4), Option("n", (), 4, 6)]
    assert where(options, {"n"}) == ((1, 3), (4, 6))
    assert without(argv, where(options, {"n"}), 6) == ("run", "-q")
    assert without(argv, (), 7) == tuple(argv)


def test_the_first_number_of_ranks_counts() -> None:
    """Tests that it must be at least 1, and None stands for no such option."""
    options = [Option("x", ("9",), 1, 2), Option("n", ("1",), 2, 3)]
    assert rank_count([*options, Option("n", ("2",), 3, 4)], "n") == 1
    assert rank_count(options, "np", "m") is None
    for text in ("0", "-1", "x", ""):
        with pytest.raises(LaunchError, match=f"-n '{text}' is not a number of ranks"):
            rank_count([Option("n", (text,), 1, 2)], "n")


@pytest.mark.parametrize(
    ("total", "filled", "dealt"),
    [
        (1, (1, 0, 0), (1, 0, 0)),
        (4, (2, 1, 1), (2, 1, 1)),
        (5, (2, 1, 2), (2, 1, 2)),
        (6, (2, 1, 3), (2, 1, 3)),
    ],
)
def test_ranks_over_hosts(
    total: int, filled: tuple[int, ...], dealt: tuple[int, ...]
) -> None:
    """Tests hosts with room for two, one and three ranks."""
    assert fill((2, 1, 3), total) == filled
    assert deal((2, 1, 3), total) == dealt
    assert (fill((3, 3), 3), deal((3, 3), 3)) == ((3, 0), (2, 1))


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"n": "6"}, (2, 2, 2)),
        ({"n": "3"}, (1, 1, 1)),
        ({"ppn": "1"}, (1, 1, 1)),
        ({"ppn": "4"}, (4, 4, 4)),
        ({"n": "6", "ppn": "2"}, (2, 2, 2)),
        ({}, "no ranks for 3 hosts: say how many each takes"),
        ({"n": "2"}, "2 ranks for 3 hosts: say how many each takes"),
        ({"n": "7"}, "7 ranks for 3 hosts: say how many each takes"),
        ({"n": "7", "ppn": "2"}, "7 ranks are not 2 on each of 3 hosts"),
        ({"n": "2", "ppn": "2"}, "2 ranks are not 2 on each of 3 hosts"),
    ],
)
def test_as_many_on_each_host(
    given: dict[str, str], counts: tuple[int, ...] | str
) -> None:
    """Tests ranks in all and on each host: both may be told, and have to fit."""
    hosts = [Host(name) for name in "abc"]
    options = [Option(name, (text,), 1, 2) for name, text in given.items()]
    if isinstance(counts, tuple):
        assert even_counts(hosts, options, "n", "ppn") == counts
        return
    with pytest.raises(LaunchError, match=counts):
        even_counts(hosts, options, "n", "ppn")
