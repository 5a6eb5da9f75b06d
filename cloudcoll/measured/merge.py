"""Several snapshots of the same hosts as one, if none was rebooted between them.

Their constant and transient parts come apart.

A single probe sees the network of one moment, and optimising for a moment
does not pay (Gong, He and Li, "Finding Constant from Change", SC 2014). They
split repeated measurements by robust PCA, min |L|_* + lambda |S|_1 (Candes, Li,
Ma and Wright 2011). For a network that stays as it is, every repeat has the
same row in L; of all such L the one that leaves the least |S|_1 is the median
over the repeats, pair by pair. That median is the constant part here: no
parameter, no iteration, and up to half of the repeats may be disturbed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.errors import UsageError
from cloudcoll.files.limits import MERGED
from cloudcoll.measured.samples import LoadedFlows, RttSamples, middle, no_flows
from cloudcoll.measured.snapshot import NetworkSnapshot

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_ids(snapshot: NetworkSnapshot) -> dict[str, str]:
    """Return the boot id of each host that told it, by name."""
    facts = snapshot.metadata.get("agents", {})
    return {n: str(one["boot_id"]) for n, one in facts.items() if one.get("boot_id")}


def own_boot_id() -> str:
    """Return this machine's boot id, empty where the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def rebooted(
    before: NetworkSnapshot, after: NetworkSnapshot
) -> dict[str, tuple[str, str]]:
    """Return both boot ids of each host that was started anew between two snapshots."""
    ids, later = boot_ids(before), boot_ids(after)
    both = {name: (boot, later.get(name, boot)) for name, boot in ids.items()}
    return {name: (old, new) for name, (old, new) in both.items() if old != new}


@dataclass(frozen=True)
class Split:
    """The constant part of repeated measurements, and the transient one.

    Attributes
    ----------
    constant : ndarray of float64, shape (hosts, hosts)
        Median over the repeats; NaN where never measured.
    transient : ndarray of float64, shape (repeats, hosts, hosts)
        What each repeat adds to it; NaN where not measured then.
    """

    constant: Floats
    transient: Floats

    @property
    def share(self) -> float:
        """Sum of the transient part over that of the constant one; NaN for none.

        Gong and He's measure of how far a network may be optimised at all.
        """
        known = np.isfinite(self.transient)
        base = np.broadcast_to(self.constant, known.shape)[known].sum()
        return float(np.abs(self.transient[known]).sum() / base) if base else math.nan

    @property
    def largest(self) -> tuple[int, int, int] | None:
        """Repeat, sender and receiver of the largest departure, None for none."""
        size = np.abs(np.nan_to_num(self.transient))
        if not size.any():
            return None
        repeat, src, dst = np.unravel_index(int(size.argmax()), size.shape)
        return int(repeat), int(src), int(dst)


def split(repeats: Floats) -> Split:
    """Split repeated measurements of pairs into constant and transient parts.

    `repeats`, shape (repeats, hosts, hosts), are such as
    `NetworkSnapshot.latency_repeats`; NaN where not measured.
    """
    constant = middle(repeats)
    return Split(constant, repeats - constant)


def merge_snapshots(snapshots: Sequence[NetworkSnapshot]) -> NetworkSnapshot:
    """Return one snapshot with the raw measurements of several.

    Repeats stay apart: a pair measured twice has two entries, and no round is
    taken for another's. `NetworkSnapshot.latency` is then the constant part,
    and ``metadata["merged"]`` says what came from where, in order of time.

    Parameters
    ----------
    snapshots : sequence of NetworkSnapshot
        In any order, with hosts in any order; the first says theirs. Merged
        ones may be merged again.

    Returns
    -------
    NetworkSnapshot
        As old as the newest, without a fabric. A host failed if it failed in
        all of them.

    Raises
    ------
    UsageError
        There are less than two, one is given twice, or they are not
        comparable: other hosts, origin, transport or windows. The message names the
        key and both values. (Files of another schema do not even load.)
    """
    _refuse_incomparable(snapshots)
    parts = sorted(snapshots, key=lambda snapshot: snapshot.created)
    merged = [record for part in parts for record in _records(part)]
    if len(merged) > MERGED:
        raise UsageError(f"{len(merged)} snapshots to merge: at most {MERGED}")
    _refuse_twice([record["digest"] for record in merged if record["digest"]])
    newest = parts[-1]
    position = {name: i for i, name in enumerate(snapshots[0].names)}
    places = [np.array([position[name] for name in part.names]) for part in parts]
    return NetworkSnapshot(
        hosts=snapshots[0].hosts,
        rtt=_pool_rtt(parts, places),
        flows=_pool_flows(parts, places),
        failed=_always_failed(parts),
        created=newest.created,
        metadata={**newest.metadata, "merged": merged, **_facts(parts)},
    )


def _facts(parts: Sequence[NetworkSnapshot]) -> dict[str, Any]:
    """Return what each host said of itself last."""
    agents = [part.metadata.get("agents", {}) for part in parts]
    facts = {name: fact for each in agents for name, fact in each.items()}
    return {"agents": facts} if facts else {}


def _always_failed(parts: Sequence[NetworkSnapshot]) -> dict[str, str]:
    return {
        name: why
        for name, why in parts[-1].failed.items()
        if all(name in part.failed for part in parts)
    }


def _records(part: NetworkSnapshot) -> list[dict[str, Any]]:
    """Return what `part` brings, one record for each repeat in it."""
    if earlier := part.metadata.get("merged"):
        return list(earlier)
    return [
        {
            "digest": part.digest,
            "created": part.created,
            "mode": part.metadata.get("mode"),
            "pairs": len(part.rtt.src),
            "failed": dict(part.failed),
        }
    ]


def _refuse_twice(digests: Sequence[str]) -> None:
    for place, digest in enumerate(digests):
        if digest in digests[:place]:
            raise UsageError(
                f"snapshot {digest[:12]} is given twice: a repeat must be measured anew"
            )


def _refuse_incomparable(snapshots: Sequence[NetworkSnapshot]) -> None:
    if len(snapshots) < 2:
        raise UsageError(f"{len(snapshots)} snapshot to merge: give two or more")
    one, *others = snapshots
    for other in others:
        for key, mine, theirs in _keys(one, other):
            if mine != theirs:
                raise UsageError(
                    f"cannot merge snapshots {_called(one)} and {_called(other)}: "
                    f"{key} is {mine} in the first and {theirs} in the other; probe "
                    "the same hosts the same way again"
                )


def _called(snapshot: NetworkSnapshot) -> str:
    return snapshot.digest[:12] or "(not saved)"


def _keys(
    one: NetworkSnapshot, other: NetworkSnapshot
) -> Iterator[tuple[str, object, object]]:
    """Yield what has to agree: a name for it and both values."""
    yield "host set", _hosts_but(one, other), _hosts_but(other, one)
    yield "origin", *(part.metadata.get("origin", "measured") for part in (one, other))
    yield "transport", one.metadata.get("transport"), other.metadata.get("transport")
    if len(one.flows.src) and len(other.flows.src):
        yield "window length (s)", one.flows.window_s, other.flows.window_s
        yield "ramp-up (windows)", one.flows.ramp_up, other.flows.ramp_up
    theirs = {host.name: host for host in other.hosts}
    for host in one.hosts:
        yield f"address of {host.name}", host.address, theirs[host.name].address
    for name, boots in rebooted(one, other).items():
        yield f"boot id of {name}", *boots


def _hosts_but(mine: NetworkSnapshot, theirs: NetworkSnapshot) -> str:
    """Say how many hosts, and one that the other snapshot lacks."""
    lone = sorted(set(mine.names) - set(theirs.names))
    return f"{len(mine.names)} hosts" + (f" with {lone[0]}" if lone else "")


def _pool_rtt(parts: Sequence[NetworkSnapshot], places: Sequence[Ints]) -> RttSamples:
    rtts = [part.rtt for part in parts]
    return RttSamples(
        src=_renamed([rtt.src for rtt in rtts], places),
        dst=_renamed([rtt.dst for rtt in rtts], places),
        sent=np.concatenate([rtt.sent for rtt in rtts]),
        ends=_shifted([rtt.ends for rtt in rtts], [len(rtt.seconds) for rtt in rtts]),
        seconds=np.concatenate([rtt.seconds for rtt in rtts]),
    )


def _pool_flows(
    parts: Sequence[NetworkSnapshot], places: Sequence[Ints]
) -> LoadedFlows:
    flows = [part.flows for part in parts]
    if any(flow.paced for flow in flows):
        # Where flows had to be paced, those that were not say nothing.
        flows = [flow if flow.paced else no_flows() for flow in flows]
    rounds = [int(flow.round.max(initial=-1)) + 1 for flow in flows]
    windows = [len(flow.window_bytes) for flow in flows]
    # Parts without flows have no window length of their own to keep.
    pattern = next((flow for flow in flows if len(flow.src)), flows[0])
    return dataclasses.replace(
        pattern,
        round=_shifted([flow.round for flow in flows], rounds),
        src=_renamed([flow.src for flow in flows], places),
        dst=_renamed([flow.dst for flow in flows], places),
        ends=_shifted([flow.ends for flow in flows], windows),
        window_bytes=np.concatenate([flow.window_bytes for flow in flows]),
    )


def _renamed(columns: Sequence[Ints], places: Sequence[Ints]) -> Ints:
    """Return positions in the first snapshot's list of hosts."""
    return np.concatenate(
        [place[column] for place, column in zip(places, columns, strict=True)]
    )


def _shifted(columns: Sequence[Ints], lengths: Sequence[int]) -> Ints:
    """Return `columns` joined, each moved on by the lengths before it."""
    starts = np.cumsum([0, *lengths])[:-1]
    moved = [column + start for column, start in zip(columns, starts, strict=True)]
    return np.concatenate(moved)
