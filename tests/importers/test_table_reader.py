from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import host_names

from cloudcoll.errors import UsageError
from cloudcoll.importers import table as table_module
from cloudcoll.importers.table import PairTable, read_table

NAMED = """host,a,b,c,d
a,,50,200,205
b,51,,202,207
c,204,201,,49
d,200,200,51,
"""


def write(folder: Path, text: str, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        NAMED,
        NAMED.replace("host,", ","),
        NAMED.replace("host,", ""),
        NAMED.replace(",", "\t"),
        NAMED.replace(",", ";").replace("\n", "\r\n"),
        "# by a tool\n" + NAMED.replace("a,,", 'a,"nan",'),
    ],
)
def test_a_table_with_names_is_read(tmp_path: Path, text: str) -> None:
    """Tests separators, comments, quotes, and a first row with and without corner."""
    table = read_table(write(tmp_path, text))
    assert table.names == ("a", "b", "c", "d")
    assert table.values[0].tolist()[1:] == [50.0, 200.0, 205.0]
    assert table.values[3].tolist()[:3] == [200.0, 200.0, 51.0]
    assert np.isnan(np.diagonal(table.values)).all()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3)), "not a square matrix"),
        (np.ones(4), "not a square matrix"),
        (np.array([["a", "b"], ["c", "d"]]), "numbers of 2 to"),
        (np.ones((2, 2), dtype=complex), "numbers of 2 to"),
    ],
)
def test_a_bad_array_is_refused(tmp_path: Path, array: object, message: str) -> None:
    """Tests arrays of another shape or of no numbers."""
    np.save(tmp_path / "m.npy", np.asarray(array))
    with pytest.raises(UsageError, match=message):
        read_table(tmp_path / "m.npy")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    """Tests that an array of objects is refused as it is."""
    np.save(
        tmp_path / "m.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True
    )
    with pytest.raises(UsageError, match=r"not an \.npy file"):
        read_table(tmp_path / "m.npy")


@given(st.permutations(range(5)))
def test_order_does_not_change_what_is_said(order: list[int]) -> None:
    """Tests that a pair keeps its value wherever the list puts its hosts."""
    names = host_names(5)
    values = np.arange(25.0).reshape(5, 5)
    table = PairTable("m", tuple(names), values).named([names[i] for i in order])
    for i, src in enumerate(order):
        for j, dst in enumerate(order):
            assert table.values[i, j] == values[src, dst]
    assert not math.isnan(table.values.sum())


def test_a_table_too_large_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests more rows, and more cells in a row, than the most hosts."""
    monkeypatch.setattr(table_module, "TABLE_HOSTS", 4)
    for text in ("9,9\n" * 6, "9," * 99):
        with pytest.raises(UsageError, match="more than 4 hosts: import a part"):
            read_table(write(tmp_path, text))
    with pytest.raises(UsageError, match="a matrix of 5 hosts; 2 to 4 are read"):
        read_table(write(tmp_path, ("9 " * 5 + "\n") * 5))
