"""Several probes of a daemon's hosts as one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.measured.merge import merge_snapshots, rebooted
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric

BUSY = "it runs a job: measured once it is free"
PARTS = 8
"""Probes of the hosts that were free that make one snapshot, at most."""


def returned(kept: NetworkSnapshot, probe: NetworkSnapshot) -> bool:
    """Return whether a host answers of which a snapshot knows nothing that counts.

    Either it was not there, or was started anew since. Not where the snapshot was
    put together of `PARTS`: it waits for all hosts to be free.
    """
    parts = len(kept.metadata.get("merged", ()))
    return parts < PARTS and bool(newcomers(kept, probe))


def newcomers(kept: NetworkSnapshot, probe: NetworkSnapshot) -> frozenset[str]:
    """Return the hosts of a probe whose place a snapshot does not know."""
    absent = kept.silent.union(kept.failed)
    back = absent.intersection(probe.names) - {*probe.failed}
    return back | {*rebooted(kept, probe)}


def widened(
    probe: NetworkSnapshot, hosts: tuple[Host, ...], why: str
) -> NetworkSnapshot:
    """Return a probe as one of more hosts: the others failed, and why."""
    names = [host.name for host in hosts]
    place = np.array([names.index(name) for name in probe.names])
    rtt, flows = probe.rtt, probe.flows
    rtt = replace(rtt, src=place[rtt.src], dst=place[rtt.dst])
    flows = replace(flows, src=place[flows.src], dst=place[flows.dst])
    left = dict.fromkeys(sorted({*names} - {*probe.names}), why)
    failed = {**probe.failed, **left}
    return replace(probe, hosts=hosts, rtt=rtt, flows=flows, failed=failed)


def completed(
    kept: NetworkSnapshot | None, probe: NetworkSnapshot, hosts: tuple[Host, ...]
) -> NetworkSnapshot:
    """Return a probe of the free hosts, completed by what is known of the others."""
    whole = widened(probe, hosts, BUSY)
    return (kept and together([kept, whole])) or whole


def borne_out(
    kept: NetworkSnapshot, fabric: Fabric, probe: NetworkSnapshot
) -> NetworkSnapshot:
    """Return a snapshot that a later probe found nothing to change in.

    It is as old as the probe, and says when it was measured.
    """
    agents = [one.metadata.get("agents", {}) for one in (kept, probe)]
    facts = {name: fact for each in agents for name, fact in each.items()}
    metadata = {**kept.metadata, "measured": measured_at(kept)}
    return replace(
        kept.with_fabric(fabric),
        created=probe.created,
        metadata={**metadata, **({"agents": facts} if facts else {})},
    )


def measured_at(snapshot: NetworkSnapshot) -> float:
    """Return when what a snapshot has was measured, in seconds since the epoch."""
    return float(snapshot.metadata.get("measured", snapshot.created))


def with_trips(
    probe: NetworkSnapshot, others: Sequence[NetworkSnapshot]
) -> NetworkSnapshot:
    """Return a probe with the round trips of others of the same hosts, right after."""
    parts = [probe.rtt, *(other.rtt for other in others)]
    taken = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
    rtt = RttSamples(
        src=np.concatenate([part.src for part in parts]),
        dst=np.concatenate([part.dst for part in parts]),
        sent=np.concatenate([part.sent for part in parts]),
        ends=np.cumsum(taken),
        seconds=np.concatenate([part.seconds for part in parts]),
    )
    failed = {name: why for one in (*others, probe) for name, why in one.failed.items()}
    return replace(probe, rtt=rtt, failed=failed)


def together(checks: list[NetworkSnapshot]) -> NetworkSnapshot | None:
    """Return checks in a row as one snapshot, None where the last stands alone.

    It is marked as one probe in parts: see `cloudcoll.model.pairs.shrunk_pairs`.
    """
    if len(checks) == 1:
        return None
    try:
        merged = merge_snapshots(checks)
    except UsageError:
        # A host was started anew meanwhile: it may stand elsewhere now.
        return None
    return replace(merged, metadata={**merged.metadata, "one_probe": True})
