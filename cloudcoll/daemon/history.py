"""What a daemon and those before it measured: the latest in memory, all in a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from cloudcoll.daemon.events import Publish
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point, Publication

SHOWN_S = 86400.0
SHOWN = 4000
"""How far back, and how many points, the status page's curves go."""
POINT_S = 300.0
"""For which a series has one point, the last: thirty days of them stay small."""
PUBLISHED = 20
"""Publications that are shown."""


class History:
    """Points of curves, and publications.

    What can't be written is shown all the same.

    Parameters
    ----------
    store : Store
    wall : callable
        Seconds since the epoch.

    Attributes
    ----------
    published : tuple of Publication
        The last ones, in order of time.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self.published: tuple[Publication, ...] = ()
        self._store = store
        self._wall = wall
        self._points: dict[tuple[str, float], Point] = {}

    @property
    def points(self) -> tuple[Point, ...]:
        """The last points, in order of time."""
        return tuple(self._points.values())

    def recall(self) -> None:
        """Take up what earlier daemons have seen.

        Raises
        ------
        UnusableError
            It can't be read.
        """
        self.published = self._store.published(PUBLISHED)
        points = self._store.since(self._wall() - SHOWN_S, SHOWN)
        self._points = {(point.series, point.time): point for point in points}

    def keep(self, values: Mapping[str, float]) -> None:
        """Keep what a beat measured: logarithms of ratios by series; NaN is left out.

        Raises
        ------
        UnusableError
            It can't be written.
        """
        now = self._wall() // POINT_S * POINT_S
        points = [
            Point(now, name, math.exp(value))
            for name, value in values.items()
            if not math.isnan(value)
        ]
        self._points |= {(point.series, now): point for point in points}
        for oldest in list(self._points)[:-SHOWN]:
            del self._points[oldest]
        self._store.add(points)

    def note(self, action: Publish) -> None:
        """Keep that something was put in force.

        Raises
        ------
        UnusableError
            It can't be written.
        """
        one = Publication(self._wall(), action.keep, action.gain, action.reason)
        self.published = (*self.published, one)[-PUBLISHED:]
        self._store.publish(one)
