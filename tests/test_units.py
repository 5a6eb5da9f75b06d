from __future__ import annotations

import math

import pytest

from cloudcoll import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (87e-6, "87 us"),
        (1.2e-3, "1.2 ms"),
        (3.4, "3.4 s"),
        (90.0, "90 s"),
        (600.0, "10 min"),
        (9000.0, "2.5 h"),
        (999.4e-6, "999 us"),
        (999.6e-6, "1 ms"),
        (0.9996, "1 s"),
        (7199.0, "2 h"),
        (864000.0, "10 d"),
        (math.nan, "?"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    """Tests that a duration gets the unit people would give it."""
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (48e6, "384 Mbit/s"),
        (1.25e9, "10 Gbit/s"),
        (2e11, "1.6 Tbit/s"),
        (125.0, "1 kbit/s"),
        (124.95e6, "1 Gbit/s"),
        (124.9e9, "999 Gbit/s"),
    ],
)
def test_bit_rate(value: float, text: str) -> None:
    """Tests that links are shown in bits, with powers of ten."""
    assert units.bit_rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(512, "512 B"), (1 << 24, "16 MiB"), (1 << 41, "2 TiB")]
)
def test_size(value: int, text: str) -> None:
    """Tests that amounts are shown with powers of 1024."""
    assert units.size(value) == text
