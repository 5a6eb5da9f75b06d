"""What a daemon has seen: the latest in memory, all in SQLite, by time, for curves.

Version history of the schema (``PRAGMA user_version``):

1  first: series, points
2  publications
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cloudcoll.daemon.state import Publish
from cloudcoll.daemon.view import Point, Publication
from cloudcoll.errors import UnusableError

SCHEMA = 2
KEPT_S = 30 * 86400.0
"""Seconds after which points are forgotten."""
LONGEST_NAME = 1024
"""Characters of a series' name; ours have a host's name and a word."""
WAIT_S = 5.0
"""How long another process that reads may keep us waiting."""

_TABLES = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL REFERENCES series (id),
    time REAL NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (series, time)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_time ON points (time);
CREATE TABLE IF NOT EXISTS publications (
    time REAL PRIMARY KEY,
    kept INTEGER NOT NULL,
    gain REAL NOT NULL,
    reason TEXT NOT NULL
);
"""


class Store:
    """The history at `path`; made if it is not there, or UnusableError.

    A write happens whole or not at all, whatever comes between: a full disk, a
    SIGKILL. If it can't be, UnusableError says so, and what was there is intact.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reported("open"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(
                path, timeout=WAIT_S, isolation_level="IMMEDIATE"
            )
        try:
            with self._reported("open"):
                self._prepare()
        except UnusableError:
            self._file.close()
            raise

    def _prepare(self) -> None:
        (found,) = self._file.execute("PRAGMA user_version").fetchone()
        if found > SCHEMA:
            raise UnusableError(
                f"{self.path} has schema {found}, this CloudColl reads {SCHEMA}: "
                "upgrade CloudColl, or move the file away"
            )
        # They run when the tables are read or written, and need not end.
        odd = "SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')"
        if self._file.execute(odd).fetchone() != (0,):
            raise UnusableError(
                f"{self.path} has views or triggers, which CloudColl makes none of: "
                "move it away to begin anew"
            )
        self._file.execute("PRAGMA journal_mode = WAL")
        # A machine that loses power loses some minutes of curves, and no more.
        self._file.execute("PRAGMA synchronous = NORMAL")
        with self._file:
            # Of itself sqlite3 begins at what changes rows, not tables.
            self._file.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                self._file.execute(statement)
            self._file.execute(f"PRAGMA user_version = {SCHEMA}")

    def add(self, points: Iterable[Point]) -> None:
        """Keep `points`, and forget what is older than `KEPT_S` before the last."""
        rows = [(point.series, point.time, point.value) for point in points]
        if not rows:
            return
        names = [(name,) for name in dict.fromkeys(name for name, _, _ in rows)]
        oldest = max(time for _, time, _ in rows) - KEPT_S
        with self._reported("write"), self._file:
            run = self._file.executemany
            run("INSERT OR IGNORE INTO series (name) VALUES (?)", names)
            run(
                "INSERT OR REPLACE INTO points "
                "SELECT id, ?2, ?3 FROM series WHERE name = ?1",
                rows,
            )
            self._file.execute("DELETE FROM points WHERE time < ?", (oldest,))

    def since(self, time: float, most: int) -> tuple[Point, ...]:
        """Return the newest `most` points after `time`, in order of time."""
        with self._reported("read"):
            rows = self._file.execute(
                "SELECT time, name, value FROM points JOIN series ON id = series "
                # A name of megabytes would be there once for each of its points.
                f"WHERE time > ? AND length(name) <= {LONGEST_NAME} "
                "ORDER BY time DESC, name LIMIT ?",
                (time, most),
            ).fetchall()
            # A damaged page may hold anything.
            return tuple(
                Point(float(at), name, float(value)) for at, name, value in rows[::-1]
            )

    def publish(self, one: Publication) -> None:
        """Keep a publication, and forget old ones as `add` does points."""
        row = (one.time, one.kept, one.gain, one.reason)
        oldest = one.time - KEPT_S
        with self._reported("write"), self._file:
            run = self._file.execute
            run("INSERT OR REPLACE INTO publications VALUES (?, ?, ?, ?)", row)
            run("DELETE FROM publications WHERE time < ?", (oldest,))

    def published(self, most: int) -> tuple[Publication, ...]:
        """Return the newest `most` publications, in order of time."""
        with self._reported("read"):
            rows = self._file.execute(
                "SELECT time, kept, gain, reason FROM publications "
                "ORDER BY time DESC LIMIT ?",
                (most,),
            ).fetchall()
            return tuple(
                Publication(float(at), bool(kept), float(gain), str(reason))
                for at, kept, gain, reason in rows[::-1]
            )

    def close(self) -> None:
        """Close the file; a store that is never closed loses nothing either."""
        self._file.close()

    @contextlib.contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            # The latter two of a damaged page: sqlite3 reads its text as UTF-8.
            words = " ".join(str(error).split())  # SQLite quotes statements as they are
            raise UnusableError(
                f"cannot {what} {self.path}: {words} (what was in it before is intact; "
                "move it away to begin anew)"
            ) from error


SHOWN_S = 86400.0
SHOWN = 4000
"""How far back, and how many points, the status page's curves go."""
POINT_S = 300.0
"""For which a series has one point, the last: thirty days of them stay small."""
PUBLISHED = 20
"""Publications that are shown."""


class History:
    """The last points of curves, and the last publications, in order of time.

    What can't be written is shown all the same; `wall` is seconds since the epoch.
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
        """Take up what earlier daemons have seen."""
        self.published = self._store.published(PUBLISHED)
        points = self._store.since(self._wall() - SHOWN_S, SHOWN)
        self._points = {(point.series, point.time): point for point in points}

    def keep(self, values: Mapping[str, float]) -> None:
        """Keep what a beat measured, logarithms of ratios by series; no NaN."""
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
        """Keep that something was put in force."""
        one = Publication(self._wall(), action.keep, action.gain, action.reason)
        self.published = (*self.published, one)[-PUBLISHED:]
        self._store.publish(one)
