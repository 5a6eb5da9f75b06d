"""A snapshot's summary as JSON-ready values: SI units, NaN as ``null``."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from cloudcoll.arrays import Floats
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import fabric_to_dict
from cloudcoll.network.tree import Fabric
from cloudcoll.report.checks import check_snapshot, next_steps
from cloudcoll.report.findings import (
    honest_fabric,
    host_effects,
    oversubscription,
    uplinks,
)
from cloudcoll.report.totals import one_way_pairs, rates, repeats, round_trips


def snapshot_json(snapshot: NetworkSnapshot, matrices: bool = False) -> dict[str, Any]:
    """Return a snapshot's summary as JSON-ready values.

    ``levels`` goes from the leaves up: level 0 has the groups whose members
    are hosts, the last level is the core. ``host_effects`` and ``uplinks``
    have the fields of `cloudcoll.report.findings`, ``one_way_pairs`` those of
    `cloudcoll.report.totals`, the worst first; ``round_trips``,
    ``rates`` and ``repeats`` those of `cloudcoll.report.totals`. NaN is ``null``.

    Parameters
    ----------
    snapshot : NetworkSnapshot
    matrices : bool
        With ``matrices``: seconds and bytes/s from each of ``hosts`` (row) to
        each other.
    """
    fabric = honest_fabric(snapshot)
    measured = snapshot.fabric is not None
    data = {
        "digest": snapshot.digest,
        "created": snapshot.created,
        "hosts": list(snapshot.names),
        "failed": dict(snapshot.failed),
        "silent": sorted(snapshot.silent),
        "levels": _levels(fabric) if measured else [],
        "holdout_error": _null(fabric.holdout_error),
        "fabric": fabric_to_dict(fabric) if measured else None,
        **_figures(snapshot, fabric),
        "warnings": check_snapshot(snapshot),
        "next": next_steps(snapshot),
        "metadata": dict(snapshot.metadata),
    }
    if matrices:
        data["matrices"] = {
            "rtt_s": _table(snapshot.latency.values),
            "bytes_per_s": _table(snapshot.bandwidth.values),
        }
    return data


def _figures(snapshot: NetworkSnapshot, fabric: Fabric) -> dict[str, Any]:
    return {
        "round_trips": _row(round_trips(snapshot)),
        "rates": _row(rates(snapshot)),
        "repeats": _row(merged) if (merged := repeats(snapshot)) else None,
        "host_effects": [_row(host) for host in host_effects(snapshot, fabric)],
        "uplinks": [_row(link) for link in uplinks(snapshot, fabric)],
        "one_way_pairs": [_row(pair) for pair in one_way_pairs(snapshot, fabric)],
    }


def _levels(fabric: Fabric) -> list[dict[str, Any]]:
    return [
        {
            "groups": [list(node.leaves()) for node in nodes],
            "rtt_s": [_null(fabric.rtt(node)) for node in nodes],
            "uplink_bytes_per_s": [_null(node.uplink_bytes_per_s) for node in nodes],
            "downlink_bytes_per_s": [
                _null(node.downlink_bytes_per_s) for node in nodes
            ],
            "oversubscription": [_null(oversubscription(node)) for node in nodes],
            "holdout_error": _null(fabric.holdout_error),
        }
        for nodes in fabric.groups()
    ]


def _row(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields."""
    return {
        key: _null(field) if isinstance(field, float) else field
        for key, field in dataclasses.asdict(value).items()
    }


def _table(values: Floats) -> list[list[float | None]]:
    return [[_null(value) for value in row] for row in values.tolist()]


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None
