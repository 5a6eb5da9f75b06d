from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.tls import server
from cloudcoll.tls.server import USUAL, Door, Limits, source_of

ROOT = Path(__file__).parents[2]
LIMITS = Limits(per_source=3, burst=5, per_second=1.0)
NAMES = ("10.0.0.1", "10.0.0.2", "fe80::1%eth0")

knocks = st.tuples(st.just("knock"), st.sampled_from(NAMES), st.floats(0, 3))
leaves = st.tuples(st.just("leave"), st.sampled_from(NAMES), st.just(0.0))


@given(st.lists(knocks | leaves, max_size=60))
def test_what_one_source_can_take(events: list[tuple[str, str, float]]) -> None:
    """Tests both caps against counts of all that was let in, in any order."""
    one = Door(LIMITS)
    now = 0.0
    inside = dict.fromkeys(NAMES, 0)
    admitted = dict.fromkeys(NAMES, 0)
    for what, name, pause in events:
        now += pause
        if what == "leave" and inside[name]:
            one.forget(name)
            inside[name] -= 1
        elif what == "knock" and one.admits(name, now):
            inside[name] += 1
            admitted[name] += 1
        assert inside[name] <= LIMITS.per_source
        assert admitted[name] <= LIMITS.burst + now * LIMITS.per_second


def test_one_address_gets_what_the_security_notes_say() -> None:
    """Tests the usual limits: 8 at a time, 16 in a burst, and then one a second."""
    held = Door(USUAL)
    assert sum(held.admits("10.0.0.1", 0.0) for _ in range(50)) == 8

    def passing(now: float) -> int:
        taken = 0
        while hasty.admits("10.0.0.1", now):
            hasty.forget("10.0.0.1")
            taken += 1
        return taken

    hasty = Door(USUAL)
    assert [passing(now) for now in (0.0, 1.0, 4.0, 100.0)] == [16, 1, 3, 16]


def test_the_security_notes_say_the_usual_limits() -> None:
    """Tests each figure of the sentences on strangers in SECURITY.md."""
    said = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert (
        f"At most {USUAL.strangers} connections have shown no certificate, "
        f"{USUAL.per_source} of them from one address, which may open one a second "
        f"({USUAL.burst} in a burst). A handshake may take {USUAL.life_s:g} s, and at "
        f"most {1 / USUAL.pace_s:g} a second begin"
    ) in said
    assert USUAL.per_second == 1


def test_a_source_comes_back() -> None:
    """Tests that a source that was too fast is let in after its time, not before."""
    one = Door(LIMITS)
    taken = 0
    for _ in range(10):
        if one.admits("10.0.0.1", 0.0):
            one.forget("10.0.0.1")
            taken += 1
    assert taken == LIMITS.burst
    assert not one.admits("10.0.0.1", 0.9)
    assert one.admits("10.0.0.1", 1.0)
    assert one.admits("10.0.0.2", 0.9)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the sources remembered are the last that knocked."""
    monkeypatch.setattr(server, "SOURCES", 10)
    one = Door(Limits(burst=1, per_second=0.0))
    for number in range(100):
        assert one.admits(f"10.0.0.{number}", 0.0)
        one.forget(f"10.0.0.{number}")
    assert not one.admits("10.0.0.99", 1.0)
    assert one.admits("10.0.0.0", 1.0)
    assert len(one._left) == 10


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("fd00::1:2:3:4", "fd00::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_counts_as_one_source(address: str, source: str) -> None:
    """Tests that an IPv6 subnet, whose addresses are free, is one source."""
    assert source_of(address) == source
