"""What strangers at a resident agent's port do to a probe that is running.

`cloudcoll agent --listen` as it is, with a driver whose agent answers round trips.
Strangers from thousands of addresses connect and go, up to thousands a second, and
others begin a handshake that they never end; they keep to one core, for they would
be other machines. Prints percentiles of the round trips without them and, turn by
turn, how much they change with them, what the listener held at most, and how long a
lone stranger was let trickle. Run it on a quiet machine. Needs cloudcoll[certs]:

    python tests/soak/tls_strangers.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from fuzz_tls import HOST, credentials, first_bytes
from probe_faults import prepare_fields

from cloudcoll.probe.frames import Decoder, encode
from cloudcoll.programs import agent_source
from cloudcoll.resident import greeting, read_answer
from cloudcoll.resident.dial import connect
from cloudcoll.tls import Credentials
from probes import agent

SHOWN = (0.1, 0.5, 0.99)
HELD = 512
"""Connections that strangers keep open."""
Address = tuple[str, int]


@contextlib.contextmanager
def listening(host: Credentials) -> Iterator[tuple[psutil.Process, Address]]:
    """Start a resident agent; yield its process and where it listens."""
    words = [f"--{name}={getattr(host, name)}" for name in ("cert", "key", "ca")]
    command = [sys.executable, "-m", "cloudcoll.cli", "agent", "--listen", f"{HOST}:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *words], stderr=pipe, text=True) as process:
        assert process.stderr
        port = int(process.stderr.readline().rpartition(":")[2])
        yield psutil.Process(process.pid), (HOST, port)
        process.terminate()


@contextlib.contextmanager
def driven(ours: Credentials, address: Address) -> Iterator[int]:
    """Drive the agent to where it serves; yield its UDP port."""
    with connect(ours.client(), HOST, address) as conn:
        conn.sendall(greeting(agent_source()))
        read_answer(conn)
        conn.sendall(encode("prepare", **prepare_fields()))
        decoder, frames = Decoder(), []  # type: Decoder, list[dict[str, Any]]
        while len(frames) < 2:
            frames += decoder.feed(conn.recv(1 << 16))
        yield frames[1]["udp"]


def knock(address: Address) -> socket.socket:
    """Return a connection from an address of our own choice, which may come."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((f"127.{random.randrange(1, 255)}.{random.randrange(255)}.1", 0))
    sock.connect_ex(address)
    return sock


def intrude(
    address: Address, hello: bytes, rate: int, active: Event, made: Any
) -> None:
    """Knock `rate` times a second while `active` is set; every fourth stays."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    held: deque[socket.socket] = deque()
    while True:
        active.wait()
        begin = time.monotonic()
        for turn in range(rate // 100):
            sock = knock(address)
            if turn % 4:
                sock.close()
                continue
            with contextlib.suppress(OSError):  # it was sent away, or has to wait
                sock.send(hello[: len(hello) // 2])
            held.append(sock)
            if len(held) > HELD:
                held.popleft().close()
        made.value += rate // 100
        time.sleep(max(0.0, 0.01 - (time.monotonic() - begin)))


def show(driver: Credentials, host: Credentials, rate: int, turns: int) -> None:
    """Print a row: the same round trips with and without strangers."""
    fields = json.loads(json.dumps(prepare_fields()))
    task = agent.read_task({**fields, "samples": 5000, "ports": 8})
    hello = first_bytes(driver.client())
    turned: dict[bool, list[tuple[float, ...]]] = {False: [], True: []}
    with listening(host) as (process, address), driven(driver, address) as udp:
        own, most = process.num_fds(), 0
        active, made = multiprocessing.Event(), multiprocessing.Value("l", 0)
        words = (address, hello, rate, active, made)
        stranger = multiprocessing.Process(target=intrude, args=words, daemon=True)
        stranger.start()
        used, busy = 0.0, 0.0
        for turn in range(turns):
            attacked = turn % 2 == 1
            (active.set if attacked else active.clear)()
            time.sleep(0.3)  # until what went before has drained
            cpu, begin = sum(process.cpu_times()[:2]), time.perf_counter()
            limit = agent.clock() + int(10e9)
            slot = agent.Slot(turn, 0.0, 10.0, "rtt", 0, True)
            trips = agent.ping((HOST, udp), task, slot, limit)["ns"]
            turned[attacked].append(tuple(np.quantile(trips, SHOWN) / 1e3))
            if attacked:
                most = max(most, process.num_fds() - own)
                used += sum(process.cpu_times()[:2]) - cpu
                busy += time.perf_counter() - begin
        stranger.kill()
        stranger.join()
    row = f"{rate:5} {made.value:8}"
    alone, with_them = (np.array(turned[attacked]).T for attacked in (False, True))
    for before, after in zip(alone, with_them, strict=True):
        low, middle, high = np.quantile(after / before - 1, (0.25, 0.5, 0.75))
        row += f"{np.median(before):7.1f} {middle:+6.1%} ({low:+.1%} to {high:+.1%})"
    print(f"{row} {most:9} {used / busy:8.0%}", flush=True)


def trickle(driver: Credentials, host: Credentials) -> float:
    """Return the seconds after which a stranger that trickles is cut off."""
    hello = first_bytes(driver.client())
    with listening(host) as (_, address), socket.create_connection(address) as sock:
        begin = time.perf_counter()
        sock.settimeout(0.1)
        for place in range(len(hello) - 1):
            sock.send(hello[place : place + 1])
            try:
                if not sock.recv(100):
                    break
            except TimeoutError:
                continue
            except ConnectionResetError:
                break
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[400, 2000])
    parser.add_argument("--turns", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        host, driver = credentials(Path(folder))
        print(f"one that trickles is cut off after {trickle(driver, host):.1f} s")
        print(
            "  a s  strangers  p10 [us] alone, with   median [us]            ", end=""
        )
        print("p99 [us]              let in  CPU")
        for rate in options.rates:
            show(driver, host, rate, options.turns)


if __name__ == "__main__":
    main()
