"""The shim for NCCL on the real library, which needs no GPU to be loaded.

Run where its package is installed, or CLOUDCOLL_NCCL names a folder with
``libnccl.so.2`` and ``nccl.h``; skipped elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs

from cloudcoll.launch import choose_inbox, shim

DEADLINE_S = 60
HEADER = Path(shim.__file__).parent / "nccl" / "nccl.h"
LATER = {
    "GroupSimulateEnd": 22200,
    "CommInitRankScalable": 22300,
    "CommShrink": 22700,
    "CommWindowRegister": 22700,
    **dict.fromkeys(("CommRevoke", "CommSuspend", "CommResume", "CommMemStats"), 22900),
}
"""What came after 2.18."""


def found() -> list[Path]:
    """Return the folders of the library and of its header, none if it is not here."""
    if named := os.environ.get("CLOUDCOLL_NCCL"):
        return [Path(named), Path(named)]
    spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec(
        "nvidia.nccl"
    )
    places = spec.submodule_search_locations if spec else None
    return [Path(places[0]) / part for part in ("lib", "include")] if places else []


FOUND = found()
pytestmark = needs.NCCL.unless(FOUND)

# Each call in turn with its code; there is no device, so none makes anything. A
# split of no communicator ends NCCL 2.24 and later by a signal.
PROGRAM = """
import ctypes, json, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
nccl = ctypes.CDLL(None)
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint),
                ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
                ("rest", ctypes.c_int * 60)]
version, state, comm, unique = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), Id()
comms, none = (ctypes.c_void_p * 2)(), ctypes.c_void_p()
said = []
def call(name, *arguments):
    if hasattr(library, "nccl" + name):
        said.append((name, getattr(nccl, "nccl" + name)(*arguments)))
library = ctypes.CDLL(sys.argv[1])
call("GetVersion", ctypes.byref(version))
call("CommInitRank", ctypes.byref(comm), 2, unique, 0)
for magic in (0xCAFEBEEF, 1):
    for blocking in (1, 0, 7):
        config = Config(24, magic, 21700, blocking)
        at = ctypes.byref(comm), 1, unique, 0, ctypes.byref(config)
        call("CommInitRankConfig", *at)
call("CommInitRankScalable", ctypes.byref(comm), 2, 0, 1, ctypes.byref(unique), none)
call("CommInitAll", comms, 2, none)
call("GroupStart")
call("CommInitRank", ctypes.byref(comm), 2, unique, 1)
call("GroupEnd")
call("GroupEnd")
call("AllReduce", none, none, ctypes.c_size_t(1), 7, 0, none, none)
call("Reduce", none, none, ctypes.c_size_t(1), 7, 0, 0, none, none)
call("Broadcast", none, none, ctypes.c_size_t(1), 7, 0, none, none)
call("Bcast", none, ctypes.c_size_t(1), 7, 0, none, none)
call("CommGetAsyncError", none, ctypes.byref(state))
call("CommWindowRegister", none, none, ctypes.c_size_t(0), ctypes.byref(comm), 0)
for name in ("Finalize", "Destroy", "Abort", "Resume"):
    call("Comm" + name, none)
for name in ("Revoke", "Suspend"):
    call("Comm" + name, none, 0)
ours, theirs = (ctypes.cast(lib.ncclAllReduce, ctypes.c_void_p).value
                for lib in (nccl, library))
print(json.dumps({"version": version.value, "said": said, "made": bool(comm.value),
                  "shim": ours != theirs}))
"""


def ran(**env: str) -> tuple[dict[str, Any], str]:
    """Call everything in a process of its own; return what came of it, and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, FOUND[0] / "libnccl.so.2"],
        env={"CUDA_VISIBLE_DEVICES": "", **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_errors_are_the_same() -> None:
    """Tests that what fails without a GPU fails alike under the shim, unasked."""
    plain, said = ran()
    inbox = choose_inbox()
    preloaded = ran(
        LD_PRELOAD=str(shim.NCCL),
        CLOUDCOLL_SHIM_ORDER="here,there",
        CLOUDCOLL_HOST="here",
        CLOUDCOLL_SHIM_ROLL=f"- {inbox.port} 127.0.0.1",
    )
    assert preloaded == ({**plain, "shim": True}, said)
    assert plain["version"] >= 21800
    assert not plain["shim"]


SHAPES = (
    (r"\*|comm_t|Comm_t\b|stream_t|Stream_t|Window_t", "pointer"),
    (r"unique_id|UniqueId", "id"),
    (r"size_t", "size"),
    (r"", "int"),
)
"""How a parameter travels, by the first pattern that its type has."""


def shapes(parameters: str) -> list[str]:
    """Return how each parameter travels, void being none."""
    each = [p for p in parameters.split(",") if p.strip() not in ("", "void")]
    return [next(s for pattern, s in SHAPES if re.search(pattern, p)) for p in each]


def test_every_function_has_its_parameters() -> None:
    """Tests the shim's declarations against the library's own header."""
    version = ran()[0]["version"]
    declared = re.findall(r"X\((\w+), \(((?:[^()])*)\)\)", HEADER.read_text())
    header = (FOUND[1] / "nccl.h").read_text()
    real = dict(re.findall(r"ncclResult_t\s+nccl(\w+)\(([^()]*)\);", header))
    ours = {name: shapes(parameters) for name, parameters in declared}
    assert len(ours) == 23
    missing = {name for name in ours if name not in real}
    assert missing == {name for name, since in LATER.items() if since > version}
    for name in ours.keys() - missing:
        assert (name, shapes(real[name])) == (name, ours[name])


def test_the_numbers_of_the_header() -> None:
    """Tests those that the shim repeats."""
    header = (FOUND[1] / "nccl.h").read_text()
    for pattern in (
        r"ncclSystemError\s*=\s*2\b",
        r"ncclInvalidUsage\s*=\s*5\b",
        r"ncclInProgress\s*=\s*7\b",
        r"define NCCL_SPLIT_NOCOLOR -1\b",
        r"ncclMax\s*=\s*2,\s+ncclMin\s*=\s*3,\s+(/\*.*\n)?\s*ncclAvg\s*=\s*4",
        r"ncclNumOps\s*=\s*5\b",
        r"ncclUint64\s*=\s*5,\s+ncclFloat16\s*=\s*6",
        r"define NCCL_UNIQUE_ID_BYTES 128\b",
    ):
        assert re.search(pattern, header), pattern
    if "NCCL_SHRINK_ABORT" in header:
        assert re.search(r"NCCL_SHRINK_ABORT 0x01\b", header)
    if "ncclStatGpuMemTotal" in header:
        assert re.search(r"ncclStatGpuMemTotal\s*=\s*3\b", header)
