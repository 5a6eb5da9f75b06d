from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import build_schedule
from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.probe.rehearsal import (
    Load,
    Pattern,
    alike,
    patterns,
    rehearse,
    seconds_of,
)
from cloudcoll.probe.shell import Local, Ssh

HOSTS = tuple(Host(f"vm-{i}", f"127.0.9.{i + 1}") for i in range(4))
RING = build_schedule("allreduce", "ring", 4, 4096)
SEVERAL = [
    ("allreduce", "recursive_doubling"),
    ("alltoall", "linear"),
    ("bcast", "binomial"),
    ("reduce", "pipeline"),
]


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock files of agents out of the system's /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@given(st.permutations(range(4)))
def test_all_edges_of_a_ring_are_one_pattern(order: list[int]) -> None:
    """Tests that a ring's steps load its edges together, with all their bytes."""
    (pattern,) = patterns([(1, RING)], order)
    edges = {(order[i], order[(i + 1) % 4]) for i in range(4)}
    assert set(pattern.pairs) == edges
    assert pattern.size.tolist() == [2 * 3 / 4 * 4096] * 4


@given(st.sampled_from(["ring", "rabenseifner", "recursive_doubling"]))
def test_bytes_between_hosts_are_all_there(algorithm: str) -> None:
    """Tests that patterns have every byte that leaves a host, and no other."""
    schedule = build_schedule("allreduce", algorithm, 8, 1 << 16)
    places = [0, 0, 1, 1, 2, 2, 3, 3] if algorithm == "ring" else [*range(8)]
    where = np.array(places)
    expected = np.zeros((8, 8))
    np.add.at(expected, (where[:, None], where[None, :]), schedule.pair_bytes())
    np.fill_diagonal(expected, 0.0)
    found = np.zeros((8, 8))
    for pattern in patterns([(3, schedule)], places):
        found[tuple(np.array(pattern.pairs).T)] += pattern.size
    assert found == pytest.approx(3 * expected)


@given(st.permutations([0, 0, 0, 1, 1, 1, 2, 2]), st.sampled_from(SEVERAL))
def test_several_peers_at_a_time(places: list[int], sent: tuple[str, str]) -> None:
    """Tests that no host sends, or receives, twice in a pattern."""
    for pattern in patterns([(1, build_schedule(*sent, 8, 1 << 16))], places):
        for ends in zip(*pattern.pairs, strict=True):
            assert len(set(ends)) == len(ends)


def test_an_all_to_all_falls_into_shifts() -> None:
    """Tests that all pairs of 5 hosts are 4 patterns, whatever the order."""
    linear = [(1, build_schedule("alltoall", "linear", 5, 5000))]
    found = patterns(linear, range(5))
    assert [len(pattern.pairs) for pattern in found] == [5] * 4
    assert alike(found, patterns(linear, [2, 0, 4, 1, 3]))
    ring = patterns([(1, RING)], range(4))
    assert not alike(ring, patterns([(1, RING)], [0, 2, 1, 3]))


def test_uneven_rounds() -> None:
    """Tests that the median of rounds with enough CPU counts, the slowest pair."""
    pattern = Pattern(((0, 1), (1, 0)), np.array([100.0, 300.0]))
    rounds = [[10, 30], [20, 30], [0, 30]]
    loads = [Load(np.array(rates, dtype=float), False) for rates in rounds]
    assert seconds_of(pattern, loads, HOSTS) == 10.0
    loads = [Load(load.rates, i != 1) for i, load in enumerate(loads)]
    assert seconds_of(pattern, loads, HOSTS) == 10.0
    loads = [Load(np.array([5.0, 0.0]), True)]
    with pytest.raises(UnusableError, match="next to nothing came from vm-1 to vm-0"):
        seconds_of(pattern, loads, HOSTS)


@pytest.mark.alone
def test_agents_load_both_orders() -> None:
    """Tests that real agents send along both rings, and every pair has a rate."""
    orders = {
        "given": patterns([(1, RING)], [0, 1, 2, 3]),
        "new": patterns([(1, RING)], [0, 2, 1, 3]),
    }
    times = rehearse(HOSTS, orders, Local(), seconds=1.0)
    assert set(times) == {"given", "new"}
    assert all(0 < seconds < 10 for seconds in times.values())


@pytest.mark.alone
def test_one_way_and_idle_hosts() -> None:
    """Tests a pattern in which hosts only send, only receive, or rest."""
    one_way = [Pattern(((2, 0),), np.array([1e6]))]
    times = rehearse(HOSTS, {"a": one_way, "none": []}, Local(), seconds=1.0)
    assert times["a"] > 0
    assert times["none"] == 0


def test_no_way_to_the_hosts() -> None:
    """Tests that a missing ssh is told, and nothing waits for it."""
    orders = {"given": patterns([(1, RING)], [0, 1, 2, 3])}
    with pytest.raises(UnusableError, match="cannot load links via ssh: no-such-ssh"):
        rehearse(HOSTS, orders, Ssh("no-such-ssh"), seconds=1.0)
    with pytest.raises(UnusableError, match="need"):
        rehearse(HOSTS, orders, Ssh("false"), seconds=1.0)
