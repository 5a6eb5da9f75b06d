"""A planted network that answers probes as a real one would, without time passing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloudcoll.daemon.beats import Beat, seated, shortened
from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.infer.holdout import Figures, prediction_errors
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric
from cloudcoll.probe import Conduct, ProbePlan, plan_probes

SAMPLES = 10
WINDOWS = 10
BURST = 1 << 18


def beat_of(
    fabric: Fabric, beat: Beat, *, noise: float, loaded: bool = True
) -> NetworkSnapshot:
    """Return what a probe of the beat's hosts measures."""
    names = seated(beat)
    plan = plan_probes(tuple(map(Host, names)), seed=beat.seed)
    return probe_of(fabric, names, shortened(plan, BURST * loaded), noise=noise)


def probe_of(
    fabric: Fabric,
    names: Sequence[str],
    plan: ProbePlan,
    *,
    noise: float,
    scatter: float = 0.0,
    busy: Collection[str] = (),
) -> NetworkSnapshot:
    """Return what a plan measures of a fabric.

    Parameters
    ----------
    fabric : Fabric
    names : sequence of str
        Hosts that take part.
    plan : ProbePlan
    noise : float
        As in `synth.observe`.
    scatter : float
        Of the logarithm of what TCP gives each flow of a full link; a twentieth of
        the flows stall as well.
    busy : collection of str
        Hosts with traffic of others, which slows down all that they have to do.
    """
    source = np.random.default_rng(plan.seed)
    part = fabric.restrict(names)
    links = part.links
    column = np.array([part.position(name) for name in names])
    rounds = list(plan.rounds())
    trips = [pair for one in rounds if one.kind == "rtt" for pair in one.pairs]
    a, b = np.array(trips).T
    # All that a pair measures is together, as `Results` has it.
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    samples = min(plan.samples, SAMPLES)
    floor = np.repeat(links.pair_rtt()[column[a], column[b]], samples)
    loads = [(one.number, *p) for one in rounds if one.kind != "rtt" for p in one.pairs]
    number, src, dst = np.array(loads, dtype=np.int64).reshape(-1, 3).T
    rate, _ = fair_rounds(links, number, column[src], column[dst])
    if scatter and len(rate):
        card = rate.max()
        wide = np.where(rate > 0.99 * card, scatter / 5, scatter)
        rate = np.minimum(rate * np.exp(wide * source.normal(size=len(rate))), card)
        stalls = source.random(len(rate)) < 0.05
        rate = rate * np.where(stalls, source.uniform(0.1, 0.8, len(rate)), 1.0)
    held = np.isin(names, sorted(busy))
    rate = rate * np.where(
        held[src] | held[dst], source.uniform(0.2, 0.9, len(rate)), 1.0
    )
    late = np.where(held[a] | held[b], source.uniform(1.0, 3.0, len(a)), 1.0)
    floor = floor * np.repeat(late, samples)
    first = np.flatnonzero(np.diff(a * len(names) + b, prepend=-1))
    taken = samples * np.diff(first, append=len(a))
    slowed = 1 + source.exponential(noise, (len(rate), WINDOWS))
    sent = rate[:, None] * plan.window_s / slowed
    return NetworkSnapshot(
        hosts=tuple(map(Host, names)),
        rtt=RttSamples(
            src=a[first],
            dst=b[first],
            sent=taken,
            ends=np.cumsum(taken),
            seconds=floor * (1 + source.exponential(noise, len(floor))),
        ),
        flows=LoadedFlows(
            round=number,
            src=src,
            dst=dst,
            ends=np.arange(1, len(rate) + 1) * WINDOWS,
            window_bytes=sent.astype(np.int64).ravel(),
            window_s=plan.window_s,
        ),
        metadata={"origin": "synthetic", "sent_bytes": int(sent.sum())},
    )


@dataclass
class Planted:
    """A transport to hosts of a planted fabric, which may change under way.

    Attributes
    ----------
    fabric : Fabric
    noise : float
    scatter, busy
        As of `probe_of`.
    down : set of str
        Hosts that do not answer.
    probed : list of tuple of str
        The hosts of each probe.
    """

    fabric: Fabric
    noise: float = 0.05
    scatter: float = 0.0
    busy: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    probed: list[tuple[str, ...]] = field(default_factory=list)
    name: str = "planted"
    options: frozenset[str] = frozenset()
    starters: frozenset[str] = frozenset()
    shares_cores: bool = False

    def available(self) -> str | None:
        """Return None: it works everywhere."""
        return None

    def plan(
        self, hosts: tuple[Host, ...], mode: str, seed: int, cores: int | None
    ) -> ProbePlan:
        """Return a plan for any hosts."""
        return plan_probes(hosts, mode=mode, seed=seed, concurrency=cores)

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return nothing: nothing is started."""
        return []

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Return what the plan measures between the hosts that answer."""
        names = tuple(host.name for host in hosts)
        self.probed.append(names)
        if len(set(names) - self.down) < 2:
            raise UnusableError("fewer than two hosts answer")
        whole = probe_of(
            self.fabric,
            names,
            plan,
            noise=self.noise,
            scatter=self.scatter,
            busy=self.busy,
        )
        gone = np.isin(names, sorted(self.down))
        trips, flows = whole.rtt, whole.flows
        met = ~(gone[trips.src] | gone[trips.dst])
        sent = ~(gone[flows.src] | gone[flows.dst])
        return replace(
            whole,
            hosts=hosts,
            rtt=replace(
                trips,
                src=trips.src[met],
                dst=trips.dst[met],
                sent=trips.sent[met],
                ends=np.cumsum(trips.sent[met]),
                seconds=trips.seconds[np.repeat(met, trips.sent)],
            ),
            flows=replace(
                flows,
                round=flows.round[sent],
                src=flows.src[sent],
                dst=flows.dst[sent],
                ends=np.arange(1, sent.sum() + 1) * WINDOWS,
                window_bytes=flows.window_bytes.reshape(-1, WINDOWS)[sent].ravel(),
            ),
            failed=dict.fromkeys(sorted(self.down.intersection(names)), "no answer"),
        )


@dataclass
class Clock:
    """Time that passes when it is told to.

    Attributes
    ----------
    now : float
        Seconds.
    """

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def prediction_error(fabric: Fabric, held: Figures) -> float:
    """Return the worse of both errors: pairs are many more than links."""
    return float(np.fmax(*prediction_errors(fabric, held)))
