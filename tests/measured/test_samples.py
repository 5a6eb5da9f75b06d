from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hostile import npy
from hypothesis import given
from hypothesis import strategies as st
from strategies import finite, ragged

from cloudcoll.arrays import Ints
from cloudcoll.files.limits import ROUNDS
from cloudcoll.measured.samples import (
    PIECE,
    LoadedFlows,
    RttSamples,
    medians,
    unzipped,
    zipped,
)


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


@given(st.data(), st.integers(0, 6), st.floats(0.0, 1.0))
def test_quantiles_are_those_of_each_pair(
    data: st.DataObject, pairs: int, q: float
) -> None:
    """Tests quantiles of all pairs at once against those of one at a time."""
    ends, seconds = data.draw(ragged(finite, pairs))
    places = np.arange(pairs)
    rtt = RttSamples(places, places, places, ends, np.array(seconds, dtype=np.float64))
    expected = [
        np.quantile(rtt.of(pair), q) if len(rtt.of(pair)) else math.nan
        for pair in range(pairs)
    ]
    np.testing.assert_array_equal(rtt.quantile(q), expected)


def test_medians_of_places() -> None:
    """Tests odd and even counts in any order, and places without a value."""
    place = ints(3, 0, 2, 3, 2, 3, 0, 2, 3)
    values = np.array([8.0, 4.0, 9.0, 2.0, 1.0, 4.0, 1.0, 5.0, 100.0])
    expected = [2.5, math.nan, 5.0, 6.0, math.nan]
    np.testing.assert_array_equal(medians(place, values, 5), expected)


def test_the_fastest_flow_of_each_host() -> None:
    """Tests that what a host sent and what it got count alike, and 0.0 for none."""
    # 0 -> 1 at 100 bytes/s, 1 -> 2 at 30, 0 -> 2 at 40, and 3 -> 4 never got there.
    flows = LoadedFlows(
        round=ints(0, 1, 2, 3),
        src=ints(0, 1, 0, 3),
        dst=ints(1, 2, 2, 4),
        ends=ints(1, 2, 3, 3),
        window_bytes=ints(50, 15, 20),
        window_s=0.5,
        ramp_up=0,
    )
    assert flows.fastest(6).tolist() == [100.0, 100.0, 40.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("seconds", [-1e-9, math.nan, math.inf])
def test_a_round_trip_is_a_time(seconds: float) -> None:
    """Tests that what no clock measures is refused, none at all is not."""
    for value in (0.0, 1e-4):
        RttSamples(ints(0), ints(1), ints(1), ints(1), np.array([value])).check(2)
    wrong = RttSamples(ints(0), ints(1), ints(1), ints(1), np.array([seconds]))
    with pytest.raises(ValueError, match="a round trip that is no time"):
        wrong.check(2)


@pytest.mark.parametrize("rounds", [[-1], [ROUNDS + 1], [], [0, 0]])
def test_a_transfer_is_of_one_round(rounds: list[int]) -> None:
    """Tests rounds of no number, and others than as many as transfers."""
    LoadedFlows(ints(ROUNDS), ints(0), ints(1), ints(1), ints(7)).check(2)
    wrong = LoadedFlows(ints(*rounds), ints(0), ints(1), ints(1), ints(7))
    with pytest.raises(ValueError, match="a transfer of no round"):
        wrong.check(2)


def test_what_an_array_may_take_is_told() -> None:
    """Tests that those before it count: of 48 MiB for a small file 4 are gone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first.npy", npy(bytes(4 << 20), shape=(1 << 19,)))
        archive.writestr("more.npy", npy(b"", shape=(1 << 27,)))
    kinds = {"first": np.int64, "more": np.int64}
    with pytest.raises(ValueError, match="of 1024 MiB: this file may hold 44 more"):
        unzipped(buffer.getvalue(), kinds)


@pytest.mark.parametrize("values", [3, 5])
def test_an_array_is_as_long_as_it_says(values: int) -> None:
    """Tests one that ends early, and one that goes on, of four values."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("one.npy", npy(bytes(8 * values), shape=(4,)))
    with pytest.raises(ValueError, match="'one' is not as long as it says"):
        unzipped(buffer.getvalue(), {"one": np.int64})


def test_arrays_are_zipped_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that NumPy reads what it would have written, of more than a piece.

    Also of more than the 2 GiB from which sizes take 64 bits, here made less.
    """
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 2 * PIECE)
    many = np.arange(3 * PIECE // 8 + 5)
    arrays: dict[str, npt.NDArray[Any]] = {
        "none": np.zeros(0),
        "many": many,
        "bytes": np.array([1], dtype=np.uint8),
    }
    with np.load(io.BytesIO(zipped(arrays)), allow_pickle=False) as read:
        assert read.files == [*arrays]
        for name, values in arrays.items():
            assert read[name].dtype == values.dtype
            np.testing.assert_array_equal(read[name], values)
