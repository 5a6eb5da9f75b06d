from __future__ import annotations

import pytest

from cloudcoll.rankmap import RankMap
from cloudcoll.report.bound import gap_words
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
        (1.0, 1.0 - 1e-9, "perfect: no order is predicted to be faster"),
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


def test_json_has_the_gap() -> None:
    """Tests the number, and null where it is not known."""
    assert map_json(answer(1.5, 1.0))["gap"] == 0.5
    assert map_json(answer(1.5, None))["gap"] is None
