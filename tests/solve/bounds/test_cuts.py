from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.solve.bounds.cuts import Traffic


def traffic_of(collective: str, algorithm: str, ranks: int) -> Traffic:
    pairs = build_schedule(collective, algorithm, ranks, 1 << 20).pair_bytes()
    src, dst = np.nonzero(pairs)
    return Traffic.of(ranks, src, dst, pairs[src, dst])


def least_by_trying(traffic: Traffic, count: int) -> tuple[float, float, float]:
    """Return the least out, into and both of every choice of `count` units."""
    tried = []
    for chosen in itertools.combinations(range(traffic.units), count):
        mine, theirs = np.isin(traffic.src, chosen), np.isin(traffic.dst, chosen)
        out = traffic.size[mine & ~theirs].sum()
        into = traffic.size[theirs & ~mine].sum()
        tried.append((out, into, out + into))
    out, into, both = np.min(tried, axis=0).tolist()
    return out, into, both


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Draw any traffic of a few units, or that of a schedule."""
    units = draw(st.integers(2, 9))
    if draw(st.booleans()):
        collective = draw(st.sampled_from(sorted(SCHEDULES)))
        algorithm = draw(st.sampled_from(sorted(SCHEDULES[collective])))
        if SCHEDULES[collective][algorithm].only in (None, units):
            return traffic_of(collective, algorithm, units)
    end = st.integers(0, units - 1)
    messages = draw(st.lists(st.tuples(end, end, st.integers(0, 4)), max_size=20))
    src, dst, size = np.array(messages, dtype=np.int64).reshape(-1, 3).T
    return Traffic.of(units, src, dst, size.astype(np.float64))


@given(traffics(), st.data())
def test_no_choice_of_units_sends_less(traffic: Traffic, data: st.DataObject) -> None:
    """Tests the bounds on out, into and both against every choice."""
    count = data.draw(st.integers(1, traffic.units - 1))
    bound = traffic.least(count)
    for own, least in zip(bound, least_by_trying(traffic, count), strict=True):
        assert own <= least * (1 + 1e-9) + 1e-9


@given(traffics(), st.data())
def test_units_in_a_row_by_hand(traffic: Traffic, data: st.DataObject) -> None:
    """Tests what each row of neighbours sends and hears."""
    count = data.draw(st.integers(1, traffic.units))
    sent, heard = traffic.windows(count)
    assert len(sent) == len(heard) == traffic.units - count + 1
    for first in range(len(sent)):
        src, dst = (
            (first <= ends) & (ends < first + count)
            for ends in (traffic.src, traffic.dst)
        )
        assert sent[first] == pytest.approx(traffic.size[src & ~dst].sum())
        assert heard[first] == pytest.approx(traffic.size[dst & ~src].sum())


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize(
    "what",
    [("allreduce", "ring"), ("alltoall", "linear"), ("allgather", "direct")],
)
def test_families_of_the_field_are_bounded_exactly(
    what: tuple[str, str], count: int
) -> None:
    """Tests that of 8 ranks the bound is what the best choice sends."""
    traffic = traffic_of(*what, 8)
    best = least_by_trying(traffic, count)
    assert tuple(traffic.least(count)) == pytest.approx(best)


def test_a_chain_is_cut_somewhere() -> None:
    """Tests 0 -> 1 -> 2 -> 3: any two leave out or miss a message, or hear one."""
    chain = Traffic.of(4, np.arange(3), np.arange(1, 4), np.full(3, 5.0))
    assert least_by_trying(chain, 2) == (0.0, 0.0, 5.0)
    assert tuple(chain.least(2)) == (0.0, 0.0, 5.0)


def test_a_part_of_a_group_talks_to_the_rest_of_it() -> None:
    """Tests two of six units that talk in two threes: each sends to one not chosen."""
    ends = [(a, b) for a, b in itertools.permutations(range(6), 2) if a // 3 == b // 3]
    src, dst = np.array(ends).T
    threes = Traffic.of(6, src, dst, np.ones(len(ends)))
    assert least_by_trying(threes, 2) == (2.0, 2.0, 4.0)
    assert tuple(threes.least(2)) == (2.0, 2.0, 4.0)


def test_what_few_units_send_by_hand() -> None:
    """Tests none, the one that sends least, two and all three."""
    ends = np.array([0, 0, 1, 2]), np.array([1, 2, 2, 0])
    traffic = Traffic.of(3, *ends, np.array([3.0, 4.0, 1.0, 2.0]))
    assert traffic.fewest.tolist() == [0.0, 1.0, 3.0, 10.0]


def test_a_unit_by_itself_sends_nothing() -> None:
    """Tests that what is all on one host crosses no link."""
    nothing = np.zeros(0, dtype=np.int64)
    alone = Traffic.of(1, nothing, nothing, np.zeros(0))
    assert alone.least(1) == alone.least(0) == (0.0, 0.0, 0.0)
