from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.importers import read_matrices
from cloudcoll.importers.matrix import ALONE, NO_LATENCY
from cloudcoll.importers.table import kinds_of, rate_unit, time_unit
from cloudcoll.measured import synth
from cloudcoll.network.fair import fair_rates
from cloudcoll.report.checks import check_snapshot

NAMED = """host,a,b,c,d
a,,50,200,205
b,51,,202,207
c,204,201,,49
d,200,200,51,
"""
BARE = "0 50 200 205\n51 0 202 207\n204 201 0 49\n200 200 51 0\n"


def write(folder: Path, text: str, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mpigraph(names: Sequence[str], rate: Callable[[int, int], float]) -> str:
    """Return what mpiGraph prints where `rate` is MiB/s by sender and receiver.

    Its first table, what the senders saw, has half of that.
    """
    hosts = [f"{name}:{rank}" for rank, name in enumerate(names)]
    ranks = range(len(names))
    lines = ["START mpiGraph v1.5", "MsgSize\t16384", "1 of 3 (33.3%)", ""]
    for title, verb in (("Send", "to"), ("Recv", "from")):
        lines += ["", f"{title} max\t1.0", "", title + "\t" + "\t".join(hosts) + "\t"]
        for j in ranks:
            ways = [rate(j, k) / 2 if verb == "to" else rate(k, j) for k in ranks]
            cells = [0.0 if j == k else way for k, way in zip(ranks, ways, strict=True)]
            row = "".join(f"{cell:.3f}\t" for cell in cells)
            lines.append(f"{hosts[j]} {verb}\t{row}")
    return "\n".join([*lines, "END mpiGraph", ""])


def counted(hosts: int) -> str:
    """Return mpiGraph's output in which every pair has a rate of its own."""
    names = [f"n{number}" for number in range(hosts)]
    return mpigraph(names, lambda src, dst: 200.0 + 10 * src + dst)


def test_latency_becomes_a_fabric(tmp_path: Path) -> None:
    """Tests groups, origin and doubts of a snapshot from microseconds."""
    snapshot = read_matrices(write(tmp_path, NAMED))
    assert snapshot.names == ("a", "b", "c", "d")
    assert snapshot.latency.values[0, 2] == pytest.approx(200e-6)
    assert snapshot.latency.origin == "imported"
    assert snapshot.fabric is not None
    assert snapshot.fabric.origin == "imported"
    groups = [sorted(node.leaves()) for node in snapshot.fabric.groups()[0]]
    assert groups == [["a", "b"], ["c", "d"]]
    # One figure a pair is no lack of samples.
    assert [line[:25] for line in check_snapshot(snapshot)] == [
        "no bandwidth was measured"
    ]


def test_a_table_without_names_takes_those_listed(tmp_path: Path) -> None:
    """Tests blanks as separators, and latencies that are half a round trip."""
    path = write(tmp_path, BARE)
    hosts = tuple(map(Host, "wxyz"))
    snapshot = read_matrices(path, latency_unit="us", one_way=True, hosts=hosts)
    assert snapshot.names == ("w", "x", "y", "z")
    assert snapshot.latency.values[1, 0] == pytest.approx(102e-6)
    with pytest.raises(UsageError, match=r"no names: list the hosts with --hosts"):
        read_matrices(path)
    with pytest.raises(UsageError, match="4 rows, but 3 hosts are listed"):
        read_matrices(path, hosts=hosts[:3])


def test_npy_and_csv_say_the_same(tmp_path: Path) -> None:
    """Tests an array of another number type, and rates beside latencies."""
    np.save(tmp_path / "bw.npy", np.full((4, 4), 25, dtype=np.int32))
    snapshot = read_matrices(
        write(tmp_path, NAMED), tmp_path / "bw.npy", bandwidth_unit="Gbit/s"
    )
    off = ~np.eye(4, dtype=bool)
    assert snapshot.bandwidth.values[off] == pytest.approx(25e9 / 8)
    assert np.isnan(snapshot.bandwidth.values[~off]).all()
    # Nothing says that any of them ran together.
    assert len(set(snapshot.flows.round.tolist())) == 12


def test_two_tables_are_brought_into_one_order(tmp_path: Path) -> None:
    """Tests a bandwidth table that lists the same hosts in another order."""
    rates = "h,b,a\nb,,100\na,300,\n"
    latency = "h,a,b\na,,50\nb,50,\n"
    snapshot = read_matrices(
        write(tmp_path, latency),
        write(tmp_path, rates, "bw.csv"),
        bandwidth_unit="MB/s",
    )
    assert snapshot.names == ("a", "b")
    assert snapshot.bandwidth.values[0, 1] == 300e6
    assert snapshot.bandwidth.values[1, 0] == 100e6


def test_mpigraph_counts_what_arrived(tmp_path: Path) -> None:
    """Tests direction, unit and rounds of mpiGraph's second table."""
    path = write(tmp_path, counted(4), "out")
    snapshot = read_matrices(mpigraph=path)
    assert snapshot.names == ("n0", "n1", "n2", "n3")
    # Host 1 got 200 + 10 * 3 + 1 MiB/s from host 3.
    assert snapshot.bandwidth.values[3, 1] == pytest.approx(231 * 2**20, rel=1e-6)
    shifts = (snapshot.flows.dst - snapshot.flows.src) % 4
    assert (snapshot.flows.round == shifts - 1).all()
    assert snapshot.fabric is not None
    assert snapshot.fabric.warnings == (NO_LATENCY,)


def test_mpigraph_and_latencies_find_racks_and_uplinks(tmp_path: Path) -> None:
    """Tests a planted network: its racks exact, its uplinks within 15 %."""
    planted = synth.racks((5, 3, 4), nic=50e6, uplink=80e6, seed=3)
    names = sorted(planted.hosts)
    columns = np.array([planted.position(name) for name in names])
    rates = np.zeros((len(names), len(names)))
    for shift in range(1, len(names)):
        heard = np.roll(columns, -shift)
        flows = fair_rates(planted.links, columns, heard)
        rates[np.arange(len(names)), (np.arange(len(names)) + shift) % len(names)] = (
            flows
        )
    output = mpigraph(names, lambda src, dst: rates[src, dst] / 2**20)
    trips = planted.links.pair_rtt()[np.ix_(columns, columns)]
    np.save(tmp_path / "rtt.npy", trips)
    snapshot = read_matrices(
        tmp_path / "rtt.npy",
        mpigraph=write(tmp_path, output, "out"),
        latency_unit="s",
        hosts=tuple(map(Host, names)),
    )
    assert snapshot.fabric is not None
    racks = {frozenset(node.leaves()): node for node in snapshot.fabric.groups()[0]}
    assert set(racks) == {frozenset(node.leaves()) for node in planted.groups()[0]}
    for rack in racks.values():
        assert rack.uplink_bytes_per_s == pytest.approx(80e6, rel=0.15)
        assert rack.downlink_bytes_per_s == pytest.approx(80e6, rel=0.15)


def bandwidths(folder: Path, across: float, noise: float, seed: int) -> Path:
    """Write rates of pairs measured alone: 3 GB/s in racks of 5, 3, 6 and 2."""
    generator = np.random.default_rng(seed)
    rack = np.repeat(np.arange(4), RACKS)
    rates = np.where(rack[:, None] == rack, 3.0, across)
    np.save(folder / "bw.npy", rates / (1 + generator.exponential(noise, rates.shape)))
    return folder / "bw.npy"


RACKS = (5, 3, 6, 2)
SIXTEEN = tuple(Host(f"n{number:02d}") for number in range(16))


@pytest.mark.parametrize("across", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_bandwidth_alone_shows_racks(
    tmp_path: Path, across: float, noise: float
) -> None:
    """Tests two clear rates: groups and cards are known, uplinks are not."""
    for seed in range(4):
        path = bandwidths(tmp_path, across, noise, seed)
        fabric = read_matrices(
            bandwidth=path, bandwidth_unit="GB/s", hosts=SIXTEEN
        ).fabric
        assert fabric is not None
        racks = {frozenset(node.leaves()) for node in fabric.groups()[0]}
        edges = np.cumsum((0, *RACKS))
        assert racks == {
            frozenset(host.name for host in SIXTEEN[a:b])
            for a, b in itertools.pairwise(edges)
        }
        for rack in fabric.groups()[0]:
            assert np.isnan([rack.uplink_bytes_per_s, rack.downlink_bytes_per_s]).all()
            for card in rack.children:
                assert 2.2e9 < card.uplink_bytes_per_s <= 3e9
        assert ALONE in fabric.warnings


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_bandwidth_without_two_levels_is_flat(tmp_path: Path, noise: float) -> None:
    """Tests that rates which only scatter make no groups."""
    for seed in range(4):
        path = bandwidths(tmp_path, 3.0, noise, seed)
        fabric = read_matrices(
            bandwidth=path, bandwidth_unit="GB/s", hosts=SIXTEEN
        ).fabric
        assert fabric is not None
        assert len(fabric.groups()) == 1
        assert fabric.warnings[-1] == NO_LATENCY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (counted(3).partition("Recv max")[0], "no table 'Recv'"),
        (counted(3)[:-45], "the table is cut off"),
        (counted(3).replace("n2:2", "n1:2"), "both of 'n1': measure with one rank"),
        (counted(3).replace("201.0", "-31.0"), "-31 is no measurement"),
    ],
)
def test_bad_mpigraph_output_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Tests output that is cut off, or of several ranks on a host."""
    path = write(tmp_path, text, "out")
    with pytest.raises(UsageError, match=message):
        read_matrices(mpigraph=path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("1,2\n", "row 1 has 2 values and there are 1 rows for 1 columns"),
        ("0,5,5\n5,0\n5,5,0\n", "row 2 has 2 values"),
        ("h,a,b\na,0,9\n", "1 rows and 2 columns: not a square"),
        ("h,a,b\nb,0,9\na,9,0\n", "row 1 is of 'b', column 1 of 'a'"),
        ("h,a,a\na,0,9\na,9,0\n", "rows 1 and 2 are both of 'a'"),
        ("h,a,$(x)\na,0,9\n$(x),9,0\n", r"row 1, column 2: '\$\(x\)' is not a host"),
        ("h,a,b\na,0,9\nb,fast,0\n", "row 2, column 1: 'fast' is not a number"),
        ("h,a,b\na,0,-9\nb,9,0\n", r"row 1 \(a\), column 2 \(b\): -9 is no measure"),
        ("h,a,b\na,0,inf\nb,9,0\n", r"row 1 \(a\), column 2 \(b\): inf is no measure"),
        ("h,a,b\na,0,0\nb,9,0\n", r"column 2 \(b\): 0 us is no network's latency"),
        (
            "h,a,b\na,0,2e7\nb,9,0\n",
            "is no network's latency: say its unit with --unit",
        ),
        ("h,a\na,0\n", "a matrix of 1 hosts"),
        (
            "h,a,b,c\na,,9,\nb,9,,\nc,,,\n",
            r"row 3 \(c\), column 3 \(c\): nothing was measured with this host",
        ),
        (
            "h,a,b,c,d\na,,9,,\nb,9,,,\nc,,,,9\nd,,,9,\n",
            r"row 1 \(a\), column 3 \(c\): not measured, nor are 4 of 6 pairs",
        ),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Tests that file, row and column of what is wrong are named."""
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=message) as caught:
        read_matrices(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1


def test_other_hosts_are_refused(tmp_path: Path) -> None:
    """Tests a list of hosts that the table does not have, and the reverse."""
    path = write(tmp_path, NAMED)
    with pytest.raises(UsageError, match=r"of other hosts: 'd' is not listed"):
        read_matrices(path, hosts=tuple(map(Host, "abc")))
    with pytest.raises(UsageError, match=r"of other hosts: 'e' is listed but not in"):
        read_matrices(path, hosts=tuple(map(Host, "abcde")))


def test_a_bandwidth_needs_its_unit(tmp_path: Path) -> None:
    """Tests that nothing guesses between bits and bytes."""
    path = write(tmp_path, NAMED)
    with pytest.raises(UsageError, match=r"in which unit\? say --unit"):
        read_matrices(bandwidth=path)
    with pytest.raises(UsageError, match="exclude each other"):
        read_matrices(bandwidth=path, mpigraph=path)
    with pytest.raises(UsageError, match="mpiGraph counts in MiB/s"):
        read_matrices(mpigraph=path, bandwidth_unit="Gbit/s")
    with pytest.raises(UsageError, match="no matrix: name one"):
        read_matrices()


def test_units_are_told_apart() -> None:
    """Tests which unit is of what, and what two of a kind are."""
    assert kinds_of([]) == ("us", "")
    assert kinds_of(["Gbit/s", "ms"]) == ("ms", "Gbit/s")
    with pytest.raises(UsageError, match="two units of latency: ms and ns"):
        kinds_of(["ms", "ns"])
    with pytest.raises(UsageError, match="unknown unit 'Gb'"):
        kinds_of(["Gb"])


def test_what_units_stand_for() -> None:
    """Tests each unit in bits or bytes a second, and in billionths of a second."""
    bits = {"B/s": 8, "MB/s": 8_000_000, "MiB/s": 8_388_608, "GB/s": 8_000_000_000}
    bits |= {"GiB/s": 8_589_934_592, "Mbit/s": 1_000_000, "Gbit/s": 1_000_000_000}
    assert {unit: 8 * rate_unit(unit) for unit in bits} == bits
    parts = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
    assert {unit: time_unit(unit) * 1e9 for unit in parts} == pytest.approx(parts)
    with pytest.raises(UsageError, match=r"of bandwidth 'us' \(known: B/s, MB/s"):
        rate_unit("us")
    with pytest.raises(UsageError, match=r"of latency 'B/s' \(known: s, ms, us, ns"):
        time_unit("B/s")


def test_a_card_may_send_faster_than_it_receives(tmp_path: Path) -> None:
    """Tests that directions are kept apart: one host receives at half of the rate."""
    rates = np.full((6, 6), 2.0)
    rates[:, 4] = 1.0
    np.fill_diagonal(rates, 0.0)
    text = "".join(",".join(map(str, row)) + "\n" for row in rates.tolist())
    snapshot = read_matrices(
        bandwidth=write(tmp_path, text),
        bandwidth_unit="GB/s",
        hosts=tuple(map(Host, "abcdef")),
    )
    assert snapshot.fabric is not None
    links = snapshot.fabric.links
    own = links.member[-1, [snapshot.fabric.position(name) for name in "abcdef"]]
    assert links.up[own].tolist() == [2e9] * 6
    assert links.down[own].tolist() == [2e9] * 4 + [1e9, 2e9]
