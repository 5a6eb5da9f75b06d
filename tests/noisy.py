"""Planted networks with the noise that TCP and busy machines make.

The transfers of a tournament both ways at once share links fairly in the mean
only: each rate scatters, and some stall. Round trips have heavy tails, and some
hosts seldom get to answer at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from cloudcoll.arrays import Floats, Ints
from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.plan import labels, tournament_round

QUICK = 15
"""Loaded rounds of a quick probe of 16 hosts."""

SAMPLES = 40
"""Round trips of a pair in a quick probe."""


@dataclass(frozen=True)
class Noise:
    """What TCP and the machines do to measurements.

    Attributes
    ----------
    scatter : float
        Of the logarithm of a transfer's rate: half of them log-normal, half
        Laplace.
    stalls : float
        Share of the transfers that lose most of their time.
    tails : float
        Share of the round trips that are late, by anything up to milliseconds.
    starved : int
        Hosts that answer late to half of their requests.
    """

    scatter: float = 0.2
    stalls: float = 0.1
    tails: float = 0.2
    starved: int = 0


def planted(sizes: tuple[int, ...], uplink: float, rtt: float, seed: int) -> Fabric:
    """Return racks below one core, or one rack, with round trips all alike."""
    fabric = racks(sizes, uplink=uplink, rtt=rtt, rack_rtt=rtt, seed=seed)
    if len(sizes) == 1:
        fabric = Fabric(Node("core", fabric.root.children[0].children))
    return replace(fabric, origin="measured")


def slowed(fabric: Fabric, rates: Mapping[str, tuple[float, float]]) -> Fabric:
    """Return the fabric with some links' rates, up and down, multiplied."""

    def change(node: Node) -> Node:
        up, down = rates.get(node.name, (1.0, 1.0))
        return replace(
            node,
            children=tuple(map(change, node.children)),
            uplink_bytes_per_s=node.uplink_bytes_per_s * up,
            downlink_bytes_per_s=node.downlink_bytes_per_s * down,
        )

    return replace(fabric, root=change(fabric.root))


def probed(
    fabric: Fabric,
    noise: Noise,
    seed: int,
    *,
    rounds: int = QUICK,
    late: Mapping[str, float] | None = None,
) -> NetworkSnapshot:
    """Return what a probe measures, hosts in name order.

    Parameters
    ----------
    fabric : Fabric
    noise : Noise
    seed : int
    rounds : int
        Loaded ones.
    late : mapping of str to float, optional
        Seconds that hosts add to each of their round trips.
    """
    generator = np.random.default_rng(seed)
    names = sorted(fabric.hosts)
    return NetworkSnapshot(
        hosts=tuple(map(Host, names)),
        rtt=_round_trips(fabric, names, noise, late or {}, generator),
        flows=_flows(fabric, names, noise, rounds, generator),
    )


def _round_trips(
    fabric: Fabric,
    names: list[str],
    noise: Noise,
    late: Mapping[str, float],
    generator: Generator,
) -> RttSamples:
    columns = np.array([fabric.position(name) for name in names])
    own = np.array([late.get(name, 0.0) for name in names])
    src, dst = np.triu_indices(len(names), 1)
    shape = (len(src), SAMPLES)
    trips = fabric.links.trips(columns[src], columns[dst])
    seconds = (trips + own[src] + own[dst])[:, None] * np.ones(shape)
    seconds *= 1.0 + generator.exponential(0.15, shape)
    # A pair's slot may fall into a bad moment as a whole.
    share = noise.tails * generator.exponential(1.0, (len(src), 1))
    hit = generator.random(shape) < share
    seconds += hit * 1e-4 * np.minimum(generator.pareto(1.0, shape), 100.0)
    busy = np.isin(
        np.arange(len(names)), generator.permutation(len(names))[: noise.starved]
    )
    waits = (busy[src] | busy[dst])[:, None] & (generator.random(shape) < 0.5)
    seconds += waits * generator.exponential(2e-3, shape)
    return RttSamples(
        src,
        dst,
        np.full(len(src), SAMPLES),
        np.arange(1, len(src) + 1) * SAMPLES,
        seconds.ravel(),
    )


def _flows(
    fabric: Fabric, names: list[str], noise: Noise, rounds: int, generator: Generator
) -> LoadedFlows:
    hosts, players = len(names), labels(len(names), int(generator.integers(1000)))
    even = hosts + hosts % 2
    met = np.array(
        [
            (number, players[one], players[other])
            for number in range(rounds)
            for one, other in tournament_round(even, number % (even - 1))
            if max(one, other) < hosts
        ]
    )
    # Both ways at once.
    ways = np.concatenate([met, met[:, [0, 2, 1]]])
    return carried(fabric, names, ways, noise, generator)


def carried(
    fabric: Fabric, names: list[str], flows: Ints, noise: Noise, generator: Generator
) -> LoadedFlows:
    """Return what flows carry: rows of a round and two positions in `names`."""
    number, src, dst = flows.T
    columns = np.array([fabric.position(name) for name in names])
    rate, _ = fair_rounds(fabric.links, number, columns[src], columns[dst])
    rate = rate * _uneven(len(rate), noise, generator)
    return LoadedFlows(
        round=number,
        src=src,
        dst=dst,
        ends=np.arange(1, len(rate) + 1) * 3,
        window_bytes=np.repeat((rate * 0.1).astype(np.int64), 3),
        window_s=0.1,
        ramp_up=1,
    )


def _uneven(count: int, noise: Noise, generator: Generator) -> Floats:
    normal = generator.normal(0.0, noise.scatter, count)
    laplace = generator.laplace(0.0, noise.scatter / np.sqrt(2.0), count)
    scatter = np.where(generator.random(count) < 0.5, normal, laplace)
    stalled = generator.random(count) < noise.stalls
    left: Floats = np.exp(scatter) * np.where(
        stalled, generator.uniform(0.02, 0.6, count), 1.0
    )
    return left
