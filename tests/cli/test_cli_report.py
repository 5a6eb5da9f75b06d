"""``cloudcoll report`` on small results."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.bench.result import BenchRun
from cloudcoll.cli import main
from cloudcoll.measured import synth

HOSTS = ("vm-1", "vm-2", "vm-3", "vm-4")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two racks, saved."""
    fabric = synth.racks((2, 2), seed=3)
    path = tmp_path / "network.snap"
    synth.observe(fabric, rounds=3).with_fabric(fabric).save(path)
    return path


def save_result(folder: Path, digest: str = "", file: str = "") -> Path:
    rows = tuple(
        {
            "op": "bcast",
            "bytes": 1024,
            "order": order,
            "repeat": repeat,
            "time_us": time,
            "wrong": 0,
        }
        for order, time in (("given", 20.0), ("cloudcoll", 10.0))
        for repeat in range(6)
    )
    metadata = {
        "collective": "bcast",
        "algorithm": "chain",
        "library": "Open MPI v5.0.11",
        "ranks": 4,
        "hosts": list(HOSTS),
        "snapshot": digest,
        "snapshot_file": file,
    }
    orders = {"given": HOSTS, "cloudcoll": HOSTS[::-1]}
    path = folder / "result.json"
    BenchRun(metadata, orders, {}, rows).save(path)
    return path


def bench_of(folder: Path, snapshot: Path) -> Path:
    """Save a result that was solved from a snapshot."""
    digest = snapshot.read_bytes().split()[2].decode()
    return save_result(folder, digest, str(snapshot))


def test_text_goes_to_stdout(
    tmp_path: Path, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the summary, and that the bench's own snapshot is found."""
    assert main(["report", str(bench_of(tmp_path, snapshot))]) == 0
    out, err = capsys.readouterr()
    assert "2.00x faster" in out
    assert "group rack-1: 2 hosts" in out
    assert err == ""


@pytest.mark.parametrize(
    ("name", "start"), [("x.md", "# CloudColl"), ("x.txt", "CloudColl")]
)
def test_the_ending_says_what_is_written(tmp_path: Path, name: str, start: str) -> None:
    """Tests that nothing but the file is written."""
    output = tmp_path / name
    assert main(["report", str(save_result(tmp_path)), "-o", str(output)]) == 0
    assert output.read_text().startswith(start)


def test_a_page_is_written(tmp_path: Path, snapshot: Path) -> None:
    """Tests HTML from a file of the package's own data."""
    output = tmp_path / "x.html"
    assert main(["report", str(bench_of(tmp_path, snapshot)), "-o", str(output)]) == 0
    assert output.read_text().count("<svg") == 7


def test_a_snapshot_that_is_gone_is_no_failure(
    tmp_path: Path, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the rest is reported, and one line says what is not."""
    result = bench_of(tmp_path, snapshot)
    snapshot.unlink()
    assert main(["report", str(result)]) == 0
    out, err = capsys.readouterr()
    assert "2.00x faster" in out
    assert "the network is left out" in err


def test_another_snapshot_is_refused(
    tmp_path: Path, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a network is never shown beside orders not solved from it."""
    result = str(save_result(tmp_path, "0123"))
    assert main(["report", result, "--snapshot", str(snapshot)]) == 2
    assert "the bench used 0123" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 2, "make one with 'cloudcoll bench"),
        (b"", 3, "run the bench again"),
        (b'{"schema": 99}', 3, "not a bench result of schema"),
        (b'{"schema": 1, "order": []}', 3, "not what 'cloudcoll bench -o' writes"),
        (b"\xff\xfe", 3, "cannot read"),
    ],
)
def test_what_is_no_result_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    code: int,
    message: str,
) -> None:
    """Tests a file that is missing, empty, of another schema, or no text."""
    path = tmp_path / "r.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["report", str(path)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_what_does_not_fit_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a half-written result and one of other hosts leave the rest."""
    good = save_result(tmp_path)
    half, other = tmp_path / "half.json", tmp_path / "other.json"
    half.write_text(good.read_text()[:-9])
    other.write_text(good.read_text().replace("vm-4", "vm-5"))
    assert main(["report", *map(str, (half, good, other))]) == 1
    out, err = capsys.readouterr()
    assert "2.00x faster" in out
    first, second, _ = err.splitlines()
    assert f"left out: {half}: " in first
    assert f"left out: {other} and the first result differ in their hosts" in second


def test_no_result_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that of several broken ones each is named, and nothing is printed."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{")
    assert main(["report", *(str(tmp_path / n) for n in ("a.json", "b.json"))]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.count("run the bench again") for line in err.splitlines()] == [1, 1]


def test_an_unknown_ending_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the known ones are named."""
    assert main(["report", str(save_result(tmp_path)), "-o", "x.pdf"]) == 2
    assert ".html, .md, .txt" in capsys.readouterr().err
