from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.units import decimal_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("512K", 512 << 10),
        (" 64m ", 64 << 20),
        ("16MiB", 16 << 20),
        ("1.5 GB", 3 << 29),
        ("2T", 2 << 40),
    ],
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    """Tests every unit, in both cases and with what people put behind it."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e6", "1P", "9" * 30, "\u0663"])
def test_other_words_are_refused(text: str) -> None:
    """Tests that the text is named with what would do."""
    with pytest.raises(UsageError, match="is not a size such as 4096, 512K, 16M"):
        parse_size(text)


@given(st.text())
def test_no_text_is_a_crash(text: str) -> None:
    """Tests that any text is a size or refused."""
    with contextlib.suppress(UsageError):
        assert parse_size(text) >= 0


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (2.06e9, "2.06 GB"),
        (249e9, "249 GB"),
        (999.6e9, "1 TB"),
        (3.49e13, "34.9 TB"),
        (5e18, "5,000 PB"),
    ],
)
def test_amounts_are_never_exponents(count: float, text: str) -> None:
    """Tests that bytes are told in powers of 1000, to three digits."""
    assert decimal_size(count) == text
