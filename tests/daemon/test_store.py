from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcoll.daemon.store import KEPT_S, SCHEMA, Store
from cloudcoll.daemon.view import Point, Publication
from cloudcoll.errors import UnusableError

NOW = 1e9
WRITE = """
import sys
from pathlib import Path
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point
store = Store(Path(sys.argv[1]))
for number in range(10**9):
    store.add([Point(1e9 + number, name, number) for name in "abcd"])
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made = Store(tmp_path / "history.db")
    yield made
    made.close()


def points(*times: float, series: str = "up 1") -> list[Point]:
    """Return points of a series whose values are their times."""
    return [Point(time, series, time) for time in times]


def test_what_is_kept_comes_back(store: Store) -> None:
    """Tests the order of time, of two series, across a restart."""
    store.add([*points(NOW, NOW + 2), *points(NOW + 1, series="map x")])
    again = Store(store.path)
    found = again.since(NOW - 1, 100)
    again.close()
    assert [point.time - NOW for point in found] == [0, 1, 2]
    assert [point.series for point in found] == ["up 1", "map x", "up 1"]


def test_the_newest_of_many(store: Store) -> None:
    """Tests that only so many points are read, the last of them, and none older."""
    store.add(points(*(NOW + i for i in range(10))))
    assert [p.time - NOW for p in store.since(0, 3)] == [7, 8, 9]
    assert [p.time - NOW for p in store.since(NOW + 8, 3)] == [9]


def test_the_same_moment_twice(store: Store) -> None:
    """Tests that a clock that stands still overwrites, and fails nothing."""
    store.add(points(NOW))
    store.add([Point(NOW, "up 1", 7.0)])
    assert store.since(0, 10) == (Point(NOW, "up 1", 7.0),)


def test_old_points_are_forgotten(store: Store) -> None:
    """Tests retention."""
    store.add(points(NOW))
    store.add(points(NOW + KEPT_S - 1))
    assert len(store.since(0, 10)) == 2
    store.add(points(NOW + KEPT_S + 1))
    assert [p.time - NOW - KEPT_S for p in store.since(0, 10)] == [-1, 1]


def test_publications_come_back_until_they_are_old(store: Store) -> None:
    """Tests their order, how many, and that they are forgotten as points are."""
    known = [
        Publication(NOW + i, kept=bool(i % 2), gain=0.1 * i, reason=f"up {i}")
        for i in range(4)
    ]
    for one in known:
        store.publish(one)
    again = Store(store.path)
    found = again.published(3)
    again.close()
    assert found == tuple(known[1:])
    late = Publication(NOW + KEPT_S + 1.5, kept=True, gain=0.0, reason="late")
    store.publish(late)
    assert store.published(9) == (*known[2:], late)


def test_a_store_of_the_first_schema(store: Store) -> None:
    """Tests that it goes on as one of this schema, with all that is in it."""
    store.add(points(NOW))
    store._file.execute("DROP TABLE publications")
    store._file.execute("PRAGMA user_version = 1")
    again = Store(store.path)
    assert again.since(0, 10) == tuple(points(NOW))
    assert again.published(10) == ()
    again.close()


def test_a_newer_schema_is_left_alone(store: Store) -> None:
    """Tests that a store of a later CloudColl is refused, and not changed."""
    store.add(points(NOW))
    with sqlite3.connect(store.path) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    file.close()
    with pytest.raises(UnusableError, match=rf"has schema {SCHEMA + 1}, .* upgrade"):
        Store(store.path)
    assert len(store.since(0, 10)) == 1


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_store(tmp_path: Path, content: bytes) -> None:
    """Tests that anything else is refused by name, and not overwritten."""
    path = tmp_path / "history.db"
    path.write_bytes(content)
    with pytest.raises(UnusableError, match=r"cannot open .*history\.db: .*move it"):
        Store(path)
    assert path.read_bytes() == content


def test_a_damaged_page(store: Store) -> None:
    """Tests text that is none, and figures that are none: told, in one line."""
    store.add(points(NOW))
    name = store._file.execute("UPDATE series SET name = CAST(x'ff' AS TEXT)")
    assert name.rowcount == 1
    with pytest.raises(UnusableError, match=r"cannot read .*history\.db.*move it"):
        store.since(0, 10)
    store._file.execute("UPDATE series SET name = 'up 1'")
    store._file.execute("UPDATE points SET value = 'much'")
    with pytest.raises(UnusableError, match=r"cannot read .*'much'"):
        store.since(0, 10)


def test_a_full_disk(store: Store) -> None:
    """Tests that a write that does not fit changes nothing, and the next may."""
    store.add(points(NOW))
    pages = store._file.execute("PRAGMA page_count").fetchone()[0]
    store._file.execute(f"PRAGMA max_page_count = {pages}")
    many = points(*(NOW + 1 + i for i in range(5000)))
    with pytest.raises(UnusableError, match=r"cannot write .*full.*intact"):
        store.add(many)
    assert store.since(0, 10) == tuple(points(NOW))
    store._file.execute("PRAGMA max_page_count = 1000000")
    store.add(many)
    assert len(store.since(0, 9999)) == 5001


@pytest.mark.parametrize("after", range(4))
def test_killed_while_it_writes(tmp_path: Path, after: int) -> None:
    """Tests that SIGKILL leaves all points of a moment or none, and no clean-up."""
    path = tmp_path / "history.db"
    argv = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(3 * after + 1):
            told = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
    left = Store(path)
    found = left.since(0, 10**6)
    left.add(points(NOW * 2))
    left.close()
    moments = [point.value for point in found]
    assert len(moments) % 4 == 0
    assert sorted(set(moments)) == list(range(len(moments) // 4))
    assert len(moments) // 4 > told


@pytest.mark.parametrize(
    "script",
    [
        "CREATE VIEW series AS WITH RECURSIVE c(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id, x AS name FROM c",
        "CREATE TABLE points (series, time, value); CREATE TRIGGER more AFTER INSERT "
        "ON points BEGIN INSERT INTO points VALUES (1, 2, 3); END",
    ],
)
def test_what_runs_by_itself_is_refused(tmp_path: Path, script: str) -> None:
    """Tests a view without an end, and a trigger, in a store of somebody else's."""
    path = tmp_path / "history.db"
    made = sqlite3.connect(path)
    made.executescript(script)
    made.close()
    with pytest.raises(UnusableError, match="has views or triggers"):
        Store(path)
