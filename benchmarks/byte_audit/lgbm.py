"""Call collectives of LightGBM and count what each call sends.

    RANK=R WORLD_SIZE=N MACHINES=HOST,... PORT=P python lgbm.py CASES

LightGBM offers its collectives to nobody, but its library exports them: static
functions of ``class Network`` (``include/LightGBM/network.h``, 4.x), which take
a plain function to reduce with.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightgbm
from counting import Call, Job

PORT = int(os.environ["PORT"])
MINUTES = 1
"""To wait for the others."""
WIDTH = 4096
"""Bytes of a value that is gathered, as JSON."""

LIBRARY = ctypes.CDLL(str(Path(lightgbm.__file__).with_name("lib") / "lib_lightgbm.so"))
REDUCE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int
)
REDUCER = REDUCE(lambda source, target, type_size, size: None)
"""Only bytes are counted here: what they add up to does not matter."""
ALLGATHER = "_ZN8LightGBM7Network9AllgatherEPciS1_"
ALLREDUCE = "_ZN8LightGBM7Network9AllreduceEPciiS1_RKPFvPKcS1_iiE"
REDUCE_SCATTER = "_ZN8LightGBM7Network13ReduceScatterEPciiPKiS3_S1_iRKPFvPKcS1_iiE"


def ranks() -> int:
    return int(os.environ["WORLD_SIZE"])


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    mine = json.dumps(value).encode().ljust(WIDTH)
    everything = ctypes.create_string_buffer(WIDTH * ranks())
    LIBRARY[ALLGATHER](mine, WIDTH, everything)
    text = everything.raw
    return [json.loads(text[at : at + WIDTH]) for at in range(0, len(text), WIDTH)]


def prepare(case: dict[str, Any]) -> nullcontext[Call]:
    """Give the call of a case."""
    size, count = case["size"], ranks()
    block = size // count
    Blocks = ctypes.c_int * count
    start, length = Blocks(*range(0, size, block)), Blocks(*[block] * count)
    source = ctypes.create_string_buffer(size)
    target = ctypes.create_string_buffer(size)
    reducer = ctypes.byref(REDUCER)
    calls: dict[str, Call] = {
        "allgather": lambda: LIBRARY[ALLGATHER](source, block, target),
        "allreduce": lambda: LIBRARY[ALLREDUCE](source, size, 8, target, reducer),
        "reduce_scatter": lambda: LIBRARY[REDUCE_SCATTER](
            source, size, 8, start, length, target, block, reducer
        ),
    }
    return nullcontext(calls[case["call"]])


def main() -> None:
    """Join the others and run the cases of the command line."""
    hosts = os.environ["MACHINES"].split(",")
    machines = ",".join(f"{socket.gethostbyname(host)}:{PORT}" for host in hosts)
    if LIBRARY.LGBM_NetworkInit(machines.encode(), PORT, MINUTES, ranks()):
        LIBRARY.LGBM_GetLastError.restype = ctypes.c_char_p
        raise RuntimeError(LIBRARY.LGBM_GetLastError().decode())
    job = Job(int(os.environ["RANK"]), gather, lambda: gather(0), prepare)
    job.run(f"LightGBM {lightgbm.__version__}")
    LIBRARY.LGBM_NetworkFree()


if __name__ == "__main__":
    main()
