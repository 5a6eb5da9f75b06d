from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.rankmap import RankMap
from cloudcoll.report.gains import gap_words, order_words, without_words
from cloudcoll.report.maps import map_json, map_lines


def answer(seconds: float, bound: float | None, assumption: str = "") -> RankMap:
    return RankMap(
        ("a", "b"),
        (1, 1),
        predicted={"cloudcoll": seconds, "given": seconds},
        lower_bound=bound,
        assumption=assumption,
    )


@pytest.mark.parametrize(
    ("seconds", "bound", "words"),
    [
        (1.0, None, ""),
        (1.0, 0.0, ""),
        (
            1.0,
            1.0 - 1e-9,
            "no order is predicted to be faster than this, given these groups of hosts",
        ),
        (1.001, 1.0, "at most 1 % from perfect: no order takes less than 1 s"),
        (1.031, 1.0, "at most 4 % from perfect: no order takes less than 1 s"),
        (3.5, 1.0, "no order takes less than 1 s"),
    ],
)
def test_the_gap_in_words(seconds: float, bound: float | None, words: str) -> None:
    """Tests that shares are rounded up, and weak bounds give no share."""
    rank_map = answer(seconds, bound)
    assert gap_words(rank_map) == words
    assert not words or words in map_lines(rank_map)


def test_assumed_speeds_give_no_seconds() -> None:
    """Tests that a bet on labels is bounded by a share alone."""
    assert gap_words(answer(1.5, 1.0, "a bet")) == "at most 50 % from perfect"
    assert gap_words(answer(2.5, 1.0, "a bet")) == ""


def test_an_order_is_kept_for_a_reason() -> None:
    """Tests the words where nothing can be gained, and where nothing was found."""
    assert answer(1.0, 1.0).kept == "no gain possible: order kept"
    assert answer(1.2, 1.0).kept == "no gain expected: order kept"
    assert answer(1.2, None).kept == "no gain expected: order kept"
    partly = replace(answer(1.0, 1.0), measured=0.9)
    assert partly.kept == "no gain expected: order kept"


@pytest.mark.parametrize(
    ("hosts", "predicted", "assumption", "words"),
    [
        (
            2,
            {"given": 3.0, "cloudcoll": 1.5},
            "",
            "order h0 h1: allreduce of 16 MiB should take 1.5 s, not 3 s (2 times as "
            "fast as in the order given)",
        ),
        (
            8,
            {"given": 3.0, "cloudcoll": 1.5},
            "a bet",
            "order h0 h1 h2 h3 h4 h5 ... (8 hosts): allreduce of 16 MiB should be 2 "
            "times as fast as in the order given",
        ),
        (2, {"given": 3.0}, "", "order h0 h1: what it gains is not known"),
    ],
)
def test_an_order_in_words(
    hosts: int, predicted: dict[str, float], assumption: str, words: str
) -> None:
    """Tests that a line has the order, what it is for and what it should gain."""
    schedule = {"collective": "allreduce", "size": 16 << 20}
    names = tuple(f"h{number}" for number in range(hosts))
    rank_map = RankMap(names, (1,) * hosts, schedule, predicted, assumption=assumption)
    assert order_words(rank_map) == words


def test_how_far_the_seconds_may_be_off() -> None:
    """Tests that an interval stands behind the seconds, unless they are assumed."""
    told = replace(answer(1.0, None), intervals={"cloudcoll": (0.5, 2.0)})
    assert " should take 1 s (500 ms to 2 s), not 1 s " in order_words(told)
    assert "to 2 s" not in order_words(replace(told, assumption="a bet"))
    line = next(
        line for line in map_lines(told) if line.strip().startswith("cloudcoll")
    )
    assert "(500 ms to 2 s)  " in line
    assert RankMap.from_json(told.to_json()) == told


@pytest.mark.parametrize("ends", [[2.0, 1.0], [1.0], 3.0, ["a", "b"], [-1.0, 1.0]])
def test_an_interval_that_is_none(ends: object) -> None:
    """Tests that a map's file with one is refused, in a line."""
    data = json.loads(answer(1.0, None).to_json())
    data["intervals"] = {"cloudcoll": ends}
    with pytest.raises(UsageError, match=r"interval|seconds"):
        RankMap.from_json(json.dumps(data))


def test_a_workloads_order_in_words() -> None:
    """Tests that a workload is named."""
    rank_map = replace(answer(1.0, None), schedule={"workload": "fsdp"})
    assert order_words(rank_map) == (
        "order a b: a step of fsdp should take 1 s, not 1 s (1 times as fast as in the "
        "order given)"
    )


def test_json_has_the_gap() -> None:
    """Tests the number, and null where it is not known."""
    assert map_json(answer(1.5, 1.0))["gap"] == 0.5
    assert map_json(answer(1.5, None))["gap"] is None


@pytest.mark.parametrize(
    ("after", "said"), [(0.5, True), (0.74, True), (0.76, False), (2.0, False)]
)
def test_a_host_is_given_up_for_more_than_its_work(after: float, said: bool) -> None:
    """Tests four hosts: three have a third more to do each."""
    sent = {"collective": "allreduce", "size": 1 << 20}
    four = RankMap(
        ("a", "b", "c", "d"), (1,) * 4, schedule=sent, predicted={"cloudcoll": 1.0}
    )
    three = replace(
        four, order=("d", "b", "a"), slots=(1,) * 3, predicted={"cloudcoll": after}
    )
    words = f"without c: allreduce of 1 MiB on 3 hosts should take {after * 1e3:g} ms"
    assert without_words(four, three) == (f"{words}, not 1 s" if said else "")
    bet = replace(four, assumption="a bet")
    assert without_words(bet, three) == ""


def test_hosts_that_are_given_up_are_named_up_to_six() -> None:
    """Tests eight of sixteen, and that what is not predicted is not said."""
    names = tuple("abcdefghijklmnop")
    whole = RankMap(names, (1,) * 16, predicted={"cloudcoll": 9.0})
    half = replace(whole, order=names[8:], slots=(1,) * 8, predicted={"cloudcoll": 1.0})
    assert without_words(whole, half).startswith(
        "without a, b, c, d, e, f and 2 more: "
    )
    assert without_words(whole, replace(half, predicted={})) == ""
