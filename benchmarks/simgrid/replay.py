"""SimGrid replays the messages of a schedule, each as soon as it may begin.

The network model is CM02 without its traffic of acknowledgements.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule, Step
from cloudcoll.model.contention import SEGMENTS
from cloudcoll.network.tree import Links

PINNED = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0")
REPLAY_S = 300.0


class Message(NamedTuple):
    """One of a replay: its hosts, bytes, and the earlier ones that it waits for."""

    src: int
    dst: int
    size: float
    waits: list[int]


def in_order(steps: list[Step], host: Ints) -> Iterator[Message]:
    """Yield messages that begin when both ranks are done with all before."""
    last: dict[int, list[int]] = {}
    number = 0
    for step in steps:
        now: dict[int, list[int]] = {}
        ends = zip(step.src.tolist(), step.dst.tolist(), strict=True)
        for (src, dst), size in zip(ends, step.size.tolist(), strict=True):
            waits = {*last.get(src, []), *last.get(dst, [])}
            yield Message(int(host[src]), int(host[dst]), size, sorted(waits))
            now.setdefault(src, []).append(number)
            now.setdefault(dst, []).append(number)
            number += 1
        last |= now


def pipelined(steps: list[Step], host: Ints) -> Iterator[Message]:
    """Yield messages in segments: each waits for what its sender needs of it.

    And for the segment before on the same way.
    """
    before: dict[tuple[int, int, int], int] = {}
    number = 0
    for _ in range(SEGMENTS):
        come: dict[int, list[int]] = {}
        for place, step in enumerate(steps):
            arrived: dict[int, list[int]] = {}
            ends = zip(step.src.tolist(), step.dst.tolist(), strict=True)
            for (src, dst), size in zip(ends, step.size.tolist(), strict=True):
                way = (place, src, dst)
                waits = {*come.get(src, []), *([before[way]] if way in before else [])}
                part = size / SEGMENTS
                yield Message(int(host[src]), int(host[dst]), part, sorted(waits))
                before[way] = number
                arrived.setdefault(dst, []).append(number)
                number += 1
            for rank, numbers in arrived.items():
                come.setdefault(rank, []).extend(numbers)


def replayed(program: Path, links: Links, schedule: Schedule, order: Ints) -> float:
    """Return SimGrid's seconds of a schedule's messages."""
    steps = [step for step in schedule.steps for _ in range(step.repeat)]
    piped = any(step.overlaps for step in schedule.steps)
    messages = pipelined if piped else in_order
    count = len(links.up)
    fields: list[str] = [str(2 * count)]
    for rates in (links.up, links.down):
        known = np.where(np.isfinite(rates), rates, 1e15)
        pairs = zip(known.tolist(), links.latency.tolist(), strict=True)
        fields += [f"{rate!r} {latency!r}" for rate, latency in pairs]
    lines = []
    for message in messages(steps, order):
        out, into = links.member[:, message.src], links.member[:, message.dst]
        path = [*out[out != into].tolist(), *(into[out != into] + count).tolist()]
        row = [len(path), *path, len(message.waits), *message.waits]
        ends = f"{message.src} {message.dst} {message.size!r}"
        lines.append(f"{ends} {' '.join(map(str, row))}")
    done = subprocess.run(
        [program, *PINNED, "--log=root.thres:warning"],
        input="\n".join([*fields, str(len(lines)), *lines]),
        capture_output=True,
        text=True,
        timeout=REPLAY_S,
        check=True,
    )
    return float(done.stdout)


def compiled(folder: Path) -> Path:
    """Build the program that replays.

    Raises
    ------
    SystemExit
        There is no compiler, or no SimGrid.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise SystemExit("no g++: apt-get install g++ libsimgrid-dev")
    source = Path(__file__).with_name("replay.cpp")
    program = folder / "replay"
    command: list[str | Path] = [
        compiler,
        "-std=c++17",
        "-O2",
        source,
        "-lsimgrid",
        "-o",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit("SimGrid is missing: apt-get install libsimgrid-dev")
    return program
