from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated import Clock

from cloudcoll.daemon.state import Publish
from cloudcoll.daemon.store import POINT_S, PUBLISHED, SHOWN, History, Store
from cloudcoll.daemon.view import Point, Publication
from cloudcoll.errors import UnusableError

NOW = 3000 * POINT_S


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock(NOW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made = Store(tmp_path / "history.db")
    yield made
    made.close()


def test_the_last_of_some_minutes_is_kept(store: Store, clock: Clock) -> None:
    """Tests that a series has one point a while, and none where nothing is known."""
    history = History(store, clock)
    for seconds, value in ((0.0, 0.0), (20.0, 1.0), (POINT_S, 2.0)):
        clock.now = NOW + seconds
        history.keep({"up 1": value, "down 1": math.nan})
    found = (Point(NOW, "up 1", math.e), Point(NOW + POINT_S, "up 1", math.exp(2.0)))
    assert history.points == store.since(0.0, 10) == found


def test_only_so_many_are_in_memory(store: Store, clock: Clock) -> None:
    """Tests that the oldest points and publications go."""
    history = History(store, clock)
    history.keep({f"up {i}": 0.0 for i in range(SHOWN)})
    clock.now += POINT_S
    history.keep({"up 0": 0.0})
    assert len(history.points) == SHOWN
    assert history.points[-1] == Point(NOW + POINT_S, "up 0", 1.0)
    for number in range(PUBLISHED + 1):
        history.note(Publish(keep=True, reason=str(number)))
    assert [one.reason for one in history.published] == [
        str(number) for number in range(1, PUBLISHED + 1)
    ]


def test_a_restart_takes_up_what_was_seen(store: Store, clock: Clock) -> None:
    """Tests that curves and publications of an earlier daemon are shown."""
    first = History(store, clock)
    first.keep({"up 1": 0.5})
    first.note(Publish(keep=False, gain=0.5, reason="up 1"))
    again = History(store, clock)
    assert (again.points, again.published) == ((), ())
    again.recall()
    assert (again.points, again.published) == (first.points, first.published)
    assert again.published == (Publication(NOW, kept=False, gain=0.5, reason="up 1"),)


def test_what_cannot_be_written_is_shown(store: Store, clock: Clock) -> None:
    """Tests a store that is gone: it is told, and memory goes on."""
    history = History(store, clock)
    store.close()
    with pytest.raises(UnusableError):
        history.keep({"up 1": 0.0})
    with pytest.raises(UnusableError):
        history.note(Publish(keep=True))
    assert (len(history.points), len(history.published)) == (1, 1)
