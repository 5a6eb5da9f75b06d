from __future__ import annotations

import json
import subprocess
import sys

from needs import GLIBC

TAKE = """
import json
from pathlib import Path
from cloudcoll.daemon.verdict import give_back, map_large

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

map_large()
bytearray(8 << 20)  # freed: from now on glibc by itself takes such from the heap
blocks = [bytearray(1 << 20) for _ in range(64)]
kept = [bytearray(1 << 10) for _ in range(64)]
full = resident()
del blocks
large = resident()
blocks = [bytearray(1 << 14) for _ in range(4096)]
small = resident()
del blocks[:-1]
held = resident()
give_back()
print(json.dumps([full - large, small - held, held - resident()]))
"""


@GLIBC.mark
def test_memory_goes_back() -> None:
    """Tests that large blocks go back when freed, and small ones when asked."""
    done = subprocess.run(
        [sys.executable, "-c", TAKE], capture_output=True, check=True, timeout=120
    )
    large, kept, returned = json.loads(done.stdout)
    assert large > 60 << 20
    assert kept < 4 << 20
    assert returned > 56 << 20
