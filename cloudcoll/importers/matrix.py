"""``import matrix``: latency and bandwidth that another tool measured.

A matrix is carried as the measurement it is: one round trip of each pair, one
flow of each directed pair. Only who ran together is not in a matrix: pairs
count as measured alone, mpiGraph's as its ring shifts ran them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.importers.reading import provenance
from cloudcoll.importers.table import (
    BYTES_PER_S,
    SECONDS,
    PairTable,
    rate_unit,
    read_mpigraph,
    read_table,
    time_unit,
)
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.samples import LoadedFlows, RttSamples, no_flows, no_rtt
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node

PLAUSIBLE_RTT = (3e-7, 1.0)
"""Seconds of round trip between two hosts, from the fastest InfiniBand to the
other side of the world."""

PLAUSIBLE_RATE = (1e5, 1e12)
"""Bytes/s between two hosts, from a slow modem to several NVLinks."""

ALIKE = 2.0
"""Deviations of single pairs by which the fastest pairs of two like cards differ."""

ALONE = (
    "one pair at a time shows no more than what uplinks carry for one: what they carry "
    "together is not known"
)
NO_LATENCY = "no groups were found without latencies: import them too, with --latency"

Path = str | os.PathLike[str]


def read_matrices(
    latency: Path | None = None,
    bandwidth: Path | None = None,
    mpigraph: Path | None = None,
    *,
    latency_unit: str = "us",
    bandwidth_unit: str = "",
    one_way: bool = False,
    hosts: Sequence[Host] = (),
) -> NetworkSnapshot:
    """Read matrices of the same hosts into a snapshot, with its fabric inferred.

    Parameters
    ----------
    latency, bandwidth, mpigraph : path, optional
        Tables (`read_table`), or what mpiGraph printed in place of a bandwidth
        table; at least one of them.
    latency_unit, bandwidth_unit : str
        What the tables count in; a bandwidth table needs it said, for a factor
        of eight looks like a network too.
    one_way : bool
        Whether the latencies are one way, as OSU's and IMB's are, and to be
        doubled.
    hosts : sequence of Host
        Names and order, where the tables do not name their rows or to say
        another order.

    Raises
    ------
    UsageError
        Nothing to read, a table that is not square or not of these hosts, a
        value that is negative or not plausible in its unit; file, row and
        column are named.
    """
    trips = None
    if latency:
        trips = _scaled(read_table(latency), latency_unit, 2 if one_way else 1)
    rates = _rates(bandwidth, mpigraph, bandwidth_unit)
    tables = [table for table in (trips, rates) if table]
    if not tables:
        raise UsageError(
            "no matrix: name one with --latency, --bandwidth or --mpigraph"
        )
    known = tuple(hosts) or _named_by(tables)
    names = [host.name for host in known]
    snapshot = NetworkSnapshot(
        known,
        rtt=_round_trips(trips.named(names)) if trips else no_rtt(),
        flows=_flows(rates.named(names), bool(mpigraph)) if rates else no_flows(),
        metadata=provenance(", ".join(table.source for table in tables), "matrix"),
    )
    fabric = replace(infer_fabric(snapshot), origin="imported")
    if rates and not mpigraph:
        fabric = _measured_alone(fabric, snapshot)
    if not trips and len(fabric.groups()) == 1:
        fabric = replace(fabric, warnings=(*fabric.warnings, NO_LATENCY))
    return snapshot.with_fabric(fabric)


def _measured_alone(fabric: Fabric, snapshot: NetworkSnapshot) -> Fabric:
    """Return the fabric with cards as fast as the fastest of their pairs.

    What a pair gets across groups when it is alone is less than their links
    carry: the rates of these stay unknown.
    """
    out, into = _cards(snapshot.bandwidth.values)
    place = {name: i for i, name in enumerate(snapshot.names)}

    def fill(node: Node) -> Node:
        if node.children:
            up = down = math.nan
        else:
            host = place[node.name]
            up, down = float(out[host]), float(into[host])
        return replace(
            node,
            children=tuple(map(fill, node.children)),
            uplink_bytes_per_s=up,
            downlink_bytes_per_s=down,
        )

    warnings = fabric.warnings
    if len(fabric.groups()) > 1:
        warnings += (ALONE,)
    return replace(fabric, root=fill(fabric.root), warnings=warnings)


def _cards(rates: Floats) -> tuple[Floats, Floats]:
    """Return the fastest rate out of and into each host, of like cards the same.

    Noise alone gives every host another one, and an order tuned to it.
    """
    fastest = np.fmax.reduce(rates, axis=1), np.fmax.reduce(rates, axis=0)
    off = np.log(rates / np.minimum.outer(*fastest))
    known = off[np.isfinite(off)]
    noise = 1.4826 * float(np.median(np.abs(known - np.median(known))))
    for ends in fastest:
        usual = np.median(ends[np.isfinite(ends)])
        ends[np.abs(np.log(ends / usual)) < ALIKE * noise] = usual
    return fastest


def _rates(
    bandwidth: Path | None, mpigraph: Path | None, unit: str
) -> PairTable | None:
    if bandwidth and mpigraph:
        raise UsageError("--bandwidth and --mpigraph exclude each other: give one")
    if mpigraph and unit not in ("", "MiB/s"):
        raise UsageError(f"mpiGraph counts in MiB/s: leave out --unit {unit}")
    if mpigraph:
        return _scaled(read_mpigraph(mpigraph), "MiB/s")
    if bandwidth and not unit:
        raise UsageError(
            f"{bandwidth}: in which unit? say --unit ({', '.join(BYTES_PER_S)})"
        )
    return _scaled(read_table(bandwidth), unit) if bandwidth else None


def _named_by(tables: Sequence[PairTable]) -> tuple[Host, ...]:
    for table in tables:
        if table.names:
            return tuple(map(Host, table.names))
    raise UsageError(
        f"{tables[0].source}: its rows have no names: list the hosts with --hosts FILE"
    )


def _scaled(table: PairTable, unit: str, factor: int = 1) -> PairTable:
    """Return the table in SI units, refused if it cannot be a network's."""
    rate = unit in BYTES_PER_S
    scale = rate_unit(unit) if rate else time_unit(unit) * factor
    low, high = PLAUSIBLE_RATE if rate else PLAUSIBLE_RTT
    with np.errstate(over="ignore"):  # what is infinite then is refused below
        values = table.values * scale
    for src, dst in np.argwhere((values < low) | (values > high))[:1]:
        raise UsageError(
            f"{table.where(src, dst)}: {table.values[src, dst]:g} {unit} is no "
            f"network's {'bandwidth' if rate else 'latency'}: say its unit with --unit "
            f"({', '.join(BYTES_PER_S if rate else SECONDS)})"
        )
    return replace(table, values=values)


def _round_trips(table: PairTable) -> RttSamples:
    src, dst = np.nonzero(np.isfinite(table.values))
    return RttSamples(
        src=src,
        dst=dst,
        sent=np.ones(len(src), dtype=np.int64),
        ends=np.arange(1, len(src) + 1),
        seconds=table.values[src, dst],
    )


def _flows(table: PairTable, together: bool) -> LoadedFlows:
    """Return one window of a second for each pair.

    mpiGraph's rank sends to the one ``d`` to its right in round ``d``, all at
    the same time.
    """
    src, dst = np.nonzero(np.isfinite(table.values))
    rounds = (dst - src) % len(table.values) - 1 if together else np.arange(len(src))
    return LoadedFlows(
        round=rounds,
        src=src,
        dst=dst,
        ends=np.arange(1, len(src) + 1),
        window_bytes=np.rint(table.values[src, dst]).astype(np.int64),
        window_s=1.0,
        ramp_up=0,
    )
