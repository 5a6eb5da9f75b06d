from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from newfiles import write_new
from strategies import same, snapshots

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import state_dir
from cloudcoll.files.limits import FACTS, MERGED
from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import (
    MAGIC,
    SCHEMA,
    NetworkSnapshot,
    latest_path,
    load_snapshot,
    parse_snapshot,
)
from cloudcoll.measured.synth import observe, racks

HOSTS = tuple(map(Host, "abc"))


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def small() -> NetworkSnapshot:
    return NetworkSnapshot(
        HOSTS[:2],
        RttSamples(ints(0), ints(1), ints(3), ints(2), np.array([1e-4, 2e-4])),
        created=1.5,
    )


def stored(payload: bytes, schema: object = SCHEMA) -> bytes:
    """Return a file whose first line fits whatever the payload is."""
    digest = hashlib.sha256(payload).hexdigest()
    return f"{MAGIC} {schema} {digest} {len(payload)}\n".encode() + payload


@settings(max_examples=50)
@given(snapshots())
def test_the_file_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, snapshot: NetworkSnapshot
) -> None:
    """Tests that every sample, name and note survives, and the digest is stable."""
    path = tmp_path_factory.getbasetemp() / "round.snap"
    saved = snapshot.save(path)
    loaded = load_snapshot(path)
    assert same(loaded, snapshot)
    assert same(saved, snapshot)
    assert loaded.digest == saved.digest == loaded.save(path).digest != ""


def test_a_probe_of_many_hosts_is_read_back(tmp_path: Path) -> None:
    """Tests a snapshot of real size, with its fabric."""
    fabric = racks([8, 5, 3])
    snapshot = observe(fabric, rounds=4).with_fabric(fabric)
    snapshot.save(tmp_path / "file.snap")
    loaded = load_snapshot(tmp_path / "file.snap")
    assert same(loaded, snapshot)
    assert loaded.fabric == fabric


def test_names_are_put_together_once() -> None:
    """Tests that a look at each host's name is not quadratic in the hosts."""
    snapshot = observe(racks([2, 2]))
    assert snapshot.names is snapshot.names


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    """Tests that a file with any one byte changed is refused in one line."""
    path = tmp_path / "file.snap"
    small().save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        # One flipped bit, and a carriage return where none was.
        for mask in (0x01, whole[position] ^ 0x0D):
            damaged = bytearray(whole)
            damaged[position] ^= mask
            if damaged != whole:
                write_new(path, damaged)
                assert_refused(path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    """Tests that a file cut at any length, or grown, is refused in one line."""
    path = tmp_path / "file.snap"
    small().save(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        write_new(path, whole[:length])
        assert_refused(path)
    write_new(path, whole + b"\0")
    assert_refused(path)


def assert_refused(path: Path) -> None:
    with pytest.raises(UnusableError) as caught:
        load_snapshot(path)
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, 99, "x"])
def test_another_schema_is_named(tmp_path: Path, schema: object) -> None:
    """Tests that a newer file says so, rather than that it is damaged."""
    path = tmp_path / "file.snap"
    path.write_bytes(stored(b"", schema))
    with pytest.raises(
        UnusableError, match=f"schema '{schema}'.*reads {SCHEMA}.*upgrade"
    ):
        load_snapshot(path)


def archive(**changes: object) -> bytes:
    """Return the payload of `small` with parts of its header replaced."""
    text = json.dumps({**hostile.HEADER, **changes})
    arrays: dict[str, Any] = {"header": np.frombuffer(text.encode(), dtype=np.uint8)}
    for part in ("rtt", "flows"):
        value = getattr(small(), part)
        for field in dataclasses.fields(value):
            if isinstance(getattr(value, field.name), np.ndarray):
                arrays[f"{part}_{field.name}"] = getattr(value, field.name)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_the_archive_of_this_test_is_one(tmp_path: Path) -> None:
    """Tests that `archive` without changes loads: the next test relies on it."""
    (tmp_path / "file.snap").write_bytes(stored(archive()))
    assert same(load_snapshot(tmp_path / "file.snap"), small())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"PK\x03\x04 but no archive",
        archive(hosts=None),
        archive(hosts=[{"name": "a", "speed": 1}]),
        archive(hosts=["a", "b"]),
        archive(hosts=[{"name": "a"}]),
        archive(fabric={"root": {}}),
        archive(fabric=["core"]),
        archive(fabric=7),
        archive(failed=7),
        archive(created="now"),
        archive(metadata=None),
        archive(window_s="long"),
        archive(ramp_up=None),
        archive(ramp_up=math.inf),
        archive(created=10**400),
    ],
)
def test_an_intact_file_that_makes_no_sense_is_refused(
    tmp_path: Path, payload: bytes
) -> None:
    """Tests that a right checksum does not excuse a wrong content."""
    path = tmp_path / "file.snap"
    path.write_bytes(stored(payload))
    assert_refused(path)


@pytest.mark.parametrize("key", ["created", "window_s"])
def test_a_number_past_what_floats_hold_is_refused(key: str) -> None:
    """Tests what a file may say although there is no infinity in JSON."""
    text = json.dumps({**hostile.HEADER, key: "?"}).replace('"?"', "1e999")
    with pytest.raises(UnusableError, match=f"{key} inf is not a number, 0 or more"):
        parse_snapshot(hostile.stored(text.encode()), "x")


def test_slots_are_whole_numbers() -> None:
    """Tests that the host is named by its place, from 1 on."""
    hosts = [{"name": "a"}, {"name": "b", "slots": "2"}]
    with pytest.raises(UnusableError, match="host 2: slots '2'"):
        parse_snapshot(stored(archive(hosts=hosts)), "x")


def test_where_hosts_are_reached() -> None:
    """Tests that the host list's address goes before what the agents found."""
    hosts = (Host("a", "10.0.0.1"), Host("b"), Host("c"), Host("d"))
    agents = {name: {"address": f"10.1.0.{name}"} for name in "abd"}
    agents["d"] = {"address": "d"}
    seen = NetworkSnapshot(hosts, metadata={"agents": agents})
    assert seen.addresses == {"a": "10.0.0.1", "b": "10.1.0.b"}


@pytest.mark.parametrize("key", ["seconds", "sent_bytes"])
def test_what_a_probe_took_is_a_number(key: str) -> None:
    """Tests the two notes that reports count with."""
    for value in (0, 1.5):
        dataclasses.replace(small(), metadata={key: value}).to_bytes()
    data = dataclasses.replace(small(), metadata={key: "much"}).to_bytes()
    with pytest.raises(UnusableError, match=f"metadata: {key} 'much' is not a number"):
        parse_snapshot(data, "x")


@pytest.mark.parametrize("notes", [7, {str(i): "" for i in range(FACTS + 1)}])
def test_notes_are_mappings_of_some_entries(notes: object) -> None:
    """Tests that others are refused, and that it is said where they stand."""
    labels = [{"name": "a", "labels": notes}, {"name": "b"}]
    for where, change in (
        ("metadata", {"metadata": notes}),
        ("host 1: labels", {"hosts": labels}),
    ):
        with pytest.raises(UnusableError, match=f"{where}: not an object of up to"):
            parse_snapshot(hostile.stored({**hostile.HEADER, **change}), "x")


def test_as_many_as_are_merged_are_read_back() -> None:
    """Tests a snapshot of as many as `merge_snapshots` takes, and one of more."""
    part = {"pairs": 0, "created": 1.0, "digest": ""}
    most = [{**part, "pairs": 1}, *[part] * (MERGED - 1)]
    data, too_many = (
        dataclasses.replace(small(), metadata={"merged": merged}).to_bytes()
        for merged in (most, [*most, part])
    )
    assert len(parse_snapshot(data, "x").latency_repeats) == MERGED
    with pytest.raises(UnusableError, match="merged: not a list of up to"):
        parse_snapshot(too_many, "x")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    """Tests that an array of Python objects is refused, not unpickled."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{"a": 1}], dtype=object))
    (tmp_path / "file.snap").write_bytes(stored(buffer.getvalue()))
    assert_refused(tmp_path / "file.snap")


def test_no_file_is_a_usage_error(tmp_path: Path) -> None:
    """Tests that a missing file says how to make one, a folder that it is one."""
    with pytest.raises(UsageError, match=r"no snapshot at .*cloudcoll probe -o"):
        load_snapshot(tmp_path / "none.snap")
    with pytest.raises(UnusableError, match="Is a directory"):
        load_snapshot(tmp_path)


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    """Tests that a snapshot that cannot be encoded leaves the old file."""
    path = tmp_path / "file.snap"
    small().save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        dataclasses.replace(small(), metadata={"bad": object()}).save(path)
    assert path.read_bytes() == before


def test_latest_path_is_one_per_host_set() -> None:
    """Tests that order does not matter, and other hosts have another file."""
    one, again = latest_path(HOSTS), latest_path(HOSTS[::-1])
    assert one == again != latest_path(HOSTS[:2])
    assert one.is_relative_to(state_dir())


def test_with_fabric_has_no_digest_yet(tmp_path: Path) -> None:
    """Tests that the digest is only ever that of a stored form."""
    saved = small().save(tmp_path / "file.snap")
    assert saved.digest
    assert saved.with_fabric(racks([2])).digest == ""


def test_age_counts_from_creation() -> None:
    """Tests that a snapshot made now is young, and one of 1970 is not."""
    assert 0 <= NetworkSnapshot(HOSTS).age < 60
    assert small().age > 1e9


def test_latency_is_a_low_quantile_of_each_pair() -> None:
    """Tests the quantile, that one direction stands for both, and NaN."""
    samples = np.arange(1.0, 12.0)
    rtt = RttSamples(
        src=ints(0, 1, 2),
        dst=ints(1, 0, 0),
        sent=ints(11, 1, 4),
        ends=ints(11, 12, 12),
        seconds=np.array([*samples[::-1], 5.0]),
    )
    values = NetworkSnapshot(HOSTS, rtt).latency.values
    assert values[0, 1] == pytest.approx(2.0)  # the 10th percentile of 1..11
    assert values[1, 0] == 5.0
    assert np.isnan(values[[0, 0, 1, 2], [0, 2, 2, 0]]).all()


def test_latency_of_one_direction_stands_for_both() -> None:
    """Tests that a round trip is filled in where only one host asked."""
    values = small().latency.values
    assert values[0, 1] == values[1, 0] == pytest.approx(1.1e-4)


def test_loss_is_the_share_without_an_answer() -> None:
    """Tests all, some and no requests lost, and pairs that never asked."""
    rtt = RttSamples(
        ints(0, 1, 2), ints(1, 2, 0), ints(4, 4, 2), ints(4, 5, 5), np.ones(5)
    )
    loss = NetworkSnapshot(HOSTS, rtt).loss
    assert loss[0, 1] == 0.0
    assert loss[1, 2] == 0.75
    assert loss[2, 0] == 1.0
    assert np.isnan(loss[1, 0])
    assert np.isnan(NetworkSnapshot(HOSTS).loss).all()


@pytest.mark.parametrize("matrix", ["latency", "bandwidth", "loss"])
def test_a_matrix_of_pairs_that_nobody_measured_is_refused(matrix: str) -> None:
    """Tests 3000 hosts, whose 9 million pairs take 72 MB, without a measurement."""
    with pytest.raises(UnusableError, match="matrix of the pairs of 3000 hosts"):
        getattr(NetworkSnapshot(HOSTS[:1] * 3000), matrix)


@pytest.mark.parametrize(
    ("answers", "sent_bytes", "silent"),
    [
        ((0, 1), [0, 0, 0], {"a", "b"}),
        ((1, 0), [0, 0, 0], {"c", "d"}),
        ((1, 0), [0, 0, 9], set()),
        ((0, 0), [9, 9, 0], set()),
    ],
)
def test_hosts_are_silent_where_nothing_came(
    answers: tuple[int, int], sent_bytes: list[int], silent: set[str]
) -> None:
    """Tests that one answer, or bytes after the ramp-up, are enough.

    Host a asked b, c asked d and sent to it; with no measurement at all none is silent.
    """
    rtt = RttSamples(
        src=ints(0, 2),
        dst=ints(1, 3),
        sent=ints(9, 9),
        ends=np.cumsum(answers),
        seconds=np.ones(sum(answers)),
    )
    # The second flow ends before its rate counts.
    flows = LoadedFlows(
        ints(0, 1), ints(2, 2), ints(3, 3), ints(3, 3), ints(*sent_bytes), ramp_up=2
    )
    snapshot = NetworkSnapshot(tuple(map(Host, "abcd")), rtt, flows)
    assert snapshot.silent == silent


def test_rates_leave_out_the_ramp_up() -> None:
    """Tests that only windows after the ramp-up count, NaN if there is none."""
    flows = LoadedFlows(
        round=ints(0, 0, 1),
        src=ints(0, 1, 0),
        dst=ints(1, 2, 1),
        ends=ints(4, 6, 10),
        window_bytes=ints(1, 5, 100, 300, 7, 9, 0, 0, 50, 50),
        window_s=0.5,
        ramp_up=2,
    )
    assert flows.bytes_per_s[[0, 2]].tolist() == [400.0, 100.0]
    assert math.isnan(flows.bytes_per_s[1])
    bandwidth = NetworkSnapshot(HOSTS, flows=flows).bandwidth
    assert bandwidth.kind == "bandwidth"
    assert bandwidth.values[0, 1] == 400.0  # the best of its two flows
    assert np.isnan(bandwidth.values).sum() == 8
