"""All agents of a planted network in one process: real ones, but for the network.

Started by a `Carrier`, which hands over each host's pipes and its fate: the frame
after which it dies, if any. An agent is `main` of ``probes/agent.py`` in a thread:
its phases, its schedule, its checks, its frames. Only what it would do to this
machine is another: it has no sockets, no lock and no alarm, and what a round trip
or a flow finds is what the planted fabric says, where the flows of a round share
links as they would. Nobody sleeps: a probe takes as long as its frames do.

    python benchmarks/crowd.py RACKS HOSTS NIC UPLINK NOISE REPORT
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # probes/ is not installed

from cloudcoll.measured.synth import racks
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric
from cloudcoll.probe.frames import MAGIC, encode
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.resident import taken_over
from probes import agent

PACKET = 64 + 46
"""Bytes of a request on the wire: UDP, IP and Ethernet included."""
SHARED = ("hosts", "seed", "concurrency", "samples", "ports", "warm_up", "streams")
SHARED += ("flow_bytes", "rtt_s", "rtt_gap_s", "load_s", "load_gap_s", "window_s")
STACK = 256 << 10
DIES = "go"
"""Fate of a host that is gone only when all know of it."""


class Host(threading.local):
    """The agent of this thread."""

    name: str
    fate: str
    stdin: BinaryIO
    stdout: BinaryIO
    task: agent.Task | None = None


HERE = Host()


class Control(agent.Control):
    """The driver's side, over the pipes that were handed over."""

    def __init__(self) -> None:
        HERE.stdout.write(MAGIC)

    def expect(self, kind: str) -> dict[str, Any]:
        """Return the next frame; where there is none the agent ends."""
        frame = agent.read_frame(HERE.stdin)
        if frame is None or frame["type"] == HERE.fate:
            raise SystemExit
        if frame["type"] != kind:
            raise ValueError(f"{kind} expected, not {frame['type']}")
        return frame

    def send(self, kind: str, **fields: Any) -> None:
        """Write one frame to the driver."""
        HERE.stdout.write(encode(kind, **fields))
        HERE.stdout.flush()


class Probe:
    """What the flows of one probe get."""

    def __init__(self, task: agent.Task) -> None:
        given = {name: getattr(task, name) for name in SHARED}
        self.plan = ProbePlan(mode="quick", passes=tuple(task.passes), **given)
        self.inside = 0
        self.known = False
        self.sent: dict[tuple[int, int], float] = {}
        self.received: dict[tuple[int, int], float] = {}

    def share(self, network: Network, names: list[str]) -> None:
        """Work out the rates of all flows between hosts that are there."""
        self.known = True
        there = [bool(name) and network.fates[name] != DIES for name in names]
        flows = [
            (one.number, src, dst)
            for one in self.plan.rounds()
            if one.kind != "rtt"
            for src, dst in one.pairs
            if there[src] and there[dst]
        ]
        number, src, dst = np.array(flows, dtype=np.int64).reshape(-1, 3).T
        column = np.array([network.column.get(name, 0) for name in names])
        rate, _ = fair_rounds(network.links, number, column[src], column[dst])
        for (turn, sender, receiver), each in zip(flows, rate.tolist(), strict=True):
            self.sent[turn, sender] = self.received[turn, receiver] = each


class Network:
    """The planted fabric, in place of an agent's sockets.

    Attributes
    ----------
    fates : dict of str to str
        Of each host, in its last probe.
    sent : Counter
        Bytes that left each host's card.
    """

    def __init__(self, fabric: Fabric, noise: float) -> None:
        self.links = fabric.links
        self.column = {name: fabric.position(name) for name in sorted(fabric.hosts)}
        self.fates: dict[str, str] = {}
        self.sent: Counter[str] = Counter()
        self._trip = self.links.pair_rtt()
        self._probes: dict[bytes, Probe] = {}
        self._noise, self._source = noise, np.random.default_rng(0)
        self._lock = threading.Lock()

    def serve(self, task: agent.Task, control: Control, unlocked: str) -> Network:
        """Take part in a probe, without opening sockets."""
        with self._lock:
            self._probes.setdefault(task.key, Probe(task)).inside += 1
        HERE.task = task
        control.send("ports", udp=1, tcp=1, unlocked=unlocked)
        return self

    def know(self, peers: Iterable[agent.Peer | None]) -> None:
        """Let everybody in."""

    def expect(self, slot: agent.Slot) -> None:
        """Need no time to get ready."""

    def leave(self) -> None:
        """Forget a probe that nobody is in any more."""
        if HERE.task:
            with self._lock:
                probe = self._probes[HERE.task.key]
                probe.inside -= 1
                if not probe.inside:
                    del self._probes[HERE.task.key]

    def resolve_all(self, entries: Iterable[Any]) -> list[agent.Peer | None]:
        """Take addresses for the names of hosts."""
        names = [entry[0] if entry else "" for entry in entries]
        with self._lock:
            if not self._probe().known:
                self._probe().share(self, names)
        return [agent.Peer((n, 1), (n, 1)) if n else None for n in names]

    def ping(
        self, address: tuple[str, int], task: agent.Task, slot: agent.Slot, limit: int
    ) -> dict[str, Any]:
        """Return the round trips that the fabric has, with noise."""
        del slot, limit
        name, count = address[0], task.samples + task.ports * task.warm_up
        if self.fates[name] == DIES:
            return {"sent": agent.GIVE_UP, "ns": [], "bytes": 0}
        with self._lock:
            self.sent[HERE.name] += count * PACKET
            self.sent[name] += count * PACKET
        floor = self._trip[self.column[HERE.name], self.column[name]]
        trips = floor * self._slowed(task.samples) * 1e9
        there_and_back = 2 * count * PACKET
        return {
            "sent": task.samples,
            "ns": trips.astype(int).tolist(),
            "bytes": there_and_back,
        }

    def transmit(
        self, address: tuple[str, int], task: agent.Task, slot: agent.Slot, limit: int
    ) -> int:
        """Count what would be sent, and return it."""
        del limit
        if self.fates[address[0]] == DIES:
            raise ConnectionRefusedError("Connection refused")
        rate = self._probe().sent[slot.number, task.position]
        sent = int(min(rate * task.load_s, task.flow_bytes))
        with self._lock:
            self.sent[HERE.name] += sent
        return sent

    def take(self, slot: int) -> list[int]:
        """Return the windows of what arrives in a slot, as an agent's receiver."""
        assert HERE.task
        task = HERE.task
        rate = self._probe().received.get((slot, task.position))
        if not rate:
            return []
        seconds = min(task.load_s, task.flow_bytes / rate)
        count = int(seconds / task.window_s + 1e-6)
        windows = rate * task.window_s / self._slowed(count)
        return list(windows.astype(int).tolist())

    def _probe(self) -> Probe:
        assert HERE.task
        return self._probes[HERE.task.key]

    def _slowed(self, count: int) -> Any:
        with self._lock:
            return 1 + self._source.exponential(self._noise, count)


def plant(network: Network) -> None:
    """Give all agents of this process the planted network."""
    for name in ("serve", "resolve_all", "ping", "transmit"):
        setattr(agent, name, getattr(network, name))
    instead: dict[str, Any] = {
        "Control": Control,
        "gc": SimpleNamespace(disable=bool),
        "is_starved": lambda slot, late_s, steal_s: False,
        "labels": lru_cache(8)(agent.labels),
        "reserve": lambda task, control: "",
        "signal": SimpleNamespace(alarm=bool),
        "sleep_until": lambda begin, seconds: None,
        "stolen": float,
    }
    for name, value in instead.items():
        setattr(agent, name, value)


def live(network: Network, name: str, fate: str, pipes: list[int]) -> None:
    """Be a host's agent until its driver is done with it, or its fate comes."""
    HERE.name, HERE.fate = name, fate
    with suppress(BrokenPipeError), ExitStack() as stack:
        stack.callback(network.leave)
        HERE.stdin, HERE.stdout, stderr = (
            stack.enter_context(open(pipe, mode))
            for pipe, mode in zip(pipes, ("rb", "wb", "wb"), strict=True)
        )
        if fate == "connect":
            stderr.write(b"nothing listens there\n")
            return
        HERE.stdin.read(int(HERE.stdin.readline()))
        agent.main()


def main() -> None:
    groups, hosts, nic, uplink, noise = map(float, sys.argv[1:6])
    fabric = racks([int(hosts)] * int(groups), nic=nic, uplink=uplink, seed=1)
    network = Network(fabric, noise)
    plant(network)
    threading.stack_size(STACK)
    # By default each of a thousand threads that wait asks for its turn every 5 ms.
    sys.setswitchinterval(1.0)
    with socket.socket(fileno=0) as control:
        while taken := taken_over(control):
            (name, fate), pipes = taken
            network.fates[name] = fate
            one = (network, name, fate, pipes)
            threading.Thread(target=live, args=one, daemon=True).start()
    Path(sys.argv[6]).write_text(json.dumps(network.sent))


if __name__ == "__main__":
    main()
