from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from probes.timing import (
    SMALL,
    RankGroup,
    TimedJob,
    World,
    is_narrow,
    sizes_in_time,
    whose_turn,
)


def test_a_size_ends_when_every_ratio_is_known() -> None:
    """Tests that steady orders are enough, a jumping one is not, nor are few."""
    steady = [1.0, 1.001, 0.999, 1.0, 1.0, 1.0]
    jumping = [2.0, 3.0, 2.0, 2.5, 1.5, 2.0]
    assert is_narrow({"a": steady, "b": steady}, "a", 0.01)
    assert not is_narrow({"a": steady, "b": jumping}, "a", 0.01)
    assert not is_narrow({"a": steady[:5], "b": steady[:5]}, "a", 0.01)


@pytest.mark.parametrize("count", range(1, 10))
def test_each_order_follows_each_other_as_often(count: int) -> None:
    """Tests that all have a turn in every repeat, and all neighbours alike in time."""
    before: Counter[tuple[int, int]] = Counter()
    for repeat in range(count * (1 + count % 2)):
        turns = [whose_turn(repeat, turn, count) for turn in range(count)]
        assert sorted(turns) == list(range(count))
        before.update(pairwise(turns))
    assert len(before) == count * (count - 1)
    assert len({*before.values()}) <= 1


def test_drift_that_all_orders_share_is_no_doubt() -> None:
    """Tests that ratios are paired: a network that slows down slows all."""
    drift = np.linspace(1.0, 3.0, 8)
    assert is_narrow({"a": list(drift), "b": list(2 * drift)}, "a", 0.01)


class Counted(RankGroup):
    """A group of one whose calls are counted by size."""

    def __init__(self) -> None:
        super().__init__([0], 0)
        self.sizes: list[int] = []

    def barrier(self) -> None:
        """Have nobody to wait for."""

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Count, and leave the right sum."""
        self.sizes.append(send.nbytes)
        recv[:] = send


class Lonely(World):
    """A rank that is told how long calls take."""

    rank, size, library = 0, 1, "none"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.counted = Counted()

    def share(self, value: Any) -> Any:
        """Return the value."""
        return value

    def gather(self, text: str) -> list[str]:
        """Return the text."""
        return [text]

    def largest(self, value: float) -> float:
        """Return what calls are said to take."""
        return self.seconds

    def total(self, value: int) -> int:
        """Return the value."""
        return value

    def group(self, name: str, members: list[int]) -> RankGroup:
        """Return the only one."""
        return self.counted


@pytest.mark.parametrize(
    ("seconds", "first", "calls"),
    [
        (0.09, SMALL, [1, 1, 2, 1, 2]),
        (0.2, SMALL, [1, 1, 1, 2]),
        (0.2, SMALL // 2, [1, 1, 2, 1, 2]),
    ],
)
def test_slow_calls_need_no_warm_up_at_larger_sizes(
    seconds: float, first: int, calls: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a time box is not spent on long calls that count nothing.

    Nor is it left alone for small calls that were slow: larger ones may be no slower.
    """
    world = Lonely(seconds)
    pace = {"repeats": 1, "least": 1, "seconds": 60.0, "min_seconds": 0.0}
    sizes = [first, 2 * first]
    spec = {"op": "allreduce", "orders": {"given": [0]}, "sizes": sizes}
    TimedJob(world, {**spec, **pace, "narrow": 0.01, "reference": ""}).run()
    assert [size / first for size in world.counted.sizes] == calls
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("rounds", "left", "places"),
    [
        ([1.0, 4.0, 16.0], 105.0, [0, 1, 2]),
        ([1.0, 4.0, 16.0], 104.0, [1, 2]),
        ([1.0, 4.0, 16.0], 80.0, [2]),
        ([1.0, 4.0, 16.0], 79.0, [0, 1]),
        ([1.0, 4.0, 16.0], 20.0, [1]),
        ([1.0, 4.0, 16.0], 19.0, [0]),
        ([1.0, 4.0, 16.0], -1.0, [0]),
        ([1.0], 0.0, [0]),
    ],
)
def test_sizes_are_measured_often_enough_or_not_at_all(
    rounds: list[float], left: float, places: list[int]
) -> None:
    """Tests that small sizes make way for the largest that has time for five."""
    assert list(sizes_in_time(rounds, 5, left)) == places


def test_a_size_without_time_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that a job ends within its time, and says what it did not measure."""
    pace = {"repeats": 9, "least": 3, "seconds": 0.5, "min_seconds": 0.0}
    spec = {"op": "allreduce", "orders": {"given": [0]}, "sizes": [4, 8]}
    TimedJob(Lonely(0.2), {**spec, **pace, "narrow": 0.01, "reference": ""}).run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"spared": 8}
    assert {line["bytes"] for line in lines[1:]} == {4}


class Failing(Lonely):
    """A rank in a world where one order cannot be made, or not be called."""

    def group(self, name: str, members: list[int]) -> RankGroup:
        """Return the only one, if not asked for `unmade`."""
        if name == "unmade":
            raise RuntimeError("no way\nto peer 1")
        return Deaf([0], 0) if name == "deaf" else self.counted


class Deaf(RankGroup):
    """A group in which nobody answers."""

    def barrier(self) -> None:
        """Wait for nobody."""
        raise RuntimeError

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Never come here."""
        raise AssertionError


def test_an_order_that_fails_is_left_out_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that those that can't be made or called are told, and others timed."""
    orders = {"unmade": [0], "deaf": [0], "given": [0]}
    pace = {"repeats": 1, "least": 1, "seconds": 60.0, "min_seconds": 0.0}
    spec = {"op": "allreduce", "orders": orders, "sizes": [4], "reference": "deaf"}
    TimedJob(Failing(0.1), {**spec, **pace, "narrow": 0.01}).run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"order": "unmade", "trouble": "no way to peer 1"}
    assert lines[1] == {"order": "deaf", "trouble": "RuntimeError"}
    assert [line["order"] for line in lines[2:]] == ["given"]
