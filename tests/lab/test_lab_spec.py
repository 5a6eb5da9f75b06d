from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.lab.spec import (
    PRESETS,
    CrossTraffic,
    GroupSpec,
    HostSpec,
    LabSpec,
    Queue,
    Shape,
    quick,
    reshaped,
)
from cloudcoll.lab.text import (
    parse_duration,
    parse_queue,
    parse_rate,
    parse_rto,
    parse_traffic,
    queue_text,
    read_spec,
)

PODS = Path(__file__).parents[1] / "data" / "lab-pods.toml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400mbit", 50e6),
        ("2.5gbit", 312.5e6),
        ("8 kbit", 1e3),
        ("16bit", 2.0),
        ("unlimited", math.inf),
    ],
)
def test_rates_are_read(text: str, expected: float) -> None:
    """Tests that a rate with a unit becomes bytes/s."""
    assert parse_rate(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("200us", 2e-4), ("1.5ms", 1.5e-3), ("2s", 2.0), ("0", 0.0)]
)
def test_durations_are_read(text: str, expected: float) -> None:
    """Tests that a time with a unit becomes seconds."""
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "400", "0mbit", "-1mbit", "400MB/s", "mbit"])
def test_bad_rates_are_refused(text: str) -> None:
    """Tests that a rate without number or known unit is refused, with the units."""
    with pytest.raises(UsageError, match=r"not a rate \(units: bit, kbit"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "queue", "words"),
    [
        ("50ms", Queue("time", 0.05), "50 ms"),
        ("1.5 ms", Queue("time", 0.0015), "1.5 ms"),
        ("200us", Queue("time", 200e-6), "0.2 ms"),
        ("64p", Queue("packets", 64), "64 packets"),
        ("8 packets", Queue("packets", 8), "8 packets"),
        ("CoDel", Queue("codel", 1000), "CoDel"),
        ("policer:256K", Queue("policer", 262144), "policer of 256 KiB"),
    ],
)
def test_queues_are_read(text: str, queue: Queue, words: str) -> None:
    """Tests each kind of queue, and what it is called."""
    read = parse_queue(text)
    assert read.kind == queue.kind
    assert read.size == pytest.approx(queue.size)
    assert queue_text(read) == words


@pytest.mark.parametrize(
    "text", ["", "50", "0p", "p", "codel:9", "policer", "policer:x", "red", "-5ms"]
)
def test_bad_queues_are_refused(text: str) -> None:
    """Tests that what is no queue is refused."""
    with pytest.raises(UsageError, match=r"is not a (queue|size)"):
        parse_queue(text)


def test_a_queue_holds_bytes() -> None:
    """Tests what each kind holds at 100 Mbit/s."""
    kinds = {kind: parse_queue(kind) for kind in ("8ms", "10p", "codel", "policer:1K")}
    assert [round(queue.bytes(12.5e6)) for queue in kinds.values()] == [
        *(100_000, 15_140, 62_500, 1024)
    ]


def test_timeouts_and_traffic_are_read() -> None:
    """Tests the words for what belongs to all hosts."""
    assert (parse_rto("kernel"), parse_rto("5ms")) == (None, 0.005)
    assert parse_traffic("a:b:8mbit") == CrossTraffic("a", "b", 1e6)
    with pytest.raises(UsageError, match="'a:8mbit' is not cross traffic"):
        parse_traffic("a:8mbit")


def test_a_file_has_a_character(tmp_path: Path) -> None:
    """Tests that a preset holds until a group says otherwise, for all below it."""
    path = tmp_path / "lab.toml"
    path.write_text(
        "preset = 'codel'\nrto = '5ms'\nhogs = 1\ntraffic = ['a:b:8mbit']\n"
        "[[group]]\nname = 'a'\nhosts = 1\n"
        "[[group]]\nname = 'b'\nqueue = '2ms'\nnic_jitter = '1ms'\n"
        "backpressure = true\n"
        "[[group.group]]\nname = 'c'\nhosts = 1\nuplink_queue = '9p'\n"
    )
    spec = read_spec(path)
    around = spec.surroundings
    assert (around.preset, around.rto, around.hogs) == ("codel", 0.005, 1)
    assert (around.congestion, around.traffic) == (
        "cubic",
        (CrossTraffic("a", "b", 1e6),),
    )
    _, a, b, c = spec.root.groups()
    first, second = spec.root.hosts()
    assert a.shape == first.shape == Shape(Queue("codel", 1000))
    assert b.shape == Shape(Queue("time", 0.002))
    assert c.shape == Shape(Queue("packets", 9))
    assert second.shape == Shape(Queue("time", 0.002), 0.001, backpressure=True)


def test_pods_are_a_level_of_their_own() -> None:
    """Tests that racks are numbered through, and what each level's links have."""
    spec = quick(
        *(((2, 1), (3,)), 1e6, 2e6, 9e-4, 1e-4),
        pod_uplink=3e6,
        pod_rtt=5e-4,
        preset="packets",
    )
    groups = {group.name: group for group in spec.root.groups()}
    names = ["root", "pod-1", "rack-1", "rack-2", "pod-2", "rack-3"]
    assert list(groups) == names
    assert [groups[name].rtt for name in names] == [9e-4, 5e-4, 1e-4, 1e-4, 5e-4, 1e-4]
    assert [groups[name].up for name in names[1:]] == [3e6, 2e6, 2e6, 3e6, 2e6]
    assert all(group.shape.queue.kind == "packets" for group in spec.root.groups())


def test_a_lab_is_reshaped() -> None:
    """Tests that other shapes of cards leave uplinks as they are, and rates."""
    spec = quick((2, 1), 1e6, 2e6)
    card = Shape(Queue("packets", 5))
    changed = reshaped(spec, nic=card)
    assert {host.shape for host in changed.root.hosts()} == {card}
    assert reshaped(changed, nic=spec.root.shape) == spec


def test_the_default_favours_nobody() -> None:
    """Tests that the usual lab keeps the kernel's timeout and equal round trips."""
    spec = quick((2, 1), 1e6, 2e6)
    assert (spec.surroundings.preset, spec.surroundings.rto) == ("cloud", None)
    assert (PRESETS["cloud"].rtt, spec.root.rtt) == (0.0, 0.0)


def test_a_file_is_read() -> None:
    """Tests that groups nest, rates are inherited and each rtt stays where it is."""
    rack_a1 = GroupSpec(
        "rack-a1", (HostSpec(50e6, 50e6, 1),) * 3, 50e6, 50e6, 60 * 1e-6
    )
    rack_a2 = GroupSpec("rack-a2", (HostSpec(50e6, 50e6, 1),) * 2, 50e6, 50e6, 0.0)
    rack_b1 = GroupSpec("rack-b1", (HostSpec(50e6, 25e6, 2),) * 2, 12.5e6, 50e6, 0.0)
    spec = read_spec(PODS)
    root = spec.root
    assert spec.seed == 7
    assert [group.name for group in root.groups()] == [
        *("root", "pod-a", "rack-a1", "rack-a2", "rack-b1")
    ]
    assert root.rtt == pytest.approx(500e-6)
    pod, last = root.children
    assert isinstance(pod, GroupSpec)
    assert pod.children == (rack_a1, rack_a2)
    assert last == rack_b1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hosts = 2\nspeed = 3", r"unknown key 'speed' .*known: name, hosts"),
        ("hosts = 0", "not a whole number, 1 to 1000"),
        ("hosts = true", "not a whole number, 1 to 1000"),
        ("nic = '1gbit'", "either hosts = N or"),
        ("hosts = 2\n[[group]]\nhosts = 1", "either hosts = N or"),
        ("seed = 'x'\nhosts = 2", "seed = 'x' is not a whole number"),
        ("hosts = 2\nnic = 'fast'", "'fast' is not a rate"),
        ("hosts = 1001", "1 to 1000"),
        ("hosts = 10000000000000", "1 to 1000"),
        ("[group]\nhosts = 2", r"write \[\[group\]\]"),
        ("group = 2", r"write \[\[group\]\]"),
        ("[[group]]\nname='a'\nhosts=1\n[[group]]\nname='a'\nhosts=1", "two groups"),
        ("[[group]]\nname='a/b'\nhosts=1", "not a group's name"),
        ("[[group]]\nname='vm-01'\nhosts=1", "not a group's name"),
        ("rtt='10us'\n[[group]]\nname='a'\nrtt='20us'\nhosts=1", "longer rtt"),
        ("hosts = ", "is not TOML"),
        ("hosts = 2\npreset = 'claud'", r"no preset 'claud' \(did you mean cloud"),
        ("hosts = 2\nhogs = 3", "3 hogs asked for; this lab has 2 hosts"),
        ("hosts = 2\nhogs = '1'", "hogs = '1' is not a whole number"),
        ("hosts = 2\nqueue = 5", "'5' is not a queue"),
        ("hosts = 2\nbackpressure = 1", "backpressure = 1 is not true or false"),
        ("hosts = 2\ntraffic = 'a:b:1mbit'", "traffic is not a list"),
        ("hosts = 2\ntraffic = ['root:x:1mbit']", "no group 'x' for cross traffic"),
        ("[[group]]\nname='tenant-1'\nhosts=1", "not a group's name"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Tests that an error names the file and what is wrong in it."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"bad.toml.*{reason}"):
        read_spec(path)


@pytest.mark.parametrize("racks", [(5, 0), (5, -3), (5, 10**30)])
def test_racks_of_no_size_are_refused(racks: tuple[int, ...]) -> None:
    """Tests that no rack goes missing without a word, and no memory fills up."""
    with pytest.raises(UsageError, match=f"hosts = {racks[1]} is not"):
        quick(racks)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Tests that a file that is not there is an error that names it."""
    with pytest.raises(UsageError, match=r"nothing\.toml"):
        read_spec(tmp_path / "nothing.toml")


@given(racks=st.lists(st.integers(1, 8), min_size=1, max_size=6), seed=st.integers(0))
def test_names_are_dealt_over_the_places(racks: list[int], seed: int) -> None:
    """Tests that names are a permutation, the same for the same seed."""
    spec = quick(tuple(racks), seed=seed)
    names = spec.placed_names()
    assert sorted(names) == [f"vm-{n:02}" for n in range(1, sum(racks) + 1)]
    assert names == LabSpec(spec.root, seed).placed_names()


def test_seeds_differ() -> None:
    """Tests that another seed puts the names elsewhere."""
    orders = {quick((4, 4, 4, 4), seed=seed).placed_names() for seed in range(10)}
    assert len(orders) == 10
