"""Square tables of numbers between hosts: CSV, NPY, and mpiGraph's output; their units.

A cell that is empty or says ``nan``, ``na`` or ``-`` was not measured.
"""

from __future__ import annotations

import io
import math
import os
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.errors import UsageError
from cloudcoll.files.limits import TABLE_HOSTS
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.reading import lines_of, read_text

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Unit of a latency -> seconds."""

BYTES_PER_S = {
    "B/s": 1.0,
    "MB/s": 1e6,
    "MiB/s": 2.0**20,
    "GB/s": 1e9,
    "GiB/s": 2.0**30,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
}
"""Unit of a bandwidth -> bytes/s."""


def rate_unit(name: str) -> float:
    """Return the bytes/s that a unit of bandwidth stands for, if there is such."""
    return _unit("bandwidth", name, BYTES_PER_S)


def time_unit(name: str) -> float:
    """Return the same of latency, in seconds: see `rate_unit`."""
    return _unit("latency", name, SECONDS)


def _unit(kind: str, name: str, known: Mapping[str, float]) -> float:
    if name not in known:
        raise UsageError(f"unknown unit of {kind} {name!r} (known: {', '.join(known)})")
    return known[name]


def kinds_of(units: Iterable[str]) -> tuple[str, str]:
    """Return the unit of latency and that of bandwidth out of those given.

    Microseconds are taken where no unit of latency is, nothing for bandwidth.
    UsageError for an unknown unit, or two of one kind.
    """
    chosen = {"latency": "us", "bandwidth": ""}
    said = set()
    for unit in units:
        if unit not in SECONDS and unit not in BYTES_PER_S:
            known = ", ".join((*SECONDS, *BYTES_PER_S))
            raise UsageError(f"unknown unit {unit!r} (known: {known})")
        kind = "latency" if unit in SECONDS else "bandwidth"
        if kind in said:
            raise UsageError(f"two units of {kind}: {chosen[kind]} and {unit}")
        said.add(kind)
        chosen[kind] = unit
    return chosen["latency"], chosen["bandwidth"]


_MISSING = {"", "-", "nan", "na", "none", "null"}

_NOT_NPY = (
    *(ValueError, TypeError, EOFError, OverflowError),
    # NumPy parses the header as Python and lets these through.
    *(SyntaxError, tokenize.TokenError, RecursionError, MemoryError),
)


@dataclass(frozen=True)
class PairTable:
    """What a file says between each two hosts.

    Attributes
    ----------
    source : str
        The file, for error messages.
    names : tuple of str
        Of rows and columns; empty where the file does not say.
    values : ndarray of float64, shape (hosts, hosts)
        ``values[src, dst]`` in the file's unit; NaN where not measured and on
        the diagonal.
    """

    source: str
    names: tuple[str, ...]
    values: Floats

    def named(self, names: Sequence[str]) -> PairTable:
        """Return the same table with rows and columns in the order of `names`.

        UsageError if it is of other hosts, or of another number of them.
        """
        if not self.names:
            if len(names) != len(self.values):
                raise UsageError(
                    f"{self.source}: {len(self.values)} rows, but {len(names)} hosts "
                    "are listed"
                )
            return PairTable(self.source, tuple(names), self.values)
        for name in set(self.names) ^ set(names):
            whose = "not listed" if name in self.names else "listed but not in it"
            raise UsageError(
                f"{self.source}: it is of other hosts: {name!r} is {whose}"
            )
        place = {name: i for i, name in enumerate(self.names)}
        order = [place[name] for name in names]
        return PairTable(self.source, tuple(names), self.values[np.ix_(order, order)])

    def where(self, src: int, dst: int) -> str:
        """Return file, row and column of a cell, for the start of an error."""
        row, column = (
            f"{i + 1} ({self.names[i]})" if self.names else f"{i + 1}"
            for i in (src, dst)
        )
        return f"{self.source}: row {row}, column {column}"


def read_table(path: str | os.PathLike[str]) -> PairTable:
    """Read a square table from CSV (or tabs, semicolons, blanks) or NPY.

    A first row that holds more than numbers names the columns, then a first
    column names the rows.
    """
    source = str(path)
    if source.endswith(".npy"):
        return _checked(source, (), _npy(path))
    rows = _Rows(read_text(path), source)
    if not len(rows):
        raise UsageError(f"{source}: empty: a matrix has a row and a column per host")
    names: tuple[str, ...] = ()
    if any(math.isnan(_number(cell)) and not _missing(cell) for cell in rows[0]):
        names, rows = _names(rows, source)
    width = len(names) or len(rows)
    for number, row in enumerate(rows, start=1):
        if len(row) != width or len(rows) != width:
            raise UsageError(
                f"{source}: row {number} has {len(row)} values and there are "
                f"{len(rows)} rows for {width} columns: not a square matrix"
            )
    values = np.full((width, width), math.nan)
    for i, row in enumerate(rows):
        values[i] = [_number(cell) for cell in row]
        for j in np.flatnonzero(np.isnan(values[i])):
            if not _missing(row[j]):
                raise UsageError(
                    f"{source}: row {i + 1}, column {j + 1}: {shown(row[j])} is not a "
                    "number"
                )
    return _checked(source, names, values)


def read_mpigraph(path: str | os.PathLike[str]) -> PairTable:
    """Read what mpiGraph 1.x printed: MiB/s between ranks, one on each host.

    Of its two tables the second is used: what the receivers saw is what the
    network carried, while a send may end in a buffer.
    """
    source = str(path)
    lines = enumerate(lines_of(read_text(path)), start=1)
    start, head = next(
        (found for found in lines if found[1].startswith("Recv\t")), (0, "")
    )
    if not start:
        raise UsageError(
            f"{source}: no table 'Recv' in it: give all that 'mpiGraph' printed"
        )
    heads = head.split(maxsplit=TABLE_HOSTS + 1)[1:]
    if len(heads) > TABLE_HOSTS:
        raise UsageError(
            f"{source}: more than {TABLE_HOSTS} hosts: import a part of it"
        )
    names = tuple(check_host(head.rpartition(":")[0], source) for head in heads)
    # A row is a receiver there; mpiGraph prints 0 for what it did not measure.
    received = np.zeros((len(heads), len(heads)))
    for row, mine in enumerate(heads):
        _, line = next(lines, (0, ""))
        name, _, said = line.partition(" from\t")
        cells = said.split(maxsplit=len(heads))
        if name != mine or len(cells) != len(heads):
            raise UsageError(
                f"{source}:{start}: the table is cut off: run mpiGraph again"
            )
        received[row] = [_number(cell) for cell in cells]
    return _checked(source, names, np.where(received == 0.0, math.nan, received).T)


def _checked(source: str, names: tuple[str, ...], values: Floats) -> PairTable:
    """Return the table, refused where no measurement can say such a thing."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise UsageError(
                f"{source}: rows {names.index(name) + 1} and {i + 1} are both of "
                f"{name!r}: measure with one rank on each host"
            )
    if not 2 <= len(values) <= TABLE_HOSTS:
        raise UsageError(
            f"{source}: a matrix of {len(values)} hosts; 2 to {TABLE_HOSTS} are read"
        )
    # What a host tells of itself is not the network's.
    np.fill_diagonal(values, math.nan)
    table = PairTable(source, names, values)
    for src, dst in np.argwhere(np.isinf(values) | (values < 0.0))[:1]:
        raise UsageError(
            f"{table.where(src, dst)}: {values[src, dst]:g} is no measurement: leave "
            "empty what was not measured"
        )
    return _filled(table)


def _filled(table: PairTable) -> PairTable:
    """Return the table, refused if too little of it was measured."""
    known = np.isfinite(table.values)
    for i in np.flatnonzero(~known.any(axis=1) & ~known.any(axis=0))[:1]:
        raise UsageError(
            f"{table.where(i, i)}: nothing was measured with this host: leave it out"
        )
    pairs = len(known) * (len(known) - 1)
    # A round trip stands for both directions, so half of the cells may do.
    missing = pairs // 2 - int((known | known.T).sum()) // 2
    if missing > pairs // 4:
        src, dst = next((i, j) for i, j in np.argwhere(~(known | known.T)) if i != j)
        raise UsageError(
            f"{table.where(src, dst)}: not measured, nor are {missing} of "
            f"{pairs // 2} pairs: too little to tell the network"
        )
    return table


def _npy(path: str | os.PathLike[str]) -> Floats:
    try:
        # Mapped, not read: a header may promise more than the file holds.
        with warnings.catch_warnings():
            # Of a header of Python 2, which is as good as any other.
            warnings.simplefilter("ignore")
            array = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except _NOT_NPY as error:
        raise UsageError(f"{path}: not an .npy file ({shown(str(error))})") from None
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UsageError(
            f"{path}: an array of shape {array.shape}: not a square matrix"
        )
    if array.dtype.kind not in "fiu" or len(array) > TABLE_HOSTS:
        raise UsageError(
            f"{path}: {len(array)} rows of {array.dtype}: numbers of 2 to "
            f"{TABLE_HOSTS} hosts are read"
        )
    return np.array(array, dtype=np.float64)


class _Rows(Sequence[list[str]]):
    """Lines of text, each cut into cells when it is asked for.

    The cells of all lines at once would take many times the file.
    """

    def __init__(self, text: str, source: str) -> None:
        most = TABLE_HOSTS + 1  # with the row or column of names
        cut = (line.partition("#")[0].rstrip(" ") for line in _lines(text))
        self._lines = list(islice((line for line in cut if line.strip()), most + 1))
        # Blanks separate only where nothing else does.
        first = self._lines[0] if self._lines else ""
        self._mark = next((mark for mark in ",;\t" if mark in first), None)
        self._begin = 0
        if len(self._lines) > most or any(len(row) > most for row in self):
            raise UsageError(
                f"{source}: more than {TABLE_HOSTS} hosts: import a part of it"
            )

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        cells = self._lines[place].split(self._mark, TABLE_HOSTS + 1)
        return [cell.strip(" \t\"'") for cell in cells[self._begin :]]

    def body(self) -> _Rows:
        """Return the rows below the first, without their first cells."""
        rows = copy(self)
        rows._lines, rows._begin = self._lines[1:], 1
        return rows


def _lines(text: str) -> Iterator[str]:
    for line in io.StringIO(text, None):
        # What str.splitlines takes for an end of a line besides.
        yield from line.splitlines()


def _names(rows: _Rows, source: str) -> tuple[tuple[str, ...], _Rows]:
    """Return the hosts that first row and first column name, and the numbers."""
    head = rows[0]
    # Without a corner the first row is one shorter than the others.
    columns = head[1:] if len(rows) > 1 and len(head) == len(rows[1]) else head
    names = tuple(
        check_host(name, f"{source}: row 1, column {j}")
        for j, name in enumerate(columns, start=1)
    )
    firsts = tuple(row[0] for row in islice(rows, 1, None))
    if firsts == names:
        return names, rows.body()
    for number, (mine, theirs) in enumerate(zip(firsts, names, strict=False), start=1):
        if mine != theirs:
            raise UsageError(
                f"{source}: row {number} is of {shown(mine)}, column {number} of "
                f"{theirs!r}: rows and columns go in the same order"
            )
    raise UsageError(
        f"{source}: {len(firsts)} rows and {len(names)} columns: not a square matrix"
    )


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _missing(cell: str) -> bool:
    return cell.lower() in _MISSING
