"""Files that promise more than they hold, and what reading one takes."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudcoll.files.limits import FREE, GROWTH
from cloudcoll.measured.snapshot import MAGIC, SCHEMA

HEADER: dict[str, Any] = {
    "hosts": [{"name": "a"}, {"name": "b"}],
    "fabric": None,
    "failed": {},
    "created": 1.5,
    "metadata": {},
    "window_s": 0.025,
    "ramp_up": 2,
}
COLUMNS = {
    **{f"rtt_{name}": "<i8" for name in ("src", "dst", "sent", "ends")},
    "rtt_seconds": "<f8",
    **{f"flows_{name}": "<i8" for name in ("round", "src", "dst", "ends")},
    "flows_window_bytes": "<i8",
}

MEASURED = """
import resource, sys
from cloudcoll.cli import main
from cloudcoll.errors import CloudcollError
import numpy, scipy.optimize, zipfile
from cloudcoll import importers, infer, rankmap, profile
from cloudcoll.bench import result
from cloudcoll.cli import maps, show, snapshots, solve
from cloudcoll.launch import formats
from cloudcoll.measured import snapshot
from cloudcoll.report import snapshot
from cloudcoll.work import measure, solve

def told(key):
    lines = open("/proc/self/status").read().split("\\n")
    return next(int(line.split()[1]) for line in lines if line.startswith(key))

open("/proc/self/clear_refs", "w").write("5")  # VmHWM begins anew
before = told("VmRSS:")
most = (told("VmSize:") << 10) + (4 << 30)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    code = main(sys.argv[1:])
finally:
    print("took", told("VmHWM:") - before, file=sys.stderr)
sys.exit(code)
"""
"""A command in a process whose libraries are loaded; more than 4 GiB it can't get."""


def npy(values: bytes, kind: str = "<i8", shape: tuple[int, ...] = (0,)) -> bytes:
    """Return an array as a file has it, with whatever shape it claims."""
    about = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}"
    head = about.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + values


def stored(header: object, arrays: Mapping[str, bytes] | None = None) -> bytes:
    """Return a snapshot with a right checksum of this header and these members."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    members = {
        "header": npy(text, "|u1", (len(text),)),
        **{name: npy(b"", kind) for name, kind in COLUMNS.items()},
        **(arrays or {}),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return sealed(buffer.getvalue())


def sealed(payload: bytes) -> bytes:
    """Return a snapshot's file with a first line that fits the payload."""
    digest = hashlib.sha256(payload).hexdigest()
    return f"{MAGIC} {SCHEMA} {digest} {len(payload)}\n".encode() + payload


def refusal(path: Path, *words: str) -> str:
    """Return the one line with which a command refuses a file.

    It ends without a traceback and takes no more than 20 times the file plus 64 MB.
    """
    done, took = run(path, *words)
    assert done.returncode in (1, 2, 3), done.stderr
    (line,) = done.stderr.splitlines()[:-1]
    assert took <= GROWTH * path.stat().st_size + FREE, (took >> 20, line)
    return line


def run(path: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Return how a command of a file ended, and the bytes that it took."""
    argv = [word.replace("FILE", str(path)) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *argv],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=path.parent,
    )
    last = done.stderr.splitlines()[-1].split()
    assert last[0] == "took", done.stderr
    return done, int(last[1]) << 10
