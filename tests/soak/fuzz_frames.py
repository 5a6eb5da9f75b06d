"""Hostile frames against both ends of a probe: each is right or refused.

A frame is a right one with bytes flipped, cut, or doubled, with a wrong length, with
fields of another kind, nested deeply, or as many small objects as a frame can
hold; or it is junk. The driver's side decodes it and takes it for a report, the
agent's side reads it and what it says. Prints how many each side took and
refused, the memory that the largest frames need while they are looked at and that
all the others then add, and the longest frame's time; ends in 1 if anything but a
refusal came of one, the largest need more than a reader may, or the others add 8 MB.
The usual million takes a minute or two:

    python tests/soak/fuzz_frames.py
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # probes/ is not installed

from cloudcoll.hosts import Host
from cloudcoll.probe.frames import FRAME_LIMIT, MAGIC, Decoder, FrameError
from cloudcoll.probe.plan import plan_probes
from cloudcoll.probe.results import Results
from probes import agent

PLAN = plan_probes(tuple(Host(f"vm-{i}") for i in range(4)), mode="standard")
LARGEST_MB = 20 * FRAME_LIMIT / 2**20 + 64
"""What SECURITY.md allows a reader: 20 times what it reads, and 64 MB."""
GROWTH_MB = 8
"""What the allocator may scatter; a leak of 16 bytes a frame would be more."""
BOMBS = 2000
"""One in so many frames is as long as a frame may be."""

TO_DRIVER: list[dict[str, Any]] = [
    {
        "type": "hello",
        "python": "3.11.2",
        "hostname": "vm-1",
        "pid": 7,
        "boot_id": "",
        "cpus": 2,
        "load": 0.5,
    },
    {"type": "busy", "pid": 7, "since": "2026-01-01 00:00:00"},
    {"type": "ports", "udp": 4000, "tcp": 4001, "unlocked": ""},
    {"type": "ready", "unknown": [1, 2], "next": "10.0.0.3"},
    {"type": "rtt", "slot": 0, "peer": 1, "sent": 3, "ns": [1000, 2000]},
    {"type": "flow", "slot": 3, "peer": 1, "windows": [5, 6, 7]},
    {"type": "starved", "slot": 0, "peer": 1},
    {"type": "trouble", "slot": 0, "peer": 1, "text": "no route"},
    {
        "type": "done",
        "steal_s": 0.0,
        "cpu_s": 1,
        "voluntary": 3,
        "involuntary": 4,
        "sent": 5,
    },
]
TO_AGENT: list[dict[str, Any]] = [
    {
        **PLAN.parameters(),
        "type": "prepare",
        "position": 1,
        "key": "00" * 16,
        "address": "vm-1",
        "life_s": 30.0,
        "force": False,
    },
    {"type": "go", "after_s": 0.5},
    {
        "type": "rounds",
        "kind": "rtt",
        "after_s": 0.5,
        "first": 4,
        "meetings": [[0, 2, True, 0], [1, 3, False, 9]],
    },
]
TASK = agent.read_task(json.loads(json.dumps(TO_AGENT[0])))
READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "prepare": agent.read_task,
    "go": agent.begin_of,
    "rounds": lambda frame: (agent.begin_of(frame), agent.read_rounds(frame, TASK)),
}


def value(rng: random.Random) -> Any:
    """Return something that a field may not be."""
    return rng.choice(
        [
            *(None, True, -1, 0, 1.5, 1e308, float("nan"), float("inf"), ""),
            *(1 << 31, 1 << 64, 10**400, "x" * rng.randrange(400), "\ud800", "\0"),
            *([], {}, [[]], [None] * 5, {"type": "rtt"}, [-1, True, 1e9]),
            rng.randrange(1 << 40),
        ]
    )


def hostile(rng: random.Random, frame: dict[str, Any]) -> bytes:
    """Return a frame's bytes, most of the time with something wrong."""
    kind = rng.randrange(6)
    if kind == 0:  # one field, or two, of another kind
        names = rng.sample(sorted(frame), k=min(2, len(frame)))
        frame = {**frame, **{name: value(rng) for name in names[: rng.choice((1, 2))]}}
    elif kind == 1:
        frame = {k: v for k, v in frame.items() if rng.random() < 0.8}
    body = bytearray(json.dumps(frame).encode())
    if kind == 2:
        for _ in range(rng.randrange(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    elif kind == 3:
        at = rng.randrange(len(body))
        body[at:at] = body[at : at + rng.randrange(20)] * rng.randrange(1, 4)
    elif kind == 4:
        body = bytearray(rng.randbytes(rng.randrange(300)))
    if rng.randrange(BOMBS) == 0:
        body = bytearray(bomb(rng))
    size = len(body)
    if rng.randrange(10) == 0:
        size = rng.choice([0, size + 1, FRAME_LIMIT, FRAME_LIMIT + 1, (1 << 32) - 1])
    cut = rng.randrange(size + 1) if rng.randrange(20) == 0 else size
    return struct.pack("!I", size) + bytes(body[:cut])


def bomb(rng: random.Random) -> bytes:
    """Return JSON that is small on the wire and large in memory, or deep."""
    return rng.choice([flat(rng.choice(SMALL)), deep(rng.choice(OPENED))])


SMALL = (b"{},", b"[],", b'"",', b"0.1,", b"1234567,")
OPENED = (b"[", b'{"a":')


def flat(piece: bytes) -> bytes:
    """Return a list of as many small objects as a frame can hold."""
    return b"[" + piece * ((FRAME_LIMIT - 8) // len(piece)) + b"0]"


def deep(opened: bytes) -> bytes:
    """Return what is nested as deeply as a frame allows."""
    return opened * (FRAME_LIMIT // len(opened))


def peak_mb() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def drive(data: bytes) -> bool:
    """Return whether the driver takes anything of these bytes."""
    results = Results(PLAN)
    try:
        frames = Decoder().feed(MAGIC + data)
        for frame in frames:
            if frame["type"] in ("rtt", "flow", "starved", "trouble"):
                results.add(0, frame)
    except FrameError:
        return False
    return bool(frames)


def obey(data: bytes) -> bool:
    """Return whether an agent takes anything of these bytes."""
    try:
        frame = agent.read_frame(io.BytesIO(data))
        if frame is None or frame["type"] not in READERS:
            return False
        READERS[frame["type"]](frame)
    except ValueError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    taken: Counter[tuple[str, bool]] = Counter()
    longest = 0.0
    before = peak_mb()
    for body in (*map(flat, SMALL), *map(deep, OPENED)):
        for side in (drive, obey):
            side(struct.pack("!I", len(body)) + body)
    largest = peak_mb()
    for number in range(options.frames):
        driver = number % 2 == 0
        side, frames = (drive, TO_DRIVER) if driver else (obey, TO_AGENT)
        data = hostile(rng, rng.choice(frames))
        begin = time.perf_counter()
        taken[side.__name__, side(data)] += 1
        longest = max(longest, time.perf_counter() - begin)
    grown = peak_mb() - largest
    for (name, right), count in sorted(taken.items()):
        end = {"drive": "driver", "obey": "agent"}[name]
        print(f"{end:>8} {'took' if right else 'refused':>8} {count:9}")
    print(
        f"the largest frames need {largest - before:.1f} MB, all others {grown:.1f} MB "
        f"more; the longest took {longest:.3f} s"
    )
    return int(largest - before > LARGEST_MB or grown > GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main())
