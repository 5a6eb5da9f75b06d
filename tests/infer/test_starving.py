"""What it says of links that some paced flows starve."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.arrays import Floats, Ints
from cloudcoll.infer.explain import KINDS
from cloudcoll.infer.fit import Fit
from cloudcoll.infer.holdout import Figures
from cloudcoll.infer.partition import canonical
from cloudcoll.infer.sharing import LoadSplitter
from cloudcoll.infer.starving import (
    AT_MOST,
    CHANCES,
    FEWER,
    FREELY,
    ON_FULL,
    starving,
)
from cloudcoll.measured.synth import racks

PACE = 10e6
SLIP = 0.02
"""Share of the flows that starve although there is room: a host's CPU was busy."""


def policed(
    sizes: list[int], uplink: float, seed: int, cycles: int = 1, slow: int = -1
) -> tuple[Figures, Ints]:
    """Return tournaments of paced flows, and each host's rack.

    Every rack has an uplink of so many paces either way, on which flows get through as
    long as there is room. The card of host `slow`, if there is one, has none.
    """
    generator = np.random.default_rng(seed)
    hosts = sum(sizes)
    rack = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    players = hosts + hosts % 2
    rows = []
    for number in range(cycles * (players - 1)):
        if number % (players - 1) == 0:
            label = generator.permutation(players)
        table = [0, *(1 + np.roll(np.arange(players - 1), number))]
        pairs = zip(table[: players // 2], table[: players // 2 - 1 : -1], strict=True)
        met = [(int(label[a]), int(label[b])) for a, b in pairs]
        ends = [pair for pair in met if max(pair) < hosts]
        ends += [pair[::-1] for pair in ends]
        room = np.full((2, len(sizes)), uplink)
        for one, other in generator.permutation(ends).tolist():
            a, b = rack[one], rack[other]
            free = a == b or min(room[0, a], room[1, b]) >= 1
            got = free and slow not in {one, other} and generator.random() >= SLIP
            if got and a != b:
                room[0, a] -= 1
                room[1, b] -= 1
            share = generator.uniform(0.9, 1.0) if got else generator.uniform(0.03, 0.1)
            rows.append((number, one, other, share * PACE))
    rounds, src, dst, rate = np.array(rows).T
    unknown = np.full((hosts, hosts), np.nan)
    return (
        Figures(
            tuple(f"h{i}" for i in range(hosts)),
            unknown,
            rounds.astype(np.int64),
            src.astype(np.int64),
            dst.astype(np.int64),
            rate,
            punctual=True,
            pace=PACE,
        ),
        rack,
    )


def labels_of(groups: list[list[int]] | None, hosts: int) -> Ints:
    """Return groups as labels; of no groups all the same."""
    found = np.zeros(hosts, dtype=np.int64)
    for number, group in enumerate(groups or []):
        found[group] = number
    return canonical(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sizes", "uplink"),
    [
        ([4, 4, 4, 4], 2.1),
        ([4, 4, 4, 4], 1.1),
        ([5, 3, 6, 2], 1.1),
        ([7, 1, 4, 4], 1.1),
        ([7, 1, 4, 4], 0.6),
    ],
)
def test_racks_are_found_by_who_starves(
    sizes: list[int], uplink: float, seed: int
) -> None:
    """Tests two rounds of all pairs behind policers of uplinks, narrow and wide."""
    seen, rack = policed(sizes, uplink, seed, cycles=2)
    splitter = LoadSplitter(seen, np.arange(16))
    groups = splitter(list(range(16)))
    assert labels_of(groups, 16).tolist() == canonical(rack).tolist()
    assert splitter.answer is not None


@pytest.mark.parametrize("seed", range(5))
def test_no_racks_where_few_starve(seed: int) -> None:
    """Tests hosts behind one switch, some of whose flows starve by chance."""
    seen, _ = policed([16], 1.0, seed)
    splitter = LoadSplitter(seen, np.arange(16))
    assert splitter(list(range(16))) is None
    assert splitter.answer is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_mute_host_stands_beside_groups(seed: int) -> None:
    """Tests one that gets through with nobody, as of a card slower than the pace."""
    seen, rack = policed([5, 5, 6], 1.1, seed, cycles=2, slow=3)
    assert np.flatnonzero(seen.mute).tolist() == [3]
    splitter = LoadSplitter(seen, np.arange(16))
    groups = splitter(list(range(16)))
    alone = rack.copy()
    alone[3] = 3
    assert labels_of(groups, 16).tolist() == canonical(alone).tolist()
    assert splitter.answer is not None
    assert splitter.answer.labels.tolist() == canonical(alone).tolist()
    assert {len(drawn) for _, drawn in splitter.answer.draws} == {16}


def test_a_mute_host_makes_no_groups() -> None:
    """Tests two that get through with nobody, beside hosts that share no link."""
    seen, _ = policed([16], 1.0, 0, slow=3)
    muted = (seen.src == 5) | (seen.dst == 5)
    seen = replace(seen, rate=np.where(muted, 0.05 * PACE, seen.rate))
    assert np.flatnonzero(seen.mute).tolist() == [3, 5]
    splitter = LoadSplitter(seen, np.arange(16))
    assert splitter(list(range(16))) is None
    assert splitter.answer is not None
    assert not splitter.answer.labels.any()


def judged(through: Sequence[bool], room: float) -> tuple[Floats, Floats]:
    """Return what is said of flows that share a full link, and of a free one after.

    From host 0 to hosts 1, 2, ...; the free one is from host 1 to 2.
    """
    count = len(through)
    rate = PACE * np.where([*through, True], 1.0, 0.05)
    seen = Figures(
        tuple("abcde"[: count + 1]),
        np.full((count + 1, count + 1), np.nan),
        np.array([0] * count + [1]),
        np.array([0] * count + [1]),
        np.array([*range(1, count + 1), 2]),
        rate,
        pace=PACE,
    )
    links = racks([2, count - 1]).links
    assert len(links.up) > count + 1  # groups' links are after those of the hosts
    on_full = np.array([True] * count + [False])
    due = PACE * np.array([room / count] * count + [1.0])
    limits = np.array([count + 1] * count + [0])
    return starving(seen, Fit(links, due, limits), on_full, seen.round, (KINDS, 2))


@pytest.mark.parametrize("room", [0.5, 1.0, 1.8, 2.5])
def test_chances_of_all_that_may_starve_add_up(room: float) -> None:
    """Tests three flows on a link that has room for fewer."""
    outcomes = itertools.product([False, True], repeat=3)
    told = [judged(through, room)[0][ON_FULL, :, 0] for through in outcomes]
    assert np.exp(told).sum(axis=0) == pytest.approx(1.0)


def test_as_many_get_through_as_there_is_room_for() -> None:
    """Tests whole flows that fit, a part of one more, fewer and more; all by chance."""
    one, met = judged([True, False, False], 1.25)
    known = np.log(1 - CHANCES)
    assert one[ON_FULL, :, 0] == pytest.approx(known + np.log(0.75 / 3))
    two, _ = judged([True, True, False], 1.25)
    assert two[ON_FULL, :, 0] == pytest.approx(known + np.log(0.25 / 3))
    fewer, _ = judged([False, False, False], 1.25)
    assert fewer[ON_FULL, :, 0] == pytest.approx(np.log(CHANCES * FEWER))
    more, _ = judged([True, True, True], 1.25)
    assert more[ON_FULL, :, 0] == pytest.approx(np.log(CHANCES * (1 - FEWER)))
    assert one[FREELY, :, 1] == pytest.approx(known)
    assert met.tolist() == [[0, 0.5], [1.5, 0], [0, 0], [0, 0]]


def test_nothing_is_sure_of_a_link_that_is_hardly_full() -> None:
    """Tests a flow alone on a link that carries next to nothing, or all but it."""
    for room, chance in ((0.01, 1 - AT_MOST), (0.84, 0.84)):
        got, _ = judged([True], room)
        assert got[ON_FULL, :, 0] == pytest.approx(np.log(chance))
