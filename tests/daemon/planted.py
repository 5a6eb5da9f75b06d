"""What a probe of a planted fabric would measure, as a snapshot."""

from __future__ import annotations

import numpy as np

from cloudcoll.daemon.beats import Beat, seated, shortened
from cloudcoll.fabric.fair import fair_rounds
from cloudcoll.fabric.tree import Fabric
from cloudcoll.hosts import Host
from cloudcoll.probe import ProbePlan, plan_probes
from cloudcoll.samples import LoadedFlows, RttSamples
from cloudcoll.snapshot import NetworkSnapshot

SAMPLES = 10
WINDOWS = 10


def beat_of(
    fabric: Fabric, beat: Beat, *, noise: float, loaded: bool = True
) -> NetworkSnapshot:
    """Return what a probe of the beat's hosts measures."""
    names = seated(beat)
    plan = plan_probes(tuple(map(Host, names)), seed=beat.seed)
    return probe_of(fabric, names, shortened(plan, loaded=loaded), noise=noise)


def probe_of(
    fabric: Fabric, names: tuple[str, ...], plan: ProbePlan, *, noise: float
) -> NetworkSnapshot:
    """Return what a plan measures of a fabric; `noise` as in `synth.observe`."""
    source = np.random.default_rng(plan.seed)
    part = fabric.restrict(names)
    links = part.links()
    column = np.array([part.position(name) for name in names])
    rounds = list(plan.rounds())
    trips = [pair for one in rounds if one.kind == "rtt" for pair in one.pairs]
    a, b = np.array(trips).T
    floor = np.repeat(links.pair_rtt()[column[a], column[b]], SAMPLES)
    loads = [(one.number, *p) for one in rounds if one.kind != "rtt" for p in one.pairs]
    number, src, dst = np.array(loads, dtype=np.int64).reshape(-1, 3).T
    rate, _ = fair_rounds(links, number, column[src], column[dst])
    slowed = 1 + source.exponential(noise, (len(rate), WINDOWS))
    sent = rate[:, None] * 0.025 / slowed
    return NetworkSnapshot(
        hosts=tuple(map(Host, names)),
        rtt=RttSamples(
            src=a,
            dst=b,
            sent=np.full(len(a), SAMPLES),
            ends=np.arange(1, len(a) + 1) * SAMPLES,
            seconds=floor
            * (1 + (source.exponential(noise, len(floor)) if noise else 0)),
        ),
        flows=LoadedFlows(
            round=number,
            src=src,
            dst=dst,
            ends=np.arange(1, len(rate) + 1) * WINDOWS,
            window_bytes=sent.astype(np.int64).ravel(),
        ),
        metadata={"origin": "synthetic"},
    )
