"""The CSV form of a bench: one flat row for each measurement."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from cloudcoll.bench.operations import ELEMENT, OPERATIONS

COLUMNS = (
    *("op", "bytes", "count", "dtype", "redop", "placement", "order", "repeat"),
    *("time_us", "algbw", "busbw", "wrong"),
)


def csv_text(op: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return measurements as CSV: one header line, no spaces after commas.

    Parameters
    ----------
    op : str
        A key of `OPERATIONS`.
    rows : iterable of mapping
        With what `COLUMNS` has beside the types, in its units.
    """
    text = io.StringIO()
    same = {"dtype": "float", "redop": OPERATIONS[op].redop, "placement": "out"}
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, **same, "count": row["bytes"] // ELEMENT})
    return text.getvalue()
