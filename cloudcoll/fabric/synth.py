"""Planted networks: a known fabric, and the snapshot a probe of it would give.

What inference, cost and solver are tested against at sizes no lab reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloudcoll.fabric.infer import pair_rtt
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.hosts import Host
from cloudcoll.snapshot import LoadedFlows, NetworkSnapshot, RttSamples


def racks(
    sizes: Sequence[int],
    *,
    nic: float = 50e6,
    uplink: float = 50e6,
    rtt: float = 50e-6,
    rack_rtt: float = 250e-6,
    seed: int = 0,
) -> Fabric:
    """Plant racks under one core, host names shuffled over them.

    Parameters
    ----------
    sizes : sequence of int
        Hosts in each rack.
    nic, uplink : float
        Bytes/s each way.
    rtt, rack_rtt : float
        Round trip seconds inside a rack and between racks.
    seed : int
        Of the shuffle.
    """
    total = sum(sizes)
    names = [f"vm-{number:0{len(str(total))}d}" for number in range(1, total + 1)]
    order = np.random.default_rng(seed).permutation(total)
    hosts = iter(
        Node(names[i], (), nic, nic, latency_s=rtt / 4) for i in order.tolist()
    )
    groups = [
        Node(
            f"rack-{number}",
            tuple(next(hosts) for _ in range(size)),
            uplink,
            uplink,
            latency_s=(rack_rtt - rtt) / 4,
        )
        for number, size in enumerate(sizes, 1)
    ]
    return Fabric(Node("core", tuple(groups)), origin="synthetic")


def observe(
    fabric: Fabric, *, samples: int = 20, noise: float = 0.1, seed: int = 0
) -> NetworkSnapshot:
    """Return the snapshot that a probe of `fabric` would take.

    Every pair's round trips are the fabric's plus a one-sided exponential
    delay; no loaded rounds. Hosts are in name order.

    Parameters
    ----------
    samples : int
        Round trips of each pair.
    noise : float
        Mean extra delay, as a share of the round trip.
    seed : int
        Of the noise.
    """
    names = sorted(fabric.hosts)
    columns = [fabric.position(name) for name in names]
    rtt = pair_rtt(fabric.links())[np.ix_(columns, columns)]
    src, dst = np.triu_indices(len(names), 1)
    floor = np.repeat(rtt[src, dst], samples)
    extra = np.random.default_rng(seed).exponential(noise, len(floor))
    none = np.zeros(0, dtype=np.int64)
    return NetworkSnapshot(
        hosts=tuple(Host(name) for name in names),
        rtt=RttSamples(
            src=src,
            dst=dst,
            sent=np.full(len(src), samples),
            ends=np.arange(1, len(src) + 1) * samples,
            seconds=floor * (1 + extra),
        ),
        flows=LoadedFlows(none, none, none, none, none),
        metadata={"origin": "synthetic", "seed": seed},
    )
