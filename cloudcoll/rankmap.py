"""The answer: which host gets which ranks."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files import parse_json, read_text, write_atomic
from cloudcoll.files.limits import RANKS, SLOTS, STORED_HOSTS
from cloudcoll.hosts.names import check_digest, check_host
from cloudcoll.tuning import Tuning, read_tuning

SCHEMA = 1
"""Version of the JSON form. 1: first."""

PERFECT = 1e-6
"""A gap to the lower bound below this is rounding."""

SURE = 0.95
"""Confidence from which groups are called sure, and none is measured any longer."""


@dataclass(frozen=True)
class CallOrder:
    """The order for calls of one collective: no launcher's, but the shim's.

    Attributes
    ----------
    least, most : int
        Bytes of the whole vector of a call.
    order : tuple of str
        The map's hosts.
    """

    collective: str
    least: int
    most: int
    order: tuple[str, ...]


@dataclass(frozen=True)
class RankMap:
    """An order of hosts, and what it is expected to bring.

    Whole hosts are permuted: a host's ranks are consecutive and keep their
    order.

    Attributes
    ----------
    order : tuple of str
        Host names; the first takes the first ranks.
    slots : tuple of int
        Ranks on each host, in the same positions.
    schedule : mapping
        What it was solved for: operation, algorithm, library, ranks, bytes; or
        a workload, as its file has it.
    predicted : mapping of str to float
        Seconds of one call, or one step of a workload, by the name of the
        order: ``cloudcoll``, ``given`` and every baseline.
    intervals : mapping of str to (float, float)
        By the name of the order, between which seconds 90 % of measurements should
        be; see `cloudcoll.model.cost`. Not of all, and of none in older maps.
    snapshot : str
        Digest of the snapshot it was solved from.
    seed : int
        Of the search.
    lower_bound : float or None
        Seconds that no order can beat that was allowed (rank 0 stays on its
        host, mostly); None where no bound was computed.
    origin : str
        Which candidate won: ``search``, ``given``, ``grouped``, ....
    reason : str
        Why the order given stays, where that is not because none is faster.
    assumption : str
        What `predicted` rests on beside measurements; empty for nothing.
    measured : float or None
        Share of the pairs of these hosts of which anything was measured; what
        the others take was filled in from their groups. None where not known.
    confidence : float or None
        How sure the groups are that it was solved for, from 0 to 1; see
        `cloudcoll.network.tree.Fabric`. None where not known.
    constraints : mapping
        What the user demanded of the order; empty for nothing.
    dropped : tuple of str
        Hosts that were there to take and are left out.
    breaking : tuple of str
        Orders of `predicted` that break the constraints.
    calls : tuple of CallOrder
        Collectives that run faster in another order, by size.
    addresses : mapping of str to str
        Where hosts are reached whose names don't say it.
    tuning : Tuning or None
        The algorithms that were chosen together with the order; None for none.
    """

    order: tuple[str, ...]
    slots: tuple[int, ...]
    schedule: Mapping[str, Any] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    snapshot: str = ""
    seed: int = 0
    lower_bound: float | None = None
    origin: str = "given"
    reason: str = ""
    assumption: str = ""
    measured: float | None = None
    confidence: float | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    breaking: tuple[str, ...] = ()
    calls: tuple[CallOrder, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    tuning: Tuning | None = None

    def __post_init__(self) -> None:
        known = (*self.order, *self.dropped)
        if len(known) > STORED_HOSTS:
            raise UsageError(
                f"a rank map of {len(known)} hosts: at most {STORED_HOSTS}"
            )
        if len(set(known)) != len(known):
            ((twice, _),) = Counter(known).most_common(1)
            raise UsageError(f"host {twice!r} stands twice in the rank map")
        if len(self.slots) != len(self.order):
            raise UsageError(
                f"the rank map has {len(self.order)} hosts but {len(self.slots)} "
                "slot counts"
            )
        if any(slots < 1 for slots in self.slots):
            raise UsageError("every host of a rank map needs at least one slot")
        self._check_words(known)
        if max(self.slots, default=0) > SLOTS or sum(self.slots) > RANKS:
            raise UsageError(
                f"a rank map of {sum(self.slots)} ranks, {max(self.slots)} on a host: "
                f"at most {RANKS}, {SLOTS} on a host"
            )
        if any(sorted(call.order) != sorted(self.order) for call in self.calls):
            raise UsageError("a collective's order has other hosts than the rank map")
        if self.tuning:
            self._check_tuning(self.tuning)

    def _check_tuning(self, tuning: Tuning) -> None:
        """Refuse algorithms for another job, or that its library does not have."""
        # Only maps with a tuning pay for this.
        from cloudcoll.libraries.telling import check_tuning

        if tuning.ranks != self.size:
            raise UsageError(
                f"a tuning for {tuning.ranks} ranks in a rank map of {self.size}"
            )
        check_tuning(tuning)

    def _check_words(self, known: Sequence[str]) -> None:
        """Refuse what may not stand in a file for a launcher."""
        for name in known:
            check_host(name, "a host of the rank map")
        for name, address in self.addresses.items():
            check_host(name, "a host with an address in the rank map")
            check_host(address, f"the address of {name!r} in the rank map")
        check_digest(self.snapshot, "the snapshot of the rank map")

    @property
    def size(self) -> int:
        """World size: the number of ranks."""
        return sum(self.slots)

    @property
    def gap(self) -> float:
        """Seconds predicted over those of the lower bound, less 1.

        The best order is faster by that share at most. NaN where no bound is
        known, or nothing of the network.
        """
        if not self.lower_bound or "cloudcoll" not in self.predicted:
            return math.nan
        return max(self.predicted["cloudcoll"] / self.lower_bound - 1, 0.0)

    @property
    def is_perfect(self) -> bool:
        """Whether no order can be faster, as far as the prediction goes."""
        return self.gap < PERFECT

    @property
    def is_sure(self) -> bool:
        """Whether the groups are sure that it was solved for, as far as is known."""
        return self.confidence is None or self.confidence >= SURE

    @property
    def kept(self) -> str:
        """Words for an order that stays as given; empty for any other."""
        if self.origin != "given":
            return ""
        # Of hosts that were not all measured nobody can say what is possible.
        certain = self.is_perfect and self.measured in (None, 1.0) and self.is_sure
        why = self.reason or f"no gain {'possible' if certain else 'expected'}"
        return f"{why}: order kept"

    def placement(self) -> Iterator[tuple[str, int]]:
        """Yield (host, local slot) for each rank."""
        for host, slots in zip(self.order, self.slots, strict=True):
            for slot in range(slots):
                yield host, slot

    def to_json(self) -> str:
        """Return the JSON form; `from_json` reads it back."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to `path`, atomically."""
        write_atomic(path, self.to_json())

    @classmethod
    def from_json(cls, text: str, source: str = "rank map") -> RankMap:
        """Read the JSON form, checking every field.

        Raises
        ------
        UsageError
            Not JSON, of another schema, or a field is missing or wrong.
        """
        data = parse_json(text, source)
        found = data.get("schema") if isinstance(data, dict) else None
        if type(found) is not int or found != SCHEMA:
            raise UsageError(
                f"{source}: rank map schema {found!r}, this CloudColl reads {SCHEMA}: "
                "solve again with 'cloudcoll solve'"
            )
        fields = _fields(data, source)
        try:
            return cls(**fields)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None


def load_rankmap(path: str | os.PathLike[str]) -> RankMap:
    """Read a rank map file.

    Raises
    ------
    UsageError
        It is not there, not readable, or not a rank map.
    """
    advice = "make one with 'cloudcoll solve SNAP -o MAP'"
    text = read_text(path, f"the rank map {path}", advice)
    return RankMap.from_json(text, str(path))


def _fields(data: dict[str, Any], source: str) -> dict[str, Any]:
    """Return what a map is made of, each field checked."""
    predicted = _field(data, "predicted", dict, {}, source)
    bounded = data.get("lower_bound") is not None
    return {
        "order": tuple(_list(data, "order", str, source)),
        "slots": tuple(_list(data, "slots", int, source)),
        "schedule": _schedule(data, source),
        "predicted": {name: _seconds(predicted, name, source) for name in predicted},
        "intervals": _intervals(data, source),
        "snapshot": _field(data, "snapshot", str, "", source),
        "seed": _field(data, "seed", int, 0, source),
        "lower_bound": _seconds(data, "lower_bound", source) if bounded else None,
        "origin": _field(data, "origin", str, "given", source),
        "reason": _field(data, "reason", str, "", source),
        "assumption": _field(data, "assumption", str, "", source),
        "measured": _share(data, "measured", source),
        "confidence": _share(data, "confidence", source),
        "constraints": _field(data, "constraints", dict, {}, source),
        "dropped": tuple(_list(data, "dropped", str, source, ())),
        "breaking": tuple(_list(data, "breaking", str, source, ())),
        "calls": tuple(
            _call_order(call, source) for call in _list(data, "calls", dict, source, ())
        ),
        "addresses": _addresses(data, source),
        "tuning": (
            None if data.get("tuning") is None else read_tuning(data["tuning"], source)
        ),
    }


def _schedule(data: dict[str, Any], source: str) -> dict[str, Any]:
    schedule: dict[str, Any] = _field(data, "schedule", dict, {}, source)
    _field(schedule, "size", int, 0, f"{source}: 'schedule'")
    return schedule


def _call_order(data: dict[str, Any], source: str) -> CallOrder:
    return CallOrder(
        _field(data, "collective", str, None, source),
        _field(data, "least", int, None, source),
        _field(data, "most", int, None, source),
        tuple(_list(data, "order", str, source)),
    )


def _addresses(data: dict[str, Any], source: str) -> dict[str, str]:
    found: dict[str, Any] = _field(data, "addresses", dict, {}, source)
    return {
        name: _field(found, name, str, None, f"{source}: 'addresses'") for name in found
    }


def _intervals(data: dict[str, Any], source: str) -> dict[str, tuple[float, float]]:
    found: dict[str, Any] = _field(data, "intervals", dict, {}, source)
    intervals = {}
    for name, ends in found.items():
        if not isinstance(ends, list) or len(ends) != 2:
            raise UsageError(f"{source}: the interval of {name!r} must be two numbers")
        named = dict(zip(("low", "high"), ends, strict=True))
        low, high = (_seconds(named, end, source) for end in named)
        if low > high:
            raise UsageError(
                f"{source}: the interval of {name!r} ends before it begins"
            )
        intervals[name] = (low, high)
    return intervals


def _list(
    data: dict[str, Any],
    key: str,
    kind: type,
    source: str,
    default: Sequence[Any] | None = None,
) -> Sequence[Any]:
    """Return a list of items of one kind; it may be empty if it has a default."""
    if key not in data and default is not None:
        return default
    value: Any = data.get(key)
    wanted = isinstance(value, list) and all(type(item) is kind for item in value)
    if not wanted or not (value or default is not None):
        raise UsageError(f"{source}: {key!r} must be a list of {kind.__name__}")
    return list(value)


def _field(
    data: dict[str, Any], key: str, kind: type, default: object, source: str
) -> Any:
    value = data.get(key, default)
    if type(value) is not kind:  # not isinstance: True is no number here
        raise UsageError(f"{source}: {key!r} must be of type {kind.__name__}")
    return value


def _share(data: dict[str, Any], key: str, source: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise UsageError(f"{source}: {key!r} must be a share, 0 to 1")
    return float(value)


def _seconds(data: dict[str, Any], key: str, source: str) -> float:
    value = data[key]
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        raise UsageError(f"{source}: {key!r} must be seconds, 0 or more")
    return float(value)
