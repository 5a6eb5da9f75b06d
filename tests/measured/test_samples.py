from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from strategies import finite, ragged

from cloudcoll.measured.samples import PIECE, RttSamples, zipped


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


def test_arrays_are_zipped_in_pieces() -> None:
    """Tests that NumPy reads what it would have written, of more than a piece."""
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
