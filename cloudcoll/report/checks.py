"""When a snapshot is not to be trusted, why, and what to run next."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from cloudcoll import units
from cloudcoll.hosts import natural_key
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.pairs import measured_pairs
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import SURE
from cloudcoll.report.findings import honest_fabric, worst_hosts
from cloudcoll.report.totals import one_way_pairs

STALE = 3600.0
"""Seconds after which a snapshot is called old."""

FEW_SAMPLES = 20
SPREAD = 3.0
"""p90 over p10 of a pair's round trips above which a pair counts as noisy."""

NOISY_PAIRS = 0.25
LOSS = 0.01
NAMES_SHOWN = 4


def check_snapshot(snapshot: NetworkSnapshot) -> list[str]:
    """Return one line per doubt; an empty list means none."""
    return [
        line
        for check in (_age, _samples, _spread, _loss, _load)
        if (line := check(snapshot))
    ] + list(snapshot.fabric.warnings if snapshot.fabric else ())


def _age(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.age < 0:
        return "it was made in the future: check the clocks, or probe again"
    if snapshot.age > STALE:
        return f"it is {units.seconds(snapshot.age)} old: probe again"
    return None


def _samples(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.origin == "imported":
        # One figure for each pair is all that a matrix has.
        return None
    counts = np.diff(snapshot.rtt.ends, prepend=0)
    few = int((counts < FEW_SAMPLES).sum())
    if not few:
        return None
    found = f"{few} of {len(counts)} pairs have fewer than {FEW_SAMPLES} round trips"
    if further := _further(snapshot):
        return f"{found}: probe again with {further}"
    return f"{found}: they were lost, or their hosts were too busy to answer"


def _spread(snapshot: NetworkSnapshot) -> str | None:
    enough = np.diff(snapshot.rtt.ends, prepend=0) >= FEW_SAMPLES / 2
    low, high = (snapshot.rtt.quantile(q)[enough] for q in (0.1, 0.9))
    noisy = int((high > SPREAD * low).sum())
    if noisy > NOISY_PAIRS * max(len(low), 1):
        return (
            f"round trips of {noisy} of {len(low)} pairs scatter more than "
            f"{SPREAD:.0f}x: something else uses these hosts or links; probe again "
            "when it is quiet"
        )
    return None


def _loss(snapshot: NetworkSnapshot) -> str | None:
    if not len(snapshot.rtt.src):
        return None
    loss = np.nan_to_num(snapshot.loss)
    lossy = int((loss > LOSS).sum())
    if not lossy:
        return None
    worst = np.unravel_index(int(loss.argmax()), loss.shape)
    src, dst = (snapshot.names[i] for i in worst)
    return (
        f"{lossy} pairs lose more than {LOSS:.0%} of packets, most of all "
        f"{src} to {dst} with {loss[worst]:.0%}: look at their links"
    )


def _load(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.origin == "imported" and not len(snapshot.rtt.src):
        # A tree that was read brings its own capacities, or a warning of none.
        return None
    if len(snapshot.hosts) > 1 and not np.isfinite(snapshot.flows.bytes_per_s).any():
        return "no bandwidth was measured: orders are judged by latency alone"
    return None


def trusted_line(snapshot: NetworkSnapshot, names: Collection[str]) -> str:
    """Say which of some hosts an order takes on trust; empty for none."""
    silent = sorted(snapshot.silent & set(names), key=natural_key)
    if not silent:
        return ""
    return (
        f"nothing was measured of {_listed(silent)}, taken to be like the others: "
        "find out why, and measure again with 'cloudcoll probe'"
    )


def missing_line(snapshot: NetworkSnapshot, names: Sequence[str]) -> str:
    """Say which pairs and links an order has no figures of, and what measures them.

    Hosts of which nothing was measured are `trusted_line`'s. Empty where nothing is
    missing, and where nothing was measured at all: what is assumed then, the map says.
    """
    heard = [name for name in names if name not in snapshot.silent]
    if not heard or not (len(snapshot.rtt.src) or len(snapshot.flows.src)):
        return ""
    found = [_missing_pairs(snapshot, heard)]
    if further := _further(snapshot):
        # After that, a link without a rate was never full: no order fills it either.
        found.append(_missing_links(snapshot, heard))
    if not any(found):
        return ""
    missing = ", ".join(filter(None, found))
    if not further:
        return f"{missing}: a full probe could not, its warnings say why"
    return f"{missing}: 'cloudcoll probe {further}' measures more"


def _further(snapshot: NetworkSnapshot) -> str:
    """Return the option of the next more thorough probe; empty after a full one."""
    mode = snapshot.metadata.get("mode")
    if mode == "full":
        return ""
    return "--standard" if mode in (None, "quick") else "--full"


def _missing_pairs(snapshot: NetworkSnapshot, names: Sequence[str]) -> str:
    hosts = len(names)
    src, dst = np.divmod(measured_pairs(snapshot, names), hosts)
    whole = np.arange(hosts)[::-1]
    short = np.flatnonzero(np.bincount(src, minlength=hosts) < whole)
    if not len(short):
        return ""
    first, pairs = int(short[0]), hosts * (hosts - 1) // 2
    other = np.setdiff1d(np.arange(first + 1, hosts), dst[src == first])[0]
    return (
        f"{pairs - len(src)} of {pairs} pairs were not measured "
        f"(the first: {names[first]} and {names[other]})"
    )


def _missing_links(snapshot: NetworkSnapshot, names: Sequence[str]) -> str:
    levels = honest_fabric(snapshot).restrict(names).groups()
    links = [node for level in levels for group in level for node in group.children]
    unknown = [
        f"group {node.name}" if node.children else node.name
        for node in links
        if math.isnan(node.uplink_bytes_per_s) or math.isnan(node.downlink_bytes_per_s)
    ]
    if not unknown:
        return ""
    first = min(unknown, key=natural_key)
    return f"{len(unknown)} of {len(links)} links have no rate (the first: {first})"


def next_steps(snapshot: NetworkSnapshot) -> list[str]:
    """Return what is worth doing now, a line each, the most urgent first."""
    fabric = honest_fabric(snapshot)
    worst = [host.name for host in worst_hosts(snapshot, fabric)]
    silent = sorted(snapshot.silent, key=natural_key)
    steps = []
    if silent:
        steps.append(f"find out why {_listed(silent)} did not answer, and probe again")
    if worst:
        steps.append(f"'cloudcoll solve': what a job gains without {_listed(worst)}")
    mode = snapshot.metadata.get("mode")
    if mode != "full" and one_way_pairs(snapshot, fabric):
        steps.append("'cloudcoll probe --full': all pairs both ways, three times")
    elif mode == "quick":
        steps.append("'cloudcoll probe --standard': more rounds, better capacities")
    if any(child.children for child in fabric.root.children):
        steps.append("'cloudcoll bench mpirun ...': what a better order gains here")
    elif snapshot.fabric and not steps:
        steps.append(_step_without_racks(snapshot, fabric))
    return steps


def _step_without_racks(snapshot: NetworkSnapshot, fabric: Fabric) -> str:
    """Return what is worth doing where no racks were found."""
    if not fabric.confidence < SURE:  # also where nobody knows
        return "nothing: the network is flat, all orders are equally good"
    if further := _further(snapshot):
        return f"'cloudcoll probe {further}': whether there are racks is not sure"
    return "nothing: more measuring will not tell whether there are racks"


def _listed(names: list[str]) -> str:
    left = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")
