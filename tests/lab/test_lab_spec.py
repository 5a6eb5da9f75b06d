from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.lab.spec import GroupSpec, HostSpec, LabSpec, quick
from cloudcoll.lab.spec_text import parse_duration, parse_rate, read_spec

PODS = Path(__file__).parents[1] / "data" / "lab-pods.toml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400mbit", 50e6),
        ("2.5gbit", 312.5e6),
        ("8 kbit", 1e3),
        ("16bit", 2.0),
        ("unlimited", math.inf),
    ],
)
def test_rates_are_read(text: str, expected: float) -> None:
    """Tests that a rate with a unit becomes bytes/s."""
    assert parse_rate(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("200us", 2e-4), ("1.5ms", 1.5e-3), ("2s", 2.0), ("0", 0.0)]
)
def test_durations_are_read(text: str, expected: float) -> None:
    """Tests that a time with a unit becomes seconds."""
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "400", "0mbit", "-1mbit", "400MB/s", "mbit"])
def test_bad_rates_are_refused(text: str) -> None:
    """Tests that a rate without number or known unit is refused, with the units."""
    with pytest.raises(UsageError, match=r"not a rate \(units: bit, kbit"):
        parse_rate(text)


def test_a_file_is_read() -> None:
    """Tests that groups nest, rates are inherited and each rtt stays where it is."""
    rack_a1 = GroupSpec(
        "rack-a1", (HostSpec(50e6, 50e6, 1),) * 3, 50e6, 50e6, 60 * 1e-6
    )
    rack_a2 = GroupSpec("rack-a2", (HostSpec(50e6, 50e6, 1),) * 2, 50e6, 50e6, 0.0)
    rack_b1 = GroupSpec("rack-b1", (HostSpec(50e6, 25e6, 2),) * 2, 12.5e6, 50e6, 0.0)
    spec = read_spec(PODS)
    root = spec.root
    assert spec.seed == 7
    assert [group.name for group in root.groups()] == [
        *("root", "pod-a", "rack-a1", "rack-a2", "rack-b1")
    ]
    assert root.rtt == pytest.approx(500e-6)
    pod, last = root.children
    assert isinstance(pod, GroupSpec)
    assert pod.children == (rack_a1, rack_a2)
    assert last == rack_b1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hosts = 2\nspeed = 3", r"unknown key 'speed' .*known: name, hosts"),
        ("hosts = 0", "not a whole number, 1 to 1000"),
        ("hosts = true", "not a whole number, 1 to 1000"),
        ("nic = '1gbit'", "either hosts = N or"),
        ("hosts = 2\n[[group]]\nhosts = 1", "either hosts = N or"),
        ("seed = 'x'\nhosts = 2", "seed = 'x' is not a whole number"),
        ("hosts = 2\nnic = 'fast'", "'fast' is not a rate"),
        ("hosts = 1001", "1 to 1000"),
        ("hosts = 10000000000000", "1 to 1000"),
        ("[group]\nhosts = 2", r"write \[\[group\]\]"),
        ("group = 2", r"write \[\[group\]\]"),
        ("[[group]]\nname='a'\nhosts=1\n[[group]]\nname='a'\nhosts=1", "two groups"),
        ("[[group]]\nname='a/b'\nhosts=1", "not a group's name"),
        ("[[group]]\nname='vm-01'\nhosts=1", "not a group's name"),
        ("rtt='10us'\n[[group]]\nname='a'\nrtt='20us'\nhosts=1", "longer rtt"),
        ("hosts = ", "is not TOML"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Tests that an error names the file and what is wrong in it."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"bad.toml.*{reason}"):
        read_spec(path)


@pytest.mark.parametrize("racks", [(5, 0), (5, -3), (5, 10**30)])
def test_racks_of_no_size_are_refused(racks: tuple[int, ...]) -> None:
    """Tests that no rack goes missing without a word, and no memory fills up."""
    with pytest.raises(UsageError, match=f"hosts = {racks[1]} is not"):
        quick(racks)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Tests that a file that is not there is an error that names it."""
    with pytest.raises(UsageError, match=r"nothing\.toml"):
        read_spec(tmp_path / "nothing.toml")


@given(racks=st.lists(st.integers(1, 8), min_size=1, max_size=6), seed=st.integers(0))
def test_names_are_dealt_over_the_places(racks: list[int], seed: int) -> None:
    """Tests that names are a permutation, the same for the same seed."""
    spec = quick(tuple(racks), seed=seed)
    names = spec.placed_names()
    assert sorted(names) == [f"vm-{n:02}" for n in range(1, sum(racks) + 1)]
    assert names == LabSpec(spec.root, seed).placed_names()


def test_seeds_differ() -> None:
    """Tests that another seed puts the names elsewhere."""
    orders = {quick((4, 4, 4, 4), seed=seed).placed_names() for seed in range(10)}
    assert len(orders) == 10
