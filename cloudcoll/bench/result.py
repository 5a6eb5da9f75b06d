"""What a bench measured: raw rows kept, ratios computed, and how sure they are.

Operations are counted and named as nccl-tests does.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import NOT_JSON, strict_json, write_atomic
from cloudcoll.files.limits import RANKS, STORED_HOSTS
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.units import json_ready


@dataclass(frozen=True)
class TimedOperation:
    """How one collective is timed and its bandwidth counted.

    Attributes
    ----------
    laps : int
        busbw = algbw times laps (n - 1) / n; 0 for busbw = algbw (nccl-tests,
        ``doc/PERFORMANCE.md``).
    redop : str
        What ranks' elements become one by.
    root : int
        Rank of the root, -1 for an operation without.
    blocks : bool
        Whether the vector is made of an equal block for each rank.
    """

    laps: int
    redop: str = "none"
    root: int = -1
    blocks: bool = False

    def busbw(self, algbw: float, ranks: int) -> float:
        """Return the bandwidth of the busiest link, in the unit of `algbw`."""
        return algbw * self.laps * (ranks - 1) / ranks if self.laps else algbw

    def round_down(self, size: int, ranks: int) -> int:
        """Return the largest size in bytes up to `size` that elements fill, or one."""
        unit = ELEMENT * (ranks if self.blocks else 1)
        return max(size // unit, 1) * unit


ELEMENT = 4
"""Bytes of one: float32."""

OPERATIONS = {
    "allgather": TimedOperation(1, blocks=True),
    "allreduce": TimedOperation(2, redop="sum"),
    "alltoall": TimedOperation(1, blocks=True),
    "bcast": TimedOperation(0, root=0),
    "reduce": TimedOperation(0, redop="sum", root=0),
    "reduce_scatter": TimedOperation(1, redop="sum", blocks=True),
}
"""Name, as in `cloudcoll.collectives.SCHEDULES`, -> operation."""

ALIASES = {"broadcast": "bcast", "all_to_all": "alltoall"}


def operation_name(text: str) -> str:
    """Return the key in `OPERATIONS` of a name such as ``all-to-all``, if there."""
    name = text.lower().replace("-", "_")
    name = ALIASES.get(name, name)
    if name not in OPERATIONS:
        raise UsageError(
            f"bench times no collective {text!r} (known: {', '.join(OPERATIONS)})"
        )
    return name


MIN_REPEATS = 3
"""Of fewer there is no interval: it would be as narrow as there is no doubt."""

BOOTSTRAP = 2000
"""Resamples for an interval; seeded, so the same run gives the same one."""


@dataclass(frozen=True)
class Ratio:
    """How many times longer a baseline takes than CloudColl's order.

    Attributes
    ----------
    op, bytes, baseline
        What was compared; ``random`` stands for the median of all of them.
    ratio : float
        Median over the repeats of baseline time / CloudColl's time, paired.
    low, high : float
        95 % bootstrap interval of that median; NaN for less than `MIN_REPEATS`.
    predicted : float
        The same ratio by the cost model.
    """

    op: str
    bytes: int
    baseline: str
    ratio: float
    low: float
    high: float
    predicted: float


def interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a median (percentiles; Efron 1979).

    NaN for less than `MIN_REPEATS`.
    """
    if len(values) < MIN_REPEATS:
        return np.nan, np.nan
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(values), (BOOTSTRAP, len(values)))
    medians = np.median(values[picks], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


SCHEMA = 1
"""Version of the JSON form. 1: first."""

_WRONG = (*NOT_JSON, *(KeyError, AttributeError, TypeError, ArithmeticError))
"""What a file that no bench wrote ends in."""

MOST = 1 << 60
"""The largest number taken: bytes, microseconds, repeats."""


Fits = Callable[[Any], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST  # type: ignore[operator]


def _are_words(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_METADATA: dict[str, Fits] = {
    **dict.fromkeys(("algorithm", "library", "collective", "failure"), _is_text),
    "ranks": lambda value: type(value) is int and 1 <= value <= RANKS,
    "left_out": _are_words,
    "choices": _list_of(_is_text),
    "args": _list_of(lambda value: isinstance(value, (str, int, float))),
    # As far as a calendar goes.
    **dict.fromkeys(
        ("start_time", "end_time"), lambda value: _is_number(value) and value < 1e11
    ),
}
"""What reports count on, where it is there."""

_SPARED: dict[str, Fits] = {
    "orders": _list_of(_is_text),
    "sizes": _list_of(lambda value: type(value) is int and 0 < value <= MOST),
    "seconds": _is_number,
    "needed": lambda value: value is None or _is_number(value),
}
"""The same of ``spared``."""


COLUMNS = (
    *("op", "bytes", "count", "dtype", "redop", "placement", "order", "repeat"),
    *("time_us", "algbw", "busbw", "wrong"),
)
"""Of the CSV form, in the units of the JSON form."""


class Median(NamedTuple):
    """The median of an order's times at one size, with its bandwidths in GB/s."""

    size: int
    order: str
    time_us: float
    algbw: float
    busbw: float


@dataclass(frozen=True)
class BenchRun:
    """One bench: raw timings per order, interleaved.

    Attributes
    ----------
    metadata : mapping
        Version, command, library, hosts, ranks, algorithm and why, start and end
        time; ``failure``, why the job ended before it was done, empty if not;
        ``left_out``, why by order that could not be started; ``spared``,
        what there was no time for: ``orders``, ``sizes`` (bytes), the ``seconds``
        there were and those ``needed`` for all (None: not known).
    orders : mapping of str to sequence of str
        Host names by the name of the order that was measured.
    same_as : mapping of str to str
        Names of orders that equal a measured one, and its name.
    rows : tuple of mapping
        ``op bytes order repeat time_us wrong``, as they came.
    predicted : mapping
        Seconds by order name, by bytes as a string.
    """

    metadata: Mapping[str, Any]
    orders: Mapping[str, tuple[str, ...]]
    same_as: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    predicted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """World size."""
        return int(self.metadata["ranks"])

    @property
    def op(self) -> str:
        """The collective; a key of `OPERATIONS`."""
        return str(self.metadata.get("collective", "allreduce"))

    @property
    def failure(self) -> str:
        """Why the job ended before it was done; empty if it did not."""
        return str(self.metadata.get("failure", ""))

    @property
    def left_out(self) -> dict[str, str]:
        """Why each order that is missing could not be started."""
        return dict(self.metadata.get("left_out", {}))

    @property
    def spared(self) -> dict[str, Any]:
        """What there was no time for, empty for nothing."""
        return dict(self.metadata.get("spared", {}))

    @property
    def wrong(self) -> int:
        """Elements that were not as they should be, in all measurements."""
        return sum(int(row["wrong"]) for row in self.rows)

    @property
    def named(self) -> list[str]:
        """The measured orders but the random ones."""
        return [name for name in self.orders if not name.startswith("random-")]

    @property
    def random(self) -> list[str]:
        """The measured orders that are random."""
        return [name for name in self.orders if name.startswith("random-")]

    def order_of(self, name: str) -> str:
        """Return the measured order that a name stands for."""
        return self.same_as.get(name, name)

    def all_names(self, order: str) -> str:
        """Return what a measured order is called, with those that equal it."""
        same = [alias for alias, name in self.same_as.items() if name == order]
        return " = ".join([order, *same])

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes measured, ascending."""
        return sorted({int(row["bytes"]) for row in self.rows})

    @cached_property
    def told_size(self) -> int:
        """The largest size at which orders were measured often enough to compare.

        The largest of all where none was.
        """
        enough = [
            size
            for size in self.sizes
            if min(len(self.times(size, one)) for one in self.orders) >= MIN_REPEATS
        ]
        return max(enough, default=self.sizes[-1])

    @cached_property
    def _series(self) -> dict[tuple[int, str], dict[int, float]]:
        """Microseconds by repeat, by bytes and order."""
        series: dict[tuple[int, str], dict[int, float]] = {}
        for row in self.rows:
            times = series.setdefault((int(row["bytes"]), str(row["order"])), {})
            times[int(row["repeat"])] = float(row["time_us"])
        return series

    def times(self, size: int, order: str) -> Floats:
        """Return the microseconds of one order at one size, by repeat."""
        series = self._series.get((size, order), {})
        return np.array([series[repeat] for repeat in sorted(series)])

    def paired(self, size: int, orders: Sequence[str]) -> Floats:
        """Return the microseconds of the repeats that all of `orders` have.

        The shape is (orders, repeats).
        """
        series = [self._series.get((size, order), {}) for order in orders]
        repeats = sorted(set(series[0]).intersection(*series[1:]))
        return np.array([[times[repeat] for repeat in repeats] for times in series])

    def _bandwidths(self, size: int, time_us: float) -> tuple[float, float]:
        """Return algbw and busbw in GB/s (GB = 1e9)."""
        algbw = size / time_us * 1e-3
        return algbw, OPERATIONS[self.op].busbw(algbw, self.ranks)

    def results(self) -> list[dict[str, Any]]:
        """Return the rows with ``algbw`` and ``busbw`` (GB/s)."""
        flat = []
        for row in self.rows:
            algbw, busbw = self._bandwidths(row["bytes"], row["time_us"])
            flat.append({**row, "algbw": algbw, "busbw": busbw})
        return flat

    def medians(self) -> list[Median]:
        """Return what stands for each order at each size."""
        medians = []
        for size, order in self._series:
            time_us = float(np.median(self.times(size, order)))
            both = self._bandwidths(size, time_us)
            medians.append(Median(size, order, time_us, *both))
        return medians

    def ratios(self) -> list[Ratio]:
        """Return every baseline against CloudColl's order, size by size."""
        ours = self.order_of("cloudcoll")
        if ours not in self.orders:
            return []
        return [
            self._ratio(size, baseline, orders, ours)
            for size in self.sizes
            for baseline, orders in self._baselines().items()
            # A job that died may have left no repeat of all of them.
            if self.paired(size, [ours, *orders]).size
        ]

    def _baselines(self) -> dict[str, list[str]]:
        """Baseline -> the measured orders whose median stands for it."""
        names = dict.fromkeys((*self.orders, *self.same_as))
        names.pop("cloudcoll", None)
        random = [self.order_of(one) for one in names if one.startswith("random-")]
        named = {n: [self.order_of(n)] for n in names if not n.startswith("random-")}
        return named | ({"random": random} if random else {})

    def _ratio(self, size: int, baseline: str, orders: list[str], ours: str) -> Ratio:
        mine, *others = self.paired(size, [ours, *orders])
        paired = np.median(others, axis=0) / mine
        low, high = interval(paired)
        model = self.predicted.get(str(size), {})
        best = model.get(ours) or np.nan  # of no seconds there is no ratio
        modelled = np.median([model.get(name, np.nan) for name in orders]) / best
        ratio = float(np.median(paired))
        return Ratio(self.op, size, baseline, ratio, low, high, float(modelled))

    def to_json(self) -> str:
        """Return the JSON form: one object, with `results` and `ratios`."""
        data = {
            "schema": SCHEMA,
            **self.metadata,
            "orders": self.orders,
            "same_as": self.same_as,
            "predicted": self.predicted,
            "results": self.results(),
            "ratios": [json_ready(vars(ratio)) for ratio in self.ratios()],
        }
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to `path`, or CSV if it ends so, atomically."""
        is_csv = os.fspath(path).lower().endswith(".csv")
        write_atomic(path, self.to_csv() if is_csv else self.to_json())

    def to_csv(self) -> str:
        """Return the rows of `results` as CSV: a header, no spaces after commas."""
        text = io.StringIO()
        redop = OPERATIONS[self.op].redop
        same = {"dtype": "float", "redop": redop, "placement": "out"}
        writer = csv.DictWriter(
            text, COLUMNS, lineterminator="\n", extrasaction="ignore"
        )
        writer.writeheader()
        for row in self.results():
            writer.writerow({**row, **same, "count": row["bytes"] // ELEMENT})
        return text.getvalue()

    @classmethod
    def from_json(cls, text: str, source: str = "bench result") -> BenchRun:
        """Read the JSON form; UnusableError if it is another, or incomplete."""
        try:
            data = strict_json(text)
            if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
                raise ValueError(f"not a bench result of schema {SCHEMA}")
            orders = {name: tuple(hosts) for name, hosts in data.pop("orders").items()}
            data.pop("ratios")
            run = cls(
                orders=orders,
                same_as=data.pop("same_as"),
                predicted=data.pop("predicted"),
                rows=tuple(map(_row, data.pop("results"))),
                metadata=data,
            )
            _check_whole(run)
        except (*_WRONG, UsageError) as error:
            why = f"no {error} in it" if isinstance(error, KeyError) else str(error)
            why = " ".join(why.split())[:500]
            raise UnusableError(
                f"{source}: {why} (not what 'cloudcoll bench -o' writes, or not all of "
                "it: run the bench again)"
            ) from None
        return run


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `results` without what follows from the rest."""
    # The same object: of a million rows a copy takes as much again.
    for follows in ("algbw", "busbw"):
        row.pop(follows, None)
    return row


def _check_whole(run: BenchRun) -> None:
    """Raise ValueError, TypeError or KeyError for what no bench writes."""
    for key in ("algorithm", "hosts", "library", "ranks"):
        run.metadata[key]
    _check_words(run)
    for key, fits in _METADATA.items():
        if key in run.metadata and not fits(run.metadata[key]):
            raise ValueError(f"{key}: {shown(run.metadata[key])}")
    for key, fits in _SPARED.items():
        if run.spared and not fits(run.spared[key]):
            raise ValueError(f"spared: {key}: {shown(run.spared[key])}")
    if run.op not in OPERATIONS or not run.rows:
        raise ValueError(f"no measurements of a collective ({shown(run.op)})")
    for row in run.rows:
        if row["order"] not in run.orders:
            raise ValueError(f"a measurement of an unknown order {shown(row['order'])}")
        numbers = (row["bytes"], row["repeat"], row["wrong"], row["time_us"])
        if not (
            {*map(type, numbers[:3])} == {int}
            and type(row["time_us"]) in (int, float)
            and (0 < row["bytes"] <= MOST and 0 < row["time_us"] <= MOST)
            and (0 <= row["repeat"] <= MOST and 0 <= row["wrong"] <= MOST)
        ):
            raise ValueError(f"a measurement that makes no sense: {shown(row)}")


def _check_words(run: BenchRun) -> None:
    """Raise UsageError for hosts that are none, ValueError for other words.

    A report has them, and the command lines that it says.
    """
    for name, hosts in {"hosts": run.metadata["hosts"], **run.orders}.items():
        if len(hosts) > STORED_HOSTS:
            raise ValueError(f"{len(hosts)} hosts: at most {STORED_HOSTS}")
        for host in hosts:
            check_host(host, f"order {shown(name)}")
    if not _are_words(run.same_as):
        raise ValueError("same_as: not names with names")
    if not set(run.same_as.values()) <= set(run.orders):
        raise ValueError("same_as: an order that was not measured")
    for size, seconds in run.predicted.items():
        for name, value in seconds.items():
            if not _is_number(value):
                raise ValueError(f"predicted: {shown(size)}: {shown(name)}: no seconds")
