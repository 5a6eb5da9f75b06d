"""Planted networks: a known fabric, and the snapshot a probe of it would give.

What inference, cost and solver are tested against at sizes no lab reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from cloudcoll.arrays import Ints
from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Links, Node

WINDOWS = 12
WINDOW_S = 0.025
RAMP_UP = 2
"""Of a planted flow: windows, their length in seconds, those before full rate."""


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
    order = np.random.default_rng(seed).permutation(total)
    names = [f"vm-{i + 1:0{len(str(total))}d}" for i in order.tolist()]
    hosts = iter(Node(name, (), nic, nic, latency_s=rtt / 4) for name in names)
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
    fabric: Fabric,
    *,
    samples: int = 20,
    rounds: int = 0,
    noise: float = 0.1,
    seed: int = 0,
) -> NetworkSnapshot:
    """Return the snapshot that a probe of `fabric` would take.

    Every pair's round trips are the fabric's plus a one-sided exponential
    delay. In a loaded round every host sends to one other and hears from one,
    and flows that share a link share it max-min fairly, as TCP roughly does.
    Hosts are in name order.

    Parameters
    ----------
    samples : int
        Round trips of each pair.
    rounds : int
        Loaded rounds; they need a fabric whose NIC capacities are known.
    noise : float
        Mean extra time, as a share of the round trip or of the window.
    seed : int
        Of the noise and of who sends to whom.
    """
    names = sorted(fabric.hosts)
    columns = np.array([fabric.position(name) for name in names])
    generator = np.random.default_rng(seed)
    rtt = fabric.links.pair_rtt()[np.ix_(columns, columns)]
    src, dst = np.triu_indices(len(names), 1)
    floor = np.repeat(rtt[src, dst], samples)
    return NetworkSnapshot(
        hosts=tuple(Host(name) for name in names),
        rtt=RttSamples(
            src=src,
            dst=dst,
            sent=np.full(len(src), samples),
            ends=np.arange(1, len(src) + 1) * samples,
            seconds=floor * (1 + generator.exponential(noise, len(floor))),
        ),
        flows=_loaded(fabric.links, columns, rounds, noise, generator),
        metadata={"origin": "synthetic", "seed": seed},
    )


def _loaded(
    links: Links, columns: Ints, rounds: int, noise: float, generator: Generator
) -> LoadedFlows:
    """Return rounds in which the hosts send along a random ring of them all."""
    hosts = len(columns)
    rings = [generator.permutation(hosts) for _ in range(rounds)]
    src = np.concatenate([np.zeros(0, dtype=np.int64), *rings])
    dst = np.concatenate([src[:0], *(np.roll(ring, -1) for ring in rings)])
    numbers = np.repeat(np.arange(rounds), hosts)
    rate, _ = fair_rounds(links, numbers, columns[src], columns[dst])
    growth = np.minimum((np.arange(WINDOWS) + 1) / (RAMP_UP + 1), 1.0)
    slowed = 1 + generator.exponential(noise, (len(rate), WINDOWS))
    return LoadedFlows(
        round=numbers,
        src=src,
        dst=dst,
        ends=np.arange(1, len(rate) + 1) * WINDOWS,
        window_bytes=(rate[:, None] * WINDOW_S * growth / slowed)
        .astype(np.int64)
        .ravel(),
        window_s=WINDOW_S,
        ramp_up=RAMP_UP,
    )
