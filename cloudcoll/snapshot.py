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
import io
import json
import math
import os
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.errors import CloudcollError, UnusableError, UsageError
from cloudcoll.fabric.jsonform import fabric_from_dict, fabric_to_dict
from cloudcoll.fabric.tree import Fabric
from cloudcoll.files import snapshot_file, stored_digest, write_atomic
from cloudcoll.hosts import Host, host_set_key
from cloudcoll.samples import (
    Floats,
    LoadedFlows,
    PairMatrix,
    RttSamples,
    middle,
    no_flows,
    no_rtt,
    zipped,
)

SCHEMA = 1
MAGIC = "cloudcoll-snapshot"
RTT_QUANTILE = 0.10
"""Of a pair's round trips this quantile is its RTT: near the floor, which
belongs to the network; the tail belongs to the hosts' schedulers."""

_NOT_UNDERSTOOD = (
    *(ValueError, KeyError, TypeError, AttributeError, ArithmeticError),
    *(RecursionError, EOFError, zipfile.BadZipFile),
)


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
        SHA-256 of the stored form; empty before `save` or `load`.
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
        found = {name: one.get("address", "") for name, one in facts.items()}
        reached = {host.name: host.address for host in self.hosts}
        known = {
            name: found.get(name) or address if address == name else address
            for name, address in reached.items()
        }
        return {name: at for name, at in known.items() if at != name}

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
    def latency_repeats(self) -> Floats:
        """RTT of each pair in each snapshot that was merged into this one.

        The `RTT_QUANTILE` of each pair's samples, in seconds, NaN where not
        measured; shape (repeats, hosts, hosts), in order of time. A snapshot
        as probed is one repeat.
        """
        pairs = [part["pairs"] for part in self.metadata.get("merged", ())]
        pairs = pairs or [len(self.rtt.src)]
        values = np.full((len(pairs), len(self.hosts), len(self.hosts)), math.nan)
        repeat = np.repeat(np.arange(len(pairs)), pairs)
        values[repeat, self.rtt.src, self.rtt.dst] = self.rtt.quantile(RTT_QUANTILE)
        return values

    @cached_property
    def bandwidth(self) -> PairMatrix:
        """Highest rate seen from each host to each other, bytes/s."""
        values = np.full((len(self.hosts), len(self.hosts)), math.nan)
        pairs = (self.flows.src, self.flows.dst)
        np.fmax.at(values, pairs, self.flows.bytes_per_s)
        return PairMatrix("bandwidth", self.origin, values)

    @cached_property
    def loss(self) -> Floats:
        """Share of requests without an answer, per pair that asked; NaN else."""
        shape = (len(self.hosts), len(self.hosts))
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
        for part, told in ((self.rtt, answered), (self.flows, arrived)):
            heard[part.src[told]] = heard[part.dst[told]] = True
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
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"no snapshot at {path}: make one with 'cloudcoll probe -o {path}'"
        ) from None
    except OSError as error:
        raise UnusableError(f"cannot read {path}: {error.strerror}") from error
    return parse_snapshot(data, path)


def parse_snapshot(data: bytes, source: str | os.PathLike[str]) -> NetworkSnapshot:
    """Return the snapshot that a file holds, after a check of every byte.

    Parameters
    ----------
    data : bytes
        All of the file.
    source : str
        Where it comes from, for messages.

    Raises
    ------
    UnusableError
        It is not a snapshot, of a newer schema, truncated or altered.
    """
    payload, digest = _check(data, source)
    try:
        snapshot = _decode(payload)
    except (*_NOT_UNDERSTOOD, CloudcollError) as error:
        raise UnusableError(
            f"{source}: intact but not understood ({error}): probe again"
        ) from error
    return dataclasses.replace(snapshot, digest=digest)


def latest_path(hosts: tuple[Host, ...]) -> Path:
    """Return where the latest snapshot of this set of hosts is kept."""
    return snapshot_file(host_set_key(hosts))


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
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        parts: dict[str, dict[str, Any]] = {"rtt": {}, "flows": {}}
        for key in arrays.files:
            prefix, _, name = key.partition("_")
            if prefix in parts:
                parts[prefix][name] = arrays[key]
    hosts = tuple(Host(**host) for host in header["hosts"])
    ends = [part[end] for part in parts.values() for end in ("src", "dst")]
    if not np.isin(np.concatenate(ends), np.arange(len(hosts))).all():
        raise ValueError("a measurement of no host")
    return NetworkSnapshot(
        hosts=hosts,
        rtt=RttSamples(**parts["rtt"]),
        flows=LoadedFlows(
            **parts["flows"],
            window_s=float(header["window_s"]),
            ramp_up=int(header["ramp_up"]),
        ),
        fabric=fabric_from_dict(header["fabric"]) if header["fabric"] else None,
        failed=dict(header["failed"]),
        created=float(header["created"]),
        metadata=_metadata(header["metadata"]),
    )


def _metadata(told: dict[str, Any]) -> dict[str, Any]:
    """Return metadata in which what a probe says of each host is a mapping."""
    facts = {name: dict(fact) for name, fact in dict(told.get("agents", {})).items()}
    return {**told, "agents": facts} if facts else dict(told)
