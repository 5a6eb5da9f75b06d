"""One agent as a process, driven by hand: what tests of the agent start."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from cloudcoll.agentfile import AGENT_ARGV, agent_source
from cloudcoll.hosts import Host
from cloudcoll.probe.frames import Decoder, encode
from cloudcoll.probe.plan import plan_probes

KEY = "00112233445566778899aabbccddeeff"
WAIT = 10.0


def prepare_frame(**changes: object) -> dict[str, Any]:
    plan = plan_probes(tuple(Host(f"vm-{i}") for i in range(2)))
    frame = {
        **plan.parameters(),
        "position": 0,
        "key": KEY,
        "address": "127.0.0.1",
        "life_s": 30.0,
        "force": True,
        **changes,
    }
    decoded: dict[str, Any] = json.loads(json.dumps(frame))
    return decoded


class Driven:
    """One agent as a process, driven by hand; `source` is its text, if changed."""

    def __init__(self, source: bytes | None = None) -> None:
        self.process = subprocess.Popen(
            AGENT_ARGV,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        source = source or agent_source()
        self.stdin.write(b"%d\n" % len(source) + source)
        self._decoder = Decoder()
        self._frames: list[dict[str, Any]] = []

    def next_frame(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while not self._frames:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, self.error()
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    def prepare(self, **changes: object) -> dict[str, Any]:
        assert self.next_frame()["type"] == "hello"
        self.stdin.write(encode("prepare", **prepare_frame(**changes)))
        return self.next_frame()

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        with self.process:  # closes its pipes
            self.process.kill()
