from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cloudcoll.arrays import Floats
from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import combined_probes
from cloudcoll.hosts import Host
from cloudcoll.importers import read_matrices
from cloudcoll.measured.merge import merge_snapshots
from cloudcoll.measured.samples import LoadedFlows, RttSamples, no_rtt
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model.cost import CostModel
from cloudcoll.model.pairs import (
    _figures,
    _repeated,
    _shrunk,
    _transfers,
    measured_pairs,
    measured_share,
    shrunk,
    shrunk_pairs,
)
from cloudcoll.network.tree import Fabric, Node, Pairs, flat
from cloudcoll.report.maps import map_lines
from cloudcoll.solve import solve

HOSTS = 24
NAMES = tuple(f"vm-{i}" for i in range(HOSTS))


def distances(seed: int) -> Floats:
    """Return round trips of hosts along a ring, dealt at random: seconds."""
    place = np.random.default_rng(seed).permutation(HOSTS) / HOSTS
    apart = np.abs(place[:, None] - place)
    return 50e-6 * (1.0 + 8.0 * np.minimum(apart, 1.0 - apart))


def seen(
    trips: npt.NDArray[Any], noise: float, seed: int, one_way: bool = False
) -> Floats:
    """Return what measuring once finds, NaN on the diagonal."""
    factor = np.exp(noise * np.random.default_rng(seed).standard_normal(trips.shape))
    found = np.array(trips * factor, dtype=np.float64)
    np.fill_diagonal(found, math.nan)
    return np.where(np.tri(len(trips)) > 0, math.nan, found) if one_way else found


def round_trips(trips: Floats) -> NetworkSnapshot:
    src, dst = np.nonzero(np.isfinite(trips))
    count = np.arange(1, len(src) + 1)
    rtt = RttSamples(src, dst, np.ones_like(src), count, trips[src, dst])
    return NetworkSnapshot(tuple(map(Host, NAMES)), rtt=rtt)


def transfers(rates: Floats, together: bool = False) -> NetworkSnapshot:
    src, dst = np.nonzero(np.isfinite(rates))
    count = np.arange(1, len(src) + 1)
    sent = rates[src, dst].astype(np.int64)
    rounds = np.zeros_like(src) if together else count
    flows = LoadedFlows(rounds, src, dst, count, sent, 1.0, 0)
    return NetworkSnapshot(tuple(map(Host, NAMES)), flows=flows)


def truly(trips: Floats, order: tuple[str, ...]) -> float:
    """Return seconds of a ring on the planted network."""
    model = CostModel(
        build_schedule("allreduce", "ring", HOSTS, 1 << 10),
        flat(NAMES),
        [1] * HOSTS,
        Pairs(trips / 2, np.zeros_like(trips)),
    )
    return model.seconds([NAMES.index(name) for name in order])


def write(path: Path, values: Floats) -> Path:
    rows = [",".join(["host", *NAMES])]
    rows += [
        ",".join([name, *("" if math.isnan(v) else f"{v:.9g}" for v in row)])
        for name, row in zip(NAMES, values, strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("one_way", [False, True])
def test_an_imported_matrix_is_used(tmp_path: Path, one_way: bool) -> None:
    """Tests the way from a table of another tool to an order, through 20 % noise."""
    trips = distances(1)
    table = write(tmp_path / "m.csv", seen(trips, 0.2, 2, one_way) * 1e6)
    snapshot = read_matrices(table)
    assert snapshot.fabric is not None
    ring = build_schedule("allreduce", "ring", HOSTS, 1 << 10)
    found = solve(snapshot, ring)
    assert found.origin == "fastest ring"
    assert found.gap is not None
    assert found.gap < 0.2
    assert found.measured == 1.0
    given, best = truly(trips, NAMES), 46 * 25e-6 * (1 + 8 / HOSTS)
    assert truly(trips, found.order) < given - 0.7 * (given - best)
    assert found == solve(snapshot, ring)


def test_an_imported_matrix_of_noise_keeps_the_order(tmp_path: Path) -> None:
    """Tests 40 % of noise, latencies and rates: no gain is promised."""
    table = write(tmp_path / "m.csv", seen(np.full((HOSTS, HOSTS), 50.0), 0.4, 3))
    rates = write(tmp_path / "r.csv", seen(np.full((HOSTS, HOSTS), 900.0), 0.2, 4))
    snapshot = read_matrices(table, rates, bandwidth_unit="MB/s")
    for algorithm in ("ring", "rabenseifner", "recursive_doubling"):
        found = solve(snapshot, build_schedule("allreduce", algorithm, HOSTS, 1 << 20))
        assert (found.origin, found.order) == ("given", NAMES)
        assert found.predicted["given"] == found.predicted["cloudcoll"]


def test_rates_are_of_a_direction() -> None:
    """Tests pairs that are slow one way, as far as no link explains it.

    Latencies, which were not measured, are the fabric's: 10 us for each of two cards.
    """
    slow = 1.0 + np.outer(np.arange(HOSTS) < 12, np.arange(HOSTS) >= 12)
    rates = seen(1e9 / slow, 0.1, 5)
    cards = tuple(Node(name, (), latency_s=10e-6) for name in NAMES)
    for fabric, latency in ((flat(NAMES), 0.0), (Fabric(Node("core", cards)), 20e-6)):
        pairs = shrunk_pairs(transfers(rates), fabric)
        assert pairs is not None
        there, back = pairs.s_per_byte[:12, 12:], pairs.s_per_byte[12:, :12]
        assert there.mean() / back.mean() == pytest.approx(2.0, rel=0.1)
        assert pairs.alpha == pytest.approx(latency * (1 - np.eye(HOSTS)))


def test_rates_on_shared_links_say_nothing_of_pairs() -> None:
    """Tests that a pair is not called slow for what others sent meanwhile."""
    slow = 1.0 + np.outer(np.arange(HOSTS) < 12, np.arange(HOSTS) >= 12)
    cards = Fabric(Node("core", tuple(Node(name, (), 1e9, 1e9) for name in NAMES)))
    for together in (False, True):
        found = shrunk_pairs(transfers(seen(1e9 / slow, 0.1, 5), together), cards)
        assert (found is None) == together


def test_figures_written_twice_are_measured_once() -> None:
    """Tests a symmetric table: the same noise in both halves repeats nothing."""
    own = np.exp(0.3 * np.random.default_rng(6).standard_normal((HOSTS, HOSTS)))
    again = seen(50e-6 * (own + own.T), 0.05, 7)
    assert shrunk_pairs(round_trips(again), flat(NAMES)) is not None
    same = np.fmax(again, again.T)
    assert shrunk_pairs(round_trips(same), flat(NAMES)) is None


def test_repeated_probes_tell_pairs_in_racks() -> None:
    """Tests that where links are shared only what repeats is a pair's own."""
    planted = racks([12, 12], seed=3)
    probes = [
        dataclasses.replace(observe(planted, seed=seed), created=float(seed))
        for seed in range(3)
    ]
    a, b = (probes[0].names.index(name) for name in planted.hosts[:2])
    slower = []
    for probe in probes:
        rtt = probe.rtt
        pair = np.repeat((rtt.src == min(a, b)) & (rtt.dst == max(a, b)), 20)
        late = dataclasses.replace(rtt, seconds=rtt.seconds * np.where(pair, 3.0, 1.0))
        slower.append(dataclasses.replace(probe, rtt=late))
    assert shrunk_pairs(slower[0], planted) is None
    assert shrunk_pairs(merge_snapshots(probes), planted) is None
    in_a_row = combined_probes.together(slower)
    assert in_a_row is not None
    assert shrunk_pairs(in_a_row, planted) is None
    pairs = shrunk_pairs(merge_snapshots(slower), planted)
    assert pairs is not None
    assert 2.0 < pairs.alpha[0, 1] / pairs.alpha[2, 3] < 3.2
    assert pairs.alpha[0, 12] / pairs.alpha[2, 3] == pytest.approx(5.0, rel=0.2)


def test_hosts_in_another_order_or_left_out() -> None:
    """Tests that figures go by name: a part of the hosts, and any order.

    A way takes half a round trip.
    """
    trips = distances(8)
    snapshot = round_trips(seen(trips, 0.05, 9))
    whole = shrunk_pairs(snapshot, flat(NAMES))
    turned = shrunk_pairs(snapshot, flat(NAMES[::-1]))
    assert whole is not None
    assert turned is not None
    ways = whole.alpha[~np.eye(HOSTS, dtype=bool)].mean()
    assert ways == pytest.approx(trips.sum() / HOSTS / (HOSTS - 1) / 2, rel=0.05)
    assert turned.alpha[::-1, ::-1] == pytest.approx(whole.alpha, rel=0.02)
    some = shrunk_pairs(snapshot, flat(NAMES[4:]))
    assert some is not None
    assert some.alpha.shape == (20, 20)
    off = ~np.eye(20, dtype=bool)
    assert some.alpha[off] == pytest.approx(whole.alpha[4:, 4:][off], rel=0.2)


def test_what_was_not_measured_is_counted() -> None:
    """Tests the share of measured pairs, by round trips and by transfers."""
    trips = np.full((HOSTS, HOSTS), math.nan)
    trips[0, 1:] = 1e-4
    snapshot = round_trips(trips)
    assert measured_share(snapshot, NAMES) == 23 / (24 * 23 / 2)
    assert measured_share(snapshot, NAMES[1:]) == 0.0
    assert measured_share(snapshot, NAMES[:2][::-1]) == 1.0
    assert measured_share(snapshot, NAMES[:1]) == 1.0
    both = dataclasses.replace(snapshot, flows=transfers(trips.T * 1e9).flows)
    assert measured_share(both, NAMES) == measured_share(snapshot, NAMES)
    assert measured_share(dataclasses.replace(both, rtt=no_rtt()), NAMES[:3]) == 2 / 3


def test_which_pairs_were_measured() -> None:
    """Tests requests of which every other was answered, and transfers back.

    A transfer without a byte is none, nor is one from a host that is not asked for.
    """
    requests = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 4])
    answers = np.array([0, 1, 1, 2])
    rtt = RttSamples(*requests, np.ones_like(answers), answers, np.full(2, 1e-4))
    senders, receivers = np.array([3, 4, 5, 6]), np.array([0, 2, 1, 0])
    sent, ends = np.array([100, 100, 0, 100]), np.arange(1, 5)
    flows = LoadedFlows(np.arange(4), senders, receivers, ends, sent, 1.0, 0)
    snapshot = NetworkSnapshot(tuple(map(Host, NAMES)), rtt=rtt, flows=flows)
    found = measured_pairs(snapshot, NAMES[:6])
    assert found.tolist() == [0 * 6 + 2, 0 * 6 + 3, 2 * 6 + 4]


def test_rounding_moves_no_pair_by_more_than_a_thousandth() -> None:
    """Tests that seconds are those of the estimate, the last bit of it aside."""
    logs = seen(distances(1), 0.1, 2)
    figures = np.log(logs / 50e-6)
    base = np.full((HOSTS, HOSTS), 50e-6)
    rounded, estimate = _shrunk(figures, 0.0, base), shrunk(figures, 0.0)
    assert rounded is not None
    assert estimate is not None
    assert rounded == pytest.approx(50e-6 * np.exp(estimate), rel=1e-3)
    assert np.array_equal(rounded, _shrunk(figures + 1e-15, 0.0, base))  # type: ignore[arg-type]


def test_a_map_says_that_few_pairs_were_measured() -> None:
    """Tests the note, and the command that measures more; nothing of nothing."""
    trips = seen(distances(1), 0.1, 1)
    ring = build_schedule("allreduce", "ring", HOSTS, 1 << 20)
    notes = {}
    for known in (0, 4, HOSTS):
        few = np.where(np.arange(HOSTS) < known, trips, math.nan)
        rank_map = solve(round_trips(few), ring)
        notes[known] = [line for line in map_lines(rank_map) if "note: " in line]
    (note,) = notes.pop(4)
    assert note.startswith("note: 31% of the pairs were measured")
    assert "cloudcoll probe --standard" in note
    assert list(notes.values()) == [[], []]


def test_repeated_figures_by_hand() -> None:
    """Tests medians of one, two and three figures, and the variance of these medians.

    The three pairs' figures differ from their means by 0, by 1 twice, and by 2, 1 and
    3: 16 for the 3 that are more than one. The same figure twice is one.
    """
    cell = np.array([3, 1, 2, 1, 2, 3, 2])
    logs = np.array([7.0, 1.0, 0.0, 3.0, 5.0, 7.0, 1.0])
    figures, noise = _repeated(cell, logs, 3)
    expected = [[math.nan, 2.0, 1.0], [7.0, math.nan, math.nan], [math.nan] * 3]
    assert np.array_equal(figures, expected, equal_nan=True)
    assert noise == pytest.approx(16 / 3 * (1 + 1 / 2 + math.pi / 2 / 3) / 3)
    assert math.isnan(_repeated(cell[:3], logs[:3], 3)[1])


def test_flows_that_shared_a_link_tell_nothing() -> None:
    """Tests two racks: of two flows up one link none, alone or inside a rack each."""
    fabric = racks([2, 2], nic=50e6, uplink=50e6)
    snapshot = dataclasses.replace(
        observe(fabric),
        hosts=tuple(map(Host, fabric.hosts)),
        flows=LoadedFlows(
            round=np.array([0, 0, 1, 1, 2, 2]),
            src=np.array([0, 1, 0, 2, 0, 2]),
            dst=np.array([2, 3, 2, 3, 2, 0]),
            ends=np.arange(1, 7),
            window_bytes=np.array([10, 20, 40, 50, 100, 0]),
            window_s=1.0,
            ramp_up=0,
        ),
    )
    src, dst, seconds = _transfers(snapshot, fabric.links, np.arange(4))
    assert (src.tolist(), dst.tolist()) == ([0, 2, 0], [2, 3, 2])
    assert seconds == pytest.approx([1 / 40, 1 / 50, 1 / 100])
    # Of a host that is not asked for nothing is told, and links are free without it.
    src, dst, _ = _transfers(snapshot, fabric.links, np.array([0, -1, 2, 3]))
    assert (src.tolist(), dst.tolist()) == ([0, 0, 2, 0], [2, 2, 3, 2])


def test_a_flow_to_the_first_host_counts_and_one_of_no_bytes_does_not() -> None:
    """Tests both ends of what is measured: position 0, and a rate of 0."""
    fabric = racks([2, 2], nic=50e6, uplink=50e6)
    snapshot = dataclasses.replace(
        observe(fabric),
        hosts=tuple(map(Host, fabric.hosts)),
        flows=LoadedFlows(
            round=np.array([0, 1]),
            src=np.array([2, 3]),
            dst=np.array([0, 0]),
            ends=np.array([1, 2]),
            window_bytes=np.array([1, 0]),
            window_s=1.0,
            ramp_up=0,
        ),
    )
    src, dst, seconds = _transfers(snapshot, fabric.links, np.arange(4))
    assert (src.tolist(), dst.tolist()) == ([2], [0])
    assert seconds.tolist() == [1.0]
    ends = np.array([0, 1]), np.array([1, 0])
    figures, _ = _figures(*ends, np.array([2.0, 0.0]), np.ones((2, 2)), both_ways=True)
    assert figures[0, 1] == figures[1, 0] == pytest.approx(math.log(2))
