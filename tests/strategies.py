"""Hypothesis strategies for the values that several tests share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from cloudcoll.arrays import Ints
from cloudcoll.collectives import SCHEDULES, Schedule, build_schedule
from cloudcoll.hosts import Host
from cloudcoll.libraries.telling import algorithms_of
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import fabric_to_dict
from cloudcoll.network.tree import Fabric, Node, Pairs
from cloudcoll.rankmap import CallOrder, RankMap
from cloudcoll.tuning import PARAMETERS, TunedRange, Tuning

finite = st.floats(0.0, 1e12, allow_subnormal=False)
capacities = st.sampled_from([math.nan, 10e6, 25e6, 50e6, 125e6])
latencies = st.sampled_from([math.nan, 0.0, 5e-6, 12e-6, 50e-6])
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,11}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def host_names(count: int) -> list[str]:
    """Return names whose order as strings is not that of their numbers."""
    return [f"vm-{number}" for number in range(1, count + 1)]


@st.composite
def fabrics(draw: st.DrawFn, min_hosts: int = 1, max_hosts: int = 24) -> Fabric:
    """Draw a tree of any shape: hosts at uneven depths, some links not known."""
    hosts = draw(st.permutations(host_names(draw(st.integers(min_hosts, max_hosts)))))

    def link(name: str, children: Sequence[Node] = ()) -> Node:
        up, down = draw(capacities), draw(capacities)
        return Node(name, tuple(children), up, down, draw(latencies))

    nodes = [link(name) for name in hosts]
    for number in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, len(nodes) - 1))
        last = draw(st.integers(first + 1, len(nodes)))
        nodes[first:last] = [link(f"group-{number}", nodes[first:last])]
    return Fabric(Node("core", tuple(nodes)), origin="synthetic")


@st.composite
def schedules(draw: st.DrawFn, ranks: int) -> Schedule:
    """Draw any schedule of this many ranks."""
    collective = draw(st.sampled_from(sorted(SCHEDULES)))
    fit = [name for name, f in SCHEDULES[collective].items() if f.only in (None, ranks)]
    size = draw(st.sampled_from([8, 4096, 1 << 20, 16 << 20]))
    return build_schedule(collective, draw(st.sampled_from(fit)), ranks, size)


def slot_counts(hosts: int) -> st.SearchStrategy[list[int]]:
    """Draw slots for each host, uneven or not."""
    uneven = st.lists(st.integers(1, 3), min_size=hosts, max_size=hosts)
    return st.just([1] * hosts) | uneven


@st.composite
def pair_figures(draw: st.DrawFn, hosts: int) -> Pairs:
    """Draw figures of pairs, uneven or not, from none at all to slow ones."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (hosts, hosts)
    alpha = draw(latencies.filter(math.isfinite)) * generator.random(shape)
    rate = draw(st.sampled_from([math.inf, 5e6, 100e6]))
    return Pairs(alpha, generator.random(shape) / rate)


Ragged = tuple[Ints, list[float]]


@st.composite
def ragged(draw: st.DrawFn, values: st.SearchStrategy[float], parts: int) -> Ragged:
    """Draw `parts` lists as one list and the end of each."""
    lists = draw(st.lists(st.lists(values, max_size=5), min_size=parts, max_size=parts))
    ends = np.cumsum([len(part) for part in lists], dtype=np.int64)
    return ends, [value for part in lists for value in part]


@st.composite
def snapshots(draw: st.DrawFn) -> NetworkSnapshot:
    """Draw a snapshot of one to five hosts with any samples."""
    hosts = draw(
        st.lists(
            st.builds(
                Host,
                names,
                st.just("") | names | st.sampled_from(["10.0.0.7", "fd00::1"]),
                st.none() | st.integers(1, 99),
                st.just("") | names,
                st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda host: host.name,
        )
    )
    pair = st.tuples(*[st.integers(0, len(hosts) - 1)] * 2)
    asked = draw(st.lists(pair, max_size=6, unique=True))
    ends, seconds = draw(ragged(finite, len(asked)))
    flows = draw(st.lists(pair, max_size=6))
    flow_ends, windows = draw(ragged(st.integers(0, 2**50), len(flows)))
    asker, answerer = _columns(asked)
    sender, receiver = _columns(flows)
    return NetworkSnapshot(
        hosts=tuple(hosts),
        rtt=RttSamples(
            src=asker,
            dst=answerer,
            sent=np.full(len(asked), 5),
            ends=ends,
            seconds=np.array(seconds, dtype=np.float64),
        ),
        flows=LoadedFlows(
            round=np.arange(len(flows)) // 2,
            src=sender,
            dst=receiver,
            ends=flow_ends,
            window_bytes=np.array(windows, dtype=np.int64),
            window_s=draw(st.sampled_from([0.025, 0.1])),
            ramp_up=draw(st.integers(0, 3)),
            paced=draw(st.booleans()),
        ),
        fabric=draw(st.none() | fabrics(max_hosts=5)),
        failed=draw(st.dictionaries(names, st.text(max_size=9), max_size=2)),
        created=draw(finite),
        metadata=draw(st.dictionaries(st.text(max_size=5), _exact_json, max_size=3)),
    )


_exact_json = st.none() | st.booleans() | st.integers() | finite | st.text(max_size=9)


def _columns(pairs: list[tuple[int, ...]]) -> list[Ints]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return [table[:, 0], table[:, 1]]


@st.composite
def rank_maps(draw: st.DrawFn) -> RankMap:
    """Draw a rank map with any names and figures."""
    hosts = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    used = draw(st.integers(1, len(hosts)))
    order = hosts[:used]
    return RankMap(
        order=tuple(order),
        slots=tuple(draw(slot_counts(len(order)))),
        schedule=draw(st.dictionaries(st.text(max_size=5), _exact_json, max_size=3)),
        predicted=draw(st.dictionaries(st.text(max_size=5), finite, max_size=3)),
        snapshot=draw(st.just("") | names),
        seed=draw(st.integers(0, 2**63)),
        lower_bound=draw(st.none() | finite),
        origin=draw(st.text(max_size=9)),
        reason=draw(st.text(max_size=9)),
        measured=draw(st.none() | st.floats(0.0, 1.0)),
        constraints=draw(st.dictionaries(st.text(max_size=5), _exact_json, max_size=3)),
        dropped=tuple(hosts[used:]),
        breaking=tuple(draw(st.lists(st.text(max_size=9), max_size=3))),
        calls=tuple(draw(st.lists(_call_orders(order), max_size=2))),
    )


def _call_orders(hosts: list[str]) -> st.SearchStrategy[CallOrder]:
    sizes = st.integers(0, 2**62)
    orders = st.permutations(hosts).map(tuple)
    return st.builds(CallOrder, st.text(max_size=5), sizes, sizes, orders)


def same(one: NetworkSnapshot, other: NetworkSnapshot) -> bool:
    """Compare two snapshots, arrays and NaN included; digests left out."""
    for part in ("rtt", "flows"):
        a, b = getattr(one, part), getattr(other, part)
        for field in dataclasses.fields(a):
            x, y = getattr(a, field.name), getattr(b, field.name)
            if not np.array_equal(x, y, equal_nan=isinstance(y, np.ndarray)):
                return False
    keys = ("hosts", "failed", "created", "metadata")
    if any(getattr(one, key) != getattr(other, key) for key in keys):
        return False
    fabrics = [fabric_to_dict(x.fabric) if x.fabric else None for x in (one, other)]
    return fabrics[0] == fabrics[1]


@st.composite
def tunings(draw: st.DrawFn) -> Tuning:
    """Draw what a library that can be told anything may be told."""
    key = draw(st.sampled_from(["openmpi", "mpich", "intelmpi", "ucc", "nccl"]))
    known = [name for name in sorted(SCHEDULES) if algorithms_of(key, name)]
    ranges = []
    for collective in draw(st.lists(st.sampled_from(known), unique=True)):
        starts = draw(st.sets(st.integers(1, (1 << 31) - 1), max_size=3))
        for least in (0, *sorted(starts)):
            ranges.append(
                TunedRange(
                    collective,
                    least,
                    draw(st.sampled_from(["", *algorithms_of(key, collective)])),
                    draw(
                        st.dictionaries(
                            st.sampled_from(PARAMETERS), st.integers(0, 1 << 20)
                        )
                    ),
                    draw(st.floats(0, 1e9)),
                    draw(st.floats(0, 1e9)),
                    draw(st.integers(0, (1 << 31) - 1)),
                    draw(st.booleans()),
                )
            )
    return Tuning(
        key + draw(st.sampled_from(["", "@5.0", "@4.1.8"])),
        draw(st.integers(2, 1000)),
        draw(st.integers(0, 8)),
        tuple(ranges),
    )
