r"""What is printed and reported: text of others moves no cursor and forges no line.

Each test takes a file, an answer or a program that CloudColl reads, and puts `EVIL`
in place of one text in it after the other. Whether it is then shown or refused is for
other tests: here, whatever comes out has to be plain.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.bench.result import BenchRun
from cloudcoll.cli import main
from cloudcoll.launch.formats import FORMATS
from cloudcoll.local_daemon import reachable
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.plain import plain_line, plain_text
from cloudcoll.probe.frames import MAGIC, encode

PACKAGE = Path(__file__).parents[1] / "cloudcoll"
FORGED = "cloudcoll: all is well"
EVIL = f"\x1b]0;owned\x07x\r\n{FORGED}\n\u202etxt\x9b31m\x7f\u2028\udc80$ <b>`"
"""Sets a title, begins lines, turns the writing round, colours, is no character."""
HOSTS = ("vm-1", "vm-2", "vm-3", "vm-4")

Main = Callable[..., int]


def assert_printable(text: str) -> None:
    """Check that a text is lines of printable characters."""
    assert {c for c in text if not c.isprintable()} <= {"\n", "\t"}, text


def assert_plain(text: str) -> None:
    """Check that a text is lines of printable characters, and that none is forged."""
    assert_printable(text)
    lines = map(str.lstrip, text.split("\n"))
    assert not any(line.startswith(FORGED) for line in lines), text


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Main:
    """Run a command, whose output has to be plain; return its exit code."""

    def called(*argv: object) -> int:
        code = main([str(word) for word in argv])
        out, err = capfd.readouterr()
        assert_plain(err)
        # In files for launchers, that names are names is for their readers to check.
        (assert_printable if argv[0] == "export" else assert_plain)(out)
        return code

    return called


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def put(value: Any, old: str, new: str) -> Any:
    """Return a JSON value with another text, wherever it stands."""
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, dict):
        return {put(k, old, new): put(v, old, new) for k, v in value.items()}
    if isinstance(value, list):
        return [put(item, old, new) for item in value]
    return value


def spoilt(value: Any) -> Iterator[Any]:
    """Yield a JSON value with `EVIL` for each of its texts in turn."""
    for text in dict.fromkeys(texts(value)):
        yield put(value, text, EVIL)


def snapshot_bytes(header: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Return a snapshot file, whole and with a right checksum, of any header."""
    data = io.BytesIO()
    told = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(data, **{**arrays, "header": told})
    payload = data.getvalue()
    digest = hashlib.sha256(payload).hexdigest()
    return f"cloudcoll-snapshot 1 {digest} {len(payload)}\n".encode() + payload


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A snapshot of two racks, with all that may be said of it."""
    fabric = synth.racks((3, 2), seed=4)
    seen = synth.observe(fabric, rounds=3)
    path = tmp_path / "network.snap"
    seen.with_fabric(fabric).save(path)
    return path


def split(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and arrays of a snapshot file."""
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def test_snapshots(network: Path, tmp_path: Path, call: Main) -> None:
    """Tests all that reads snapshots, with each text of one spoilt in turn."""
    header, arrays = split(network)
    header["failed"] = {"vm-1": "no answer"}
    header["fabric"]["warnings"] = ["much noise"]
    for key in ("transport", "mode", "format", "source", "origin", "cloudcoll"):
        header["metadata"][key] = f"some {key}"
    other, hosts = tmp_path / "other.snap", tmp_path / "hosts"
    other.write_bytes(snapshot_bytes({**header, "created": 1e9}, arrays))
    hosts.write_text(
        "".join(f"{name} slots=1\n" for name in load_snapshot(other).names)
    )
    bad, merged = tmp_path / "bad.snap", tmp_path / "merged.snap"
    shown = 0
    imported = put(header, "some origin", "imported")
    for value in (header, imported, *spoilt(header), *spoilt(imported)):
        bad.write_bytes(snapshot_bytes(value, arrays))
        shown += call("show", bad, "--heatmap") == 0
        call("show", bad, "--json")
        call("solve", bad, "--algorithm", "ring")
        call("export", bad, "--format", "topology")
        call("merge", other, bad, "-o", merged)
        run = ("run", "--snapshot", bad, "--dry-run", "mpirun", "--hostfile", hosts)
        call(*run, "app")
    assert shown > 10


def test_maps(network: Path, tmp_path: Path, call: Main) -> None:
    """Tests all that reads rank maps, with each text of one spoilt in turn."""
    path, hosts = tmp_path / "map.json", tmp_path / "hosts"
    names = load_snapshot(network).names
    hosts.write_text("".join(f"{name} slots=1\n" for name in names))
    assert call("solve", network, "--algorithm", "ring", "-o", path) == 0
    told = json.loads(path.read_text())
    told |= {"assumption": "as assumed", "kept": "as kept", "dropped": ["vm-9"]}
    told["addresses"] = {names[0]: "10.0.0.1"}
    run = ("run", "--map", path, "--dry-run", "mpirun", "--hostfile", hosts, "app")
    shown = 0
    for value in (told, *spoilt(told)):
        path.write_text(json.dumps(value))
        shown += call("show", path) == 0
        call("show", path, "--json")
        call(*run)
        for form in FORMATS:
            call("export", path, "--format", form)
    assert shown > 5  # a name that no host can have is refused


def test_lists_of_hosts(tmp_path: Path, call: Main) -> None:
    """Tests what is said of lists with odd names, and of files with odd names."""
    path = tmp_path / "hosts"
    for line in EVIL.splitlines():
        path.write_bytes(f"vm-1\n{line}\n".encode("utf-8", "surrogateescape"))
        call("probe", "--hostfile", path, "--dry-run")
        call("run", "--dry-run", "mpirun", "--hostfile", path, "app")
    odd = tmp_path / EVIL.replace("/", "")
    for argv in (["show"], ["solve"], ["report"], ["export", "--format", "json"]):
        assert call(*argv, odd) != 0
    assert call("show", f"--{EVIL}") == 2
    assert call(EVIL) == 2
    assert call("export", "--format", EVIL, path) == 2
    assert call("probe", "-w", EVIL, "--dry-run") == 2


def bench_result() -> dict[str, Any]:
    """Return what a bench of two orders leaves."""
    rows = tuple(
        {
            "op": "bcast",
            "bytes": 1024,
            "order": order,
            "repeat": repeat,
            "time_us": time,
            "wrong": 0,
        }
        for order, time in (("given", 20.0), ("mine", 15.0), ("cloudcoll", 10.0))
        for repeat in range(6)
    )
    metadata = {
        "collective": "bcast",
        "algorithm": "chain",
        "library": "Open MPI v5.0.11",
        "ranks": 4,
        "hosts": list(HOSTS),
        "args": ["mpirun", "app"],
        "choices": ["as chosen"],
        "left_out": {"sorted": "too long"},
        "failure": "it ended",
        "snapshot": "none",
        "version": "1.0",
    }
    orders = {"given": HOSTS, "mine": HOSTS, "cloudcoll": HOSTS[::-1]}
    predicted = {"1024": dict.fromkeys(orders, 1e-5)}
    run = BenchRun(metadata, orders, {"again": "mine"}, rows, predicted)
    told: dict[str, Any] = json.loads(run.to_json())
    return told


@pytest.mark.slow
def test_reports(tmp_path: Path, call: Main) -> None:
    """Tests reports as text, Markdown and pages, with each text spoilt in turn."""
    path, told = tmp_path / "result.json", bench_result()
    written = 0
    for value in (told, *spoilt(told)):
        path.write_text(json.dumps(value))
        call("report", path)
        for form in ("txt", "md", "html"):
            output = tmp_path / f"report.{form}"
            output.unlink(missing_ok=True)
            written += call("report", path, "-o", output) == 0
            if output.exists():
                assert_plain(output.read_text("utf-8"))
                assert form != "html" or "<b>" not in output.read_text("utf-8")
    assert written > 30


def test_fences_of_markdown(tmp_path: Path, call: Main) -> None:
    """Tests that no line of someone else's ends a block of code."""
    path, output = tmp_path / "result.json", tmp_path / "report.md"
    told = put(bench_result(), "app", "```")
    path.write_text(json.dumps(told))
    assert call("report", path, "-o", output) == 0
    assert "\n````\n" in output.read_text()


def test_imports(tmp_path: Path, call: Main) -> None:
    """Tests trees of others, with each text spoilt in turn."""
    leaves = [{"name": name, "uplink_bytes_per_s": 1e8} for name in HOSTS]
    racks = [{"name": f"r{n}", "children": leaves[n : n + 2]} for n in (0, 2)]
    tree = {"name": "core", "children": racks}
    path, output = tmp_path / "tree.json", tmp_path / "tree.snap"
    for value in (tree, *spoilt(tree)):
        path.write_text(json.dumps(value))
        call("import", "fabric", path, "-o", output)
    labels = tmp_path / "labels"
    for line in EVIL.splitlines():
        text = f"vm-1 /a/{line}\nvm-2 /a/b\n{line} /a/b\n"
        labels.write_bytes(text.encode("utf-8", "surrogateescape"))
        call("import", "labels", labels, "-o", output)


@pytest.fixture
def imposter(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Return what answers every question at a socket with a body of anybody's."""
    path = tmp_path / "sock"
    body = [b""]
    with socket.socket(socket.AF_UNIX) as listener:
        with reachable(path) as short:
            listener.bind(short)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    conn, _ = listener.accept()
                except OSError:
                    return
                with conn:
                    conn.recv(1024)
                    conn.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body[0])

        thread = threading.Thread(target=serve)
        thread.start()

        def answering(told: bytes) -> Path:
            body[0] = told
            return path

        yield answering
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_daemon(imposter: Callable[[bytes], Path], call: Main) -> None:
    """Tests answers to ``daemon status``, with each text spoilt in turn."""
    known = {
        "hosts": [{"name": "vm-1", "failed": "no answer"}],
        "phase": "steady",
        "fresh": True,
        "maps": [{"order": ["vm-1", "vm-2"]}],
        "trouble": "a full disk",
    }
    shown = 0
    for value in (known, *spoilt(known)):
        path = imposter(json.dumps(value).encode())
        shown += call("daemon", "status", "--socket", path) == 0
        call("daemon", "status", "--socket", path, "--json")
    assert shown > 3


BUSY_HOST = """#!{python}
import sys
sys.stdout.buffer.write({hello!r})
sys.stdout.flush()
arrived = b""
while b'"type":"prepare"' not in arrived:
    arrived += sys.stdin.buffer.raw.read(65536) or sys.exit()
sys.stdout.buffer.write({busy!r})
sys.stdout.flush()
sys.stdin.buffer.read()
"""
"""A program in ssh's place that says it is measuring for somebody else."""


def probe_by(rsh: Path, program: str, call: Main) -> int:
    """Probe two hosts through a program; return the exit code."""
    rsh.write_text(program)
    rsh.chmod(0o755)
    return call("probe", "-w", "vm-[1-2]", "--quick", "--rsh", rsh)


def test_last_words_of_a_host(tmp_path: Path, call: Main) -> None:
    """Tests what a host says on stderr that can't be probed."""
    words, last = tmp_path / "words", EVIL.replace("\u2028", "").splitlines()
    words.write_bytes("\n".join([EVIL, *last]).encode("utf-8", "surrogateescape"))
    program = f"#!/bin/sh\ncat {words} >&2; exit 1\n"
    assert probe_by(tmp_path / "rsh", program, call) == 3


def test_a_host_that_is_busy(tmp_path: Path, call: Main) -> None:
    """Tests since when a host says that it measures for others."""
    facts = {"python": EVIL[:32], "hostname": EVIL, "boot_id": EVIL, "cpus": 1}
    program = BUSY_HOST.format(
        python=sys.executable,
        hello=MAGIC + encode("hello", pid=1, load=0.0, **facts),
        busy=encode("busy", pid=1, since=EVIL[:64]),
    )
    assert probe_by(tmp_path / "rsh", program, call) == 3


def test_a_launcher(
    tmp_path: Path, call: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests what a program on the path says of its version."""
    said = tmp_path / "said"
    said.write_bytes(b"mpirun (Open MPI) " + EVIL.encode("utf-8", "surrogateescape"))
    for name in ("mpirun", "mpiexec", "srun"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat {said}; cat {said} >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "hosts").write_text("vm-1\nvm-2\n")
    call("doctor")
    call("run", "--dry-run", "mpirun", "--hostfile", tmp_path / "hosts", "app")


@given(st.text())
def test_lines_are_plain(text: str) -> None:
    """Tests that a line is printable, and that what is printable stays as it is."""
    line = plain_line(text)
    assert line.replace("\t", "").isprintable()
    assert (line == text) == text.replace("\t", "").isprintable()
    assert plain_text(text).split("\n") == [*map(plain_line, text.split("\n"))]


def test_what_is_escaped() -> None:
    """Tests how it looks."""
    assert plain_line("a\tb\\ é 你 ☃") == "a\tb\\ é 你 ☃"
    assert plain_line("\x1b[0m\r\n\x7f\x9b") == r"\x1b[0m\r\n\x7f\x9b"
    assert plain_line("\u202e\u2066\u200b\udcff") == r"\u202e\u2066\u200b\udcff"
    assert plain_text("a\n\x1bb\n") == "a\n\\x1bb\n"


ALLOWED = {
    "cli/output.py": "it is where results and words leave",
    "plain.py": "it is where words leave, of programs other than the command line",
    "cli/__init__.py": "a constant, where nothing may be imported any more",
    "daemon/verdict.py": "a pipe to the daemon",
    "lab/holder.py": "a pipe to whoever starts a lab",
    "lab/neighbour.py": "a port's number, to the process that began it",
}
"""Modules that write to standard streams, and why."""


PRINTS = {"print", "echo", "secho", "echo_via_pager", "print_exc"}
WRITES = {"write", "writelines"}


def writes(path: Path) -> Iterator[str]:
    """Yield what in a module writes to standard streams by itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            to_us = called.startswith(("sys.stdout.", "sys.stderr.", "sys.__std"))
            if called.rpartition(".")[2] in PRINTS | ((to_us and WRITES) or set()):
                yield called


def test_all_is_printed_at_one_place() -> None:
    """Tests that no module prints but those through which text is made plain."""
    found = {
        str(path.relative_to(PACKAGE)): calls
        for path in PACKAGE.rglob("*.py")
        if "_probes" not in path.parts and (calls := list(writes(path)))
    }
    others = {name: calls for name, calls in found.items() if name not in ALLOWED}
    assert others == {}, "print with cloudcoll.cli.output, or say with cloudcoll.plain"
    assert found.keys() == ALLOWED.keys()
