"""One agent as a process, driven by hand: what tests of the agent start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from cloudcoll.hosts import Host
from cloudcoll.probe.frames import Decoder, encode
from cloudcoll.probe.plan import plan_probes
from cloudcoll.programs import AGENT_ARGV, agent_source
from probes import agent

KEY = "00112233445566778899aabbccddeeff"
WAIT = 10.0
TO_FIRST = agent.Slot(3, 0.0, 1.0, "load", 0, True)
TO_SECOND = TO_FIRST._replace(peer=1)
"""A meeting in which the first host of two, or the second, is asked or sent to."""


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


def task_of(**changes: object) -> agent.Task:
    """Return the task of a ``prepare`` frame, which is for the first of two hosts."""
    return agent.read_task(prepare_frame(**changes))


def greet(stream: socket.socket, slot: agent.Slot = TO_FIRST, key: str = KEY) -> None:
    """Begin a stream as a host does that has a session key."""
    greeting = agent.Greeting(task_of(key=key), slot)
    while not greeting.go_on(stream):
        pass


def whole(conn: socket.socket, size: int) -> bytes:
    """Return the next bytes of a connection; fewer at its end."""
    data = b""
    while len(data) < size and (part := conn.recv(size - len(data))):
        data += part
    return data


def welcome(conn: socket.socket, slot: agent.Slot = TO_SECOND) -> bytes:
    """Take a stream as the host that is sent to does; return all that was heard."""
    nonce, own = whole(conn, agent.NONCE), os.urandom(agent.NONCE)
    proof = agent.prove(bytes.fromhex(KEY), b"accept", slot.peer, nonce + own)
    conn.sendall(agent.ANSWER.pack(own, proof))
    said = whole(conn, agent.HELLO.size)
    assert said == agent.greeting(task_of(), slot.peer, nonce + own, slot.number)
    return nonce + said


class Driven:
    """One agent as a process, driven by hand.

    `source` is its text, if changed; `how` is for `subprocess.Popen`.
    """

    def __init__(
        self,
        source: bytes | None = None,
        argv: Sequence[str] = AGENT_ARGV,
        **how: Any,
    ) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **how,
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

    def meet(self, ports: dict[str, Any], address: str = "127.0.0.1") -> None:
        """Name the hosts, both of them at the address; `ports` is what `prepare` is."""
        peer = [address, ports["udp"], ports["tcp"]]
        self.stdin.write(encode("peers", peers=[peer, peer]))
        assert self.next_frame()["type"] == "ready"

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        with self.process:  # closes its pipes
            self.process.kill()


def with_life(seconds: float) -> Driven:
    """Return an agent whose strangers have another time."""
    life = b"STRANGER_LIFE = %.1f"
    source = agent_source()
    assert life % 5.0 in source
    return Driven(source.replace(life % 5.0, life % seconds))
