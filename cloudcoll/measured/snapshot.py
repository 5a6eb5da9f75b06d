"""What was measured of a set of hosts: the one value in the middle.

File format: one ASCII line ``cloudcoll-snapshot SCHEMA SHA256 SIZE``, then
SIZE bytes of a NumPy ``.npz`` archive (never pickled) whose SHA-256 is given.
The digest is the snapshot's identity. Raw samples are kept; matrices are
computed from them.

Version history of the format:

1  first: rtt samples, loaded flows, JSON header with hosts and fabric
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats
from cloudcoll.errors import CloudcollError, UnusableError, UsageError
from cloudcoll.files import snapshot_file, stored_digest, strict_json, write_atomic
from cloudcoll.files.limits import (
    FACTS,
    MERGED,
    REQUESTS,
    STORED_HOSTS,
    check_matrix,
    room,
)
from cloudcoll.hosts import Host, host_set_key
from cloudcoll.hosts.names import check_digest, check_host, shown
from cloudcoll.measured.samples import (
    NOT_ARRAYS,
    PIECE,
    LoadedFlows,
    PairMatrix,
    RttSamples,
    middle,
    no_flows,
    no_rtt,
    unzipped,
    zipped,
)
from cloudcoll.network.forms import fabric_from_dict, fabric_to_dict
from cloudcoll.network.tree import Fabric

SCHEMA = 1
MAGIC = "cloudcoll-snapshot"
LINE = 200
"""Bytes of the first line, at most."""
RTT_QUANTILE = 0.10
"""Of a pair's round trips this quantile is its RTT: near the floor, which
belongs to the network; the tail belongs to the hosts' schedulers."""

_NOT_UNDERSTOOD = (*NOT_ARRAYS, KeyError, AttributeError, ArithmeticError)

_KINDS: dict[str, npt.DTypeLike] = {
    "header": np.uint8,
    **{f"rtt_{name}": np.int64 for name in ("src", "dst", "sent", "ends")},
    "rtt_seconds": np.float64,
    **{f"flows_{name}": np.int64 for name in ("round", "src", "dst", "ends")},
    "flows_window_bytes": np.int64,
}
"""Arrays of the file, and their types."""


@dataclass(frozen=True)
class NetworkSnapshot:
    """The measurements of one probe run and what was made of them.

    Attributes
    ----------
    hosts : tuple of Host
        Their positions are the indices used everywhere else.
    rtt : RttSamples
    flows : LoadedFlows
    fabric : Fabric or None
        Derived from the measurements, kept so that readers start fast.
    failed : mapping of str to str
        Host name to the reason why nothing was measured with it.
    created : float
        Seconds since the epoch, by the clock of the machine that drove it.
    metadata : mapping
        Transport, seed, mode, versions, per-host facts; JSON values only.
        ``merged``: what each of several merged snapshots brought.
    digest : str
        SHA-256 of the stored form; empty before `save`, and set by `load_snapshot`.
    """

    hosts: tuple[Host, ...]
    rtt: RttSamples = field(default_factory=no_rtt)
    flows: LoadedFlows = field(default_factory=no_flows)
    fabric: Fabric | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    created: float = field(default_factory=time.time)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Host names in position order."""
        return tuple(host.name for host in self.hosts)

    @cached_property
    def addresses(self) -> dict[str, str]:
        """IP address by which others reach a host, where its name is none.

        As the host list has it, or as the probe's agents found it.
        """
        facts = self.metadata.get("agents", {})
        found = {
            host.name: facts.get(host.name, {}).get("address", "")
            if host.address == host.name
            else host.address
            for host in self.hosts
        }
        return {name: at for name, at in found.items() if at and at != name}

    @property
    def origin(self) -> str:
        """``measured``, or what the metadata says: ``imported``, ``synthetic``."""
        return str(self.metadata.get("origin", "measured"))

    @property
    def age(self) -> float:
        """Seconds since it was made; negative if the clock went back."""
        return time.time() - self.created

    @cached_property
    def latency(self) -> PairMatrix:
        """RTT of each pair in seconds: the median over `latency_repeats`.

        A round trip crosses both directions, so where only one host asked
        the figure stands for both.
        """
        values = middle(self.latency_repeats)
        values = np.where(np.isnan(values), values.T, values)
        return PairMatrix("rtt", self.origin, values)

    @property
    def measured_bytes(self) -> int:
        """Bytes of the measurements, which bound the size of matrices of all pairs."""
        return self.rtt.nbytes + self.flows.nbytes

    @property
    def latency_repeats(self) -> Floats:
        """RTT of each pair in each snapshot that was merged into this one.

        The `RTT_QUANTILE` of each pair's samples, in seconds, NaN where not
        measured; shape (repeats, hosts, hosts), in order of time. A snapshot
        as probed is one repeat.
        """
        pairs = [part["pairs"] for part in self.metadata.get("merged", ())]
        pairs = pairs or [len(self.rtt.src)]
        check_matrix(len(self.hosts), len(pairs), self.measured_bytes)
        values = np.full((len(pairs), len(self.hosts), len(self.hosts)), math.nan)
        repeat = np.repeat(np.arange(len(pairs)), pairs)
        values[repeat, self.rtt.src, self.rtt.dst] = self.rtt.quantile(RTT_QUANTILE)
        return values

    @cached_property
    def bandwidth(self) -> PairMatrix:
        """Highest rate seen from each host to each other, bytes/s."""
        check_matrix(len(self.hosts), 1, self.measured_bytes)
        values = np.full((len(self.hosts), len(self.hosts)), math.nan)
        pairs = (self.flows.src, self.flows.dst)
        np.fmax.at(values, pairs, self.flows.bytes_per_s)
        return PairMatrix("bandwidth", self.origin, values)

    @cached_property
    def loss(self) -> Floats:
        """Share of requests without an answer, per pair that asked; NaN else."""
        shape = (len(self.hosts), len(self.hosts))
        check_matrix(len(self.hosts), 1, self.measured_bytes)
        sent, lost = np.zeros(shape), np.zeros(shape)
        pairs = (self.rtt.src, self.rtt.dst)
        np.add.at(sent, pairs, self.rtt.sent)
        np.add.at(lost, pairs, self.rtt.sent - np.diff(self.rtt.ends, prepend=0))
        loss = np.full(shape, math.nan)
        np.divide(lost, sent, out=loss, where=sent > 0)
        return loss

    @cached_property
    def silent(self) -> frozenset[str]:
        """Names of the hosts of which not one round trip or transfer was measured.

        Labels and imported fabrics may know them all the same; hosts of a snapshot
        without any measurement are not called silent.
        """
        heard = np.zeros(len(self.hosts), dtype=bool)
        answered = np.diff(self.rtt.ends, prepend=0) > 0
        arrived = np.nan_to_num(self.flows.bytes_per_s) > 0.0
        for part, measured in ((self.rtt, answered), (self.flows, arrived)):
            heard[part.src[measured]] = heard[part.dst[measured]] = True
        names = zip(self.names, heard.tolist(), strict=True)
        return frozenset(name for name, known in names if heard.any() and not known)

    def with_fabric(self, fabric: Fabric) -> NetworkSnapshot:
        """Return a copy that carries `fabric`; it has no digest yet."""
        return dataclasses.replace(self, fabric=fabric, digest="")

    def save(self, path: str | os.PathLike[str]) -> NetworkSnapshot:
        """Write to `path` atomically and return the snapshot with its digest.

        Raises
        ------
        UnusableError
            The file could not be written; an older file there is intact.
        """
        data = self.to_bytes()
        write_atomic(path, data)
        return dataclasses.replace(self, digest=stored_digest(data))

    def to_bytes(self) -> bytes:
        """Return the stored form, as `parse_snapshot` reads it."""
        payload = _encode(self)
        digest = hashlib.sha256(payload).hexdigest()
        return f"{MAGIC} {SCHEMA} {digest} {len(payload)}\n".encode() + payload


def load_snapshot(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read a snapshot and check that every byte is as it was written.

    Raises
    ------
    UsageError
        There is no such file.
    UnusableError
        It is not a snapshot, of a newer schema, truncated or altered.
    """
    try:
        data = _whole_file(path)
    except FileNotFoundError:
        raise UsageError(
            f"no snapshot at {path}: make one with 'cloudcoll probe -o {path}'"
        ) from None
    except OSError as error:
        raise UnusableError(f"cannot read {path}: {error.strerror}") from error
    return parse_snapshot(data, path)


def _whole_file(path: str | os.PathLike[str]) -> bytes:
    """Return a file; of what does not begin as a snapshot no more than that.

    So a device that never ends, or another file of gigabytes, is not read.
    """
    with open(path, "rb") as file:
        parts = [file.readline(LINE)]
        if parts[0].startswith(MAGIC.encode()):
            while part := file.read(PIECE):
                parts.append(part)
    return b"".join(parts)


def parse_snapshot(data: bytes, source: str | os.PathLike[str]) -> NetworkSnapshot:
    """Return the snapshot that a file holds, after a check of every byte.

    UnusableError, which names `source`, as of `load_snapshot`.
    """
    payload, digest = _check(data, source)
    try:
        snapshot = _decode(payload)
    except (*_NOT_UNDERSTOOD, CloudcollError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UnusableError(
            f"{source}: intact but not understood ({why[:500]}): probe again"
        ) from error
    return dataclasses.replace(snapshot, digest=digest)


def latest_path(hosts: tuple[Host, ...], lab: Path | None = None) -> Path:
    """Return where the latest snapshot of this set of hosts is kept: `results_dir`."""
    return snapshot_file(host_set_key(hosts), lab)


def _check(data: bytes, path: str | os.PathLike[str]) -> tuple[bytes, str]:
    line, _, payload = data.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 4 or words[0] != MAGIC.encode():
        raise UnusableError(f"{path} is not a snapshot (or its first line is damaged)")
    if words[1] != str(SCHEMA).encode():
        raise UnusableError(
            f"{path} has snapshot schema {words[1][:8].decode('ascii', 'replace')!r}, "
            f"this CloudColl reads {SCHEMA}: probe again, or upgrade CloudColl"
        )
    if words[3] != str(len(payload)).encode():
        raise UnusableError(
            f"{path} is truncated or damaged ({len(payload)} bytes of data): "
            "probe again"
        )
    digest = hashlib.sha256(payload).hexdigest()
    if words[2] != digest.encode():
        raise UnusableError(f"{path} is damaged (its checksum differs): probe again")
    return payload, digest


def _encode(snapshot: NetworkSnapshot) -> bytes:
    header = {
        "hosts": [dataclasses.asdict(host) for host in snapshot.hosts],
        "fabric": fabric_to_dict(snapshot.fabric) if snapshot.fabric else None,
        "failed": dict(snapshot.failed),
        "created": snapshot.created,
        "metadata": dict(snapshot.metadata),
        "window_s": snapshot.flows.window_s,
        "ramp_up": snapshot.flows.ramp_up,
        "paced": snapshot.flows.paced,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    }
    for prefix, part in (("rtt", snapshot.rtt), ("flows", snapshot.flows)):
        for name, value in vars(part).items():
            # vars() also sees cached properties: store only the fields.
            if name in part.__dataclass_fields__ and isinstance(value, np.ndarray):
                arrays[f"{prefix}_{name}"] = value
    return zipped(arrays)


def _decode(payload: bytes) -> NetworkSnapshot:
    arrays = unzipped(payload, _KINDS)
    header = _header(arrays.pop("header"), len(payload))
    parts: dict[str, dict[str, Any]] = {"rtt": {}, "flows": {}}
    for key, values in arrays.items():
        prefix, _, name = key.partition("_")
        parts[prefix][name] = values
    hosts = _hosts(header.pop("hosts"))
    rtt = RttSamples(**parts["rtt"])
    flows = LoadedFlows(
        **parts["flows"],
        window_s=_number(header["window_s"], "window_s"),
        ramp_up=_whole(header["ramp_up"], "ramp_up", REQUESTS),
        paced=header.get("paced") is True,
    )
    rtt.check(len(hosts))
    flows.check(len(hosts))
    return NetworkSnapshot(
        hosts=hosts,
        rtt=rtt,
        flows=flows,
        fabric=fabric_from_dict(header["fabric"]) if header["fabric"] else None,
        failed=_failed(header["failed"]),
        created=_number(header["created"], "created"),
        metadata=_metadata(header["metadata"], len(rtt.src)),
    )


def _header(stored: npt.NDArray[Any], size: int) -> dict[str, Any]:
    """Return what is not in arrays; its text and values take more than its bytes."""
    if stored.nbytes > room(size) // 4:
        raise ValueError(
            f"a header of {stored.nbytes >> 20} MiB in a file of {size} bytes"
        )
    header = strict_json(stored.tobytes(), size)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header


def _hosts(entries: list[dict[str, Any]]) -> tuple[Host, ...]:
    if len(entries) > STORED_HOSTS:
        raise ValueError(f"{len(entries)} hosts: at most {STORED_HOSTS}")
    hosts = []
    for place, one in enumerate(entries):
        slots, labels = one.get("slots"), one.get("labels", {})
        if type(slots) not in (int, type(None)):
            raise ValueError(f"host {place + 1}: slots {shown(slots)}")
        _texts(labels, f"host {place + 1}: labels")
        try:
            hosts.append(Host(**one))
        except UsageError as error:
            raise ValueError(f"host {place + 1}: {error}") from None
    if len({host.name for host in hosts}) < len(hosts):
        raise ValueError("a host stands twice in it")
    return tuple(hosts)


def _failed(reasons: dict[str, str]) -> dict[str, str]:
    _texts(reasons, "failed", STORED_HOSTS)
    for name in reasons:
        check_host(name, "failed")
    return reasons


def _texts(values: object, what: str, most: int = FACTS) -> None:
    """Raise ValueError unless it is a mapping of text to text."""
    if not isinstance(values, dict) or len(values) > most:
        raise ValueError(f"{what}: not an object of up to {most} entries")
    if not all(isinstance(text, str) for text in values.values()):
        raise ValueError(f"{what}: an entry that is not text")


def _number(value: object, what: str) -> float:
    if type(value) not in (int, float) or not 0 <= (number := float(value)) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"{what} {shown(value)} is not a number, 0 or more")
    return number


def _whole(value: object, what: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{what} {shown(value)} is not a whole number, 0 to {most}")
    return value


def _metadata(values: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Return metadata in which what others count on is as it must."""
    if not isinstance(values, dict) or len(values) > FACTS:
        raise ValueError(f"metadata: not an object of up to {FACTS} entries")
    for key in ("seconds", "sent_bytes"):
        if key in values:
            _number(values[key], f"metadata: {key}")
    if "merged" in values:
        _check_merged(values["merged"], pairs)
    facts = {name: dict(fact) for name, fact in dict(values.get("agents", {})).items()}
    for name, fact in facts.items():
        check_host(name, "metadata: agents")
        if fact.get("address", "") != "":
            check_host(fact["address"], f"metadata: agents: {name}: address")
    return {**values, "agents": facts} if facts else dict(values)


def _check_merged(merged: object, pairs: int) -> None:
    """Raise ValueError unless repeats of a merged snapshot add up to its pairs."""
    if not isinstance(merged, list) or len(merged) > MERGED:
        raise ValueError(f"metadata: merged: not a list of up to {MERGED}")
    counts = [
        _whole(part["pairs"], "metadata: merged: pairs", pairs) for part in merged
    ]
    if merged and sum(counts) != pairs:
        raise ValueError(
            f"metadata: merged: {sum(counts)} pairs, the snapshot has {pairs}"
        )
    for part in merged:
        _number(part["created"], "metadata: merged: created")
        check_digest(part["digest"], "metadata: merged: digest")
