"""What a small file may make a process take, measured by processes of their own."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import COLUMNS, HEADER, npy, refusal, run, sealed, stored

from cloudcoll.collectives import steps
from cloudcoll.collectives.workload import read_workload
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import limits
from cloudcoll.files.limits import FREE, GROWTH
from cloudcoll.measured.snapshot import load_snapshot, parse_snapshot
from cloudcoll.measured.synth import observe, racks


def ints(*values: int) -> bytes:
    return npy(np.array(values, dtype=np.int64).tobytes(), shape=(len(values),))


def many_hosts(count: int) -> bytes:
    hosts = [{"name": f"vm-{i}"} for i in range(count)]
    return stored({**HEADER, "hosts": hosts})


def a_bomb(kind: int, size: int) -> bytes:
    """Return a snapshot with `size` zeros that are stored as next to nothing."""
    zeros = np.zeros(size, dtype=np.int64).tobytes()
    return stored(HEADER, {"rtt_ends": npy(zeros, shape=(size,))})


SNAPSHOTS: dict[str, tuple[Any, str]] = {
    # 40 MB of JSON, 20 million numbers, in 40 KB
    "merged": (
        lambda: stored(
            json.dumps({**HEADER, "metadata": {"merged": []}})
            .replace("[]", "[" + "0," * 20_000_000 + "0]")
            .encode()
        ),
        "a header of 38 MiB",
    ),
    "objects": (
        lambda: stored(
            json.dumps({**HEADER, "metadata": {"merged": []}})
            .replace("[]", "[" + "{}," * 2_000_000 + "{}]")
            .encode()
        ),
        "values would take",
    ),
    "zeros": (lambda: a_bomb(0, 1 << 25), "of 256 MiB: this file may hold"),
    "shape": (
        lambda: stored(HEADER, {"rtt_ends": npy(b"", shape=(1 << 45,))}),
        "of 268435456 MiB: this file may hold",
    ),
    "overflow": (
        lambda: stored(HEADER, {"rtt_ends": npy(b"", shape=(1 << 70,))}),
        "this file may hold",
    ),
    "hosts": (lambda: many_hosts(100_000), "100000 hosts: at most 65536"),
    "deep": (
        lambda: stored({**HEADER, "metadata": json.loads("[" * 200 + "]" * 200)}),
        "more than 100 lists and objects in each other",
    ),
    "members": (
        lambda: stored(HEADER, {f"x{i}": b"" for i in range(100)}),
        "more than 32 arrays",
    ),
}


@pytest.mark.many
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_small_snapshot_that_promises_much_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Tests that refusing takes no more than 20 times the file plus 64 MB."""
    make, why = SNAPSHOTS[name]
    path = tmp_path / "a.snap"
    path.write_bytes(make())
    assert path.stat().st_size < 2_000_000
    assert why in refusal(path, "show", "FILE")


@pytest.mark.parametrize(
    "arrays",
    [
        {"rtt_ends": ints(-1)},
        {"rtt_ends": ints(2, 1)},
        {"rtt_ends": ints((1 << 63) - 1, -(1 << 63), 1)},
        {"rtt_ends": ints(2)},
        {"rtt_src": ints(-1)},
        {"rtt_src": ints(2)},
        {"rtt_sent": ints(-1)},
        {"rtt_sent": ints(0)},
        {"rtt_sent": ints(1 << 62)},
        {"rtt_sent": ints(1, 1)},
        *(
            {"rtt_seconds": npy(np.array([bad]).tobytes(), "<f8", (1,))}
            for bad in (-1e-9, np.nan, np.inf)
        ),
        {"flows_round": ints(-1)},
        {"flows_window_bytes": ints(-5)},
        {"flows_window_bytes": ints(1 << 62)},
        {"flows_ends": ints(0, 1)},
        {"rtt_src": npy(np.zeros(1, np.int8).tobytes(), "|i1", (1,))},
        {"rtt_src": npy(np.zeros(1, np.int64).tobytes(), shape=(1, 1))},
        {"rtt_src": npy(b"\0" * 8, shape=(2,))},
        {"rtt_src": npy(b"\0" * 17, shape=(2,))},
    ],
)
def test_measurements_that_no_probe_made_are_refused(arrays: dict[str, bytes]) -> None:
    """Tests signs, order, lengths and kinds of what is stored in arrays."""
    right = {
        **dict.fromkeys(("rtt_src", "flows_round", "flows_src"), ints(0)),
        **dict.fromkeys(("rtt_dst", "flows_dst"), ints(1)),
        **dict.fromkeys(("rtt_sent", "rtt_ends", "flows_ends"), ints(1)),
        "rtt_seconds": npy(np.array([1e-4]).tobytes(), "<f8", (1,)),
        "flows_window_bytes": ints(7),
    }
    assert set(right) == set(COLUMNS)
    assert parse_snapshot(stored(HEADER, right), "right").names == ("a", "b")
    with pytest.raises(UnusableError, match="wrong: intact but not") as all:
        parse_snapshot(stored(HEADER, {**right, **arrays}), "wrong")
    assert "\n" not in str(all.value)


@pytest.mark.parametrize(
    "change",
    [
        {"created": -1.0},
        {"created": float("nan")},
        {"window_s": 0},
        {"window_s": float("inf")},
        {"ramp_up": -1},
        {"ramp_up": 1.5},
        {"hosts": [{"name": "a"}, {"name": "a"}]},
        {"hosts": [{"name": "a", "slots": True}, {"name": "b"}]},
        {"hosts": [{"name": "a", "slots": 10**12}, {"name": "b"}]},
        {"hosts": [{"name": "a", "labels": {"zone": 1}}, {"name": "b"}]},
        {"metadata": {"merged": [{"pairs": 1, "created": 0.0, "digest": ""}]}},
        {"metadata": {"merged": [{"pairs": -1, "created": 0.0, "digest": ""}]}},
        {"metadata": {"seconds": "long"}},
        {"metadata": {"sent_bytes": -1}},
        {"metadata": {str(i): i for i in range(5000)}},
        {"fabric": {"root": {"name": "a\nb", "children": [{"name": "a"}]}}},
    ],
)
def test_a_header_that_no_probe_wrote_is_refused(change: dict[str, Any]) -> None:
    """Tests numbers, hosts and metadata beside the arrays."""
    with pytest.raises(UnusableError, match="wrong: intact but not") as all:
        parse_snapshot(stored({**HEADER, **change}), "wrong")
    assert "\n" not in str(all.value)


def test_an_archive_that_lies_of_itself_is_refused(tmp_path: Path) -> None:
    """Tests sizes in the directory that are not those of the members."""
    right = stored(HEADER).partition(b"\n")[2]
    at = right.index(b"PK\x01\x02")
    for field in (20, 24):  # compressed size, size
        for value in (0, 1, 0xFFFFFFFE):
            wrong = bytearray(right)
            wrong[at + field : at + field + 4] = value.to_bytes(4, "little")
            if value == 0xFFFFFFFE:
                # What is compressed says itself where it ends; some versions of
                # zipfile refuse members that overlap.
                with contextlib.suppress(UnusableError):
                    found = parse_snapshot(sealed(bytes(wrong)), "right")
                    assert found.names == ("a", "b")
                continue
            with pytest.raises(UnusableError, match="not understood"):
                parse_snapshot(sealed(bytes(wrong)), "wrong")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99):
        wrong = bytearray(right)
        wrong[at + 10 : at + 12] = method.to_bytes(2, "little")
        with pytest.raises(UnusableError, match="not understood"):
            parse_snapshot(sealed(bytes(wrong)), "wrong")


@pytest.mark.slow
def test_a_matrix_of_hosts_that_nobody_measured_is_not_made(tmp_path: Path) -> None:
    """Tests 60 000 hosts in a file of 150 KB: 27 GiB were asked for."""
    path = tmp_path / "a.snap"
    path.write_bytes(many_hosts(60_000))
    assert path.stat().st_size < 400_000
    done, took = run(path, "show", "FILE")
    assert done.returncode == 0
    assert took <= GROWTH * path.stat().st_size + 2 * FREE
    done, took = run(path, "solve", "FILE", "-o", "map.json")
    assert done.returncode == 3
    assert "a matrix of the pairs of 60000 hosts takes 27465 MiB" in done.stderr
    assert took <= GROWTH * path.stat().st_size + 2 * FREE


@pytest.mark.many
@pytest.mark.parametrize("format", ["ompi-rankfile", "hostfile", "seq", "cray"])
def test_a_map_of_many_ranks_is_refused(tmp_path: Path, format: str) -> None:
    """Tests a map of 100 bytes with a million million ranks, and one with most."""
    path = tmp_path / "map.json"
    text = '{"schema": 1, "order": ["a"], "slots": [1000000000000]}'
    path.write_text(text)
    line = refusal(path, "export", "FILE", "--format", format)
    assert "map.json: a rank map of 1000000000000 ranks" in line
    hosts = [f"vm-{i}" for i in range(10)]
    path.write_text(json.dumps({"schema": 1, "order": hosts, "slots": [100_000] * 10}))
    done, took = run(path, "export", "FILE", "--format", format, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert took <= FREE + 4 * (tmp_path / "out").stat().st_size


TEXTS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "list": (b"a[1-50000] b=1\n" * 100_000, ("probe", "--hostfile", "FILE")),
    "list of lines": (b"ab\n#b\n" * 2_500_000, ("probe", "--hostfile", "FILE")),
    "labels": (b"[" + b"{}," * 4_000_000 + b"{}]", ("import", "labels", "FILE")),
    "label lines": (b"ab x/y\n" * 1_000_000, ("import", "labels", "FILE")),
    "topograph": (
        b'{"instances": [' + b"{}," * 4_000_000 + b"{}]}",
        ("import", "topograph", "FILE"),
    ),
    "fabric": (
        b'{"name":"r","children":['
        + b",".join(b'{"name":"h%d"}' % i for i in range(400_000))
        + b"]}",
        ("import", "fabric", "FILE"),
    ),
    "slurm": (
        b"".join(b"SwitchName=s%d Nodes=n%d-[1-50000]\n" % (i, i) for i in range(1000)),
        ("import", "slurm", "FILE"),
    ),
    "matrix": (b"12," * 4_000_000 + b"\n", ("import", "matrix", "--latency", "FILE")),
    "matrix lines": (b"ab\n" * 4_000_000, ("import", "matrix", "--latency", "FILE")),
    "mpigraph": (b"ab\n" * 4_000_000, ("import", "matrix", "--mpigraph", "FILE")),
    "wide mpigraph": (
        b"Recv\t" + b"ab:0\t" * 2_000_000,
        ("import", "matrix", "--mpigraph", "FILE"),
    ),
    "map": (b'{"schema":1,"order":[' + b'"",' * 4_000_000 + b'""]}', ("show", "FILE")),
    "constraints": (
        b'{"schema":1,"order":["a"],"slots":[1],"constraints":{"a":['
        + b"{}," * 4_000_000
        + b"{}]}}",
        ("show", "FILE"),
    ),
    "profile": (
        b'{"schema": "cloudcoll-profile-1", "ranks": 1000000000000, "seconds": 1, '
        b'"library": "x", "groups": {"0": [0]}, "calls": []}',
        ("solve", "--workload", "FILE", "x"),
    ),
    "bench": (
        b'{"schema":1,"results":[' + b"{}," * 4_000_000 + b"{}]}",
        ("report", "FILE"),
    ),
}


@pytest.mark.many
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_grows_in_memory_is_refused(tmp_path: Path, name: str) -> None:
    """Tests texts of many small parts, each in the reader of its format."""
    data, words = TEXTS[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    more = ("-o", "out.snap") if words[0] == "import" else ()
    refusal(path, *words, *more)


def test_a_list_of_most_hosts_takes_no_more(tmp_path: Path) -> None:
    """Tests the 100 000 hosts that a line may name."""
    path = tmp_path / "hosts"
    path.write_text(f"vm-[1-{limits.HOSTS}]\n")
    matrix = ("import", "matrix", "--latency", "none.csv", "-o", "out.snap")
    done, took = run(path, *matrix, "--hosts", "FILE")
    assert "cannot read none.csv" in done.stderr
    assert took <= FREE


def test_a_schedule_that_no_memory_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests a workload's line for as many messages as ranks times ranks."""
    monkeypatch.setattr(steps, "MESSAGES", 1000 * 999)
    one = {"collective": "alltoall", "algorithm": "nccl_p2p", "bytes": "1G"}
    for ranks, fits in ((1000, True), (1001, False)):
        text = json.dumps({"ranks": ranks, "operations": [one]})
        if fits:
            assert read_workload(text, "w.json").ranks == ranks
        else:
            with pytest.raises(UsageError, match=r"w\.json: operation 1: .*messages"):
                read_workload(text, "w.json")


def test_what_people_have_is_still_read(tmp_path: Path) -> None:
    """Tests a mesh of 400 hosts, whose file is far from each limit."""
    snapshot = observe(racks([20] * 20), samples=20)
    saved = snapshot.save(tmp_path / "a.snap")
    path = tmp_path / "a.snap"
    assert load_snapshot(path).digest == saved.digest
    done, took = run(path, "show", "FILE")
    assert done.returncode == 0
    assert took <= GROWTH * path.stat().st_size + FREE
