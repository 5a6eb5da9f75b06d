"""How fast a lab starts, and how true its round trips and rates are.

Prints what docs/figures.md quotes. Run it on an otherwise quiet machine:

    python -m benchmarks.lab
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from benchmarks.record import json_option, median_of, write_figures
from cloudcoll import lab

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 0))
print(server.getsockname()[1], flush=True)
while True:
    data, sender = server.recvfrom(16)
    server.sendto(data, sender)
"""

PING = """
import socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((host, port))
client.settimeout(5)
times = []
for _ in range(count):
    start = time.perf_counter()
    client.send(b"x")
    client.recv(16)
    times.append(time.perf_counter() - start)
    time.sleep(0.002)
print(sorted(times)[count // 10])
"""

SINK = """
import socket, time
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    stream, _ = server.accept()
buffer = bytearray(1 << 20)
total, start = stream.recv_into(buffer), time.perf_counter()
while size := stream.recv_into(buffer):
    total += size
print(total / (time.perf_counter() - start))
"""

SOURCE = """
import socket, sys, time
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
until, data = time.monotonic() + float(sys.argv[3]), bytes(1 << 18)
while time.monotonic() < until:
    stream.sendall(data)
"""


def run(where: lab.Lab, host: str, script: str, *arguments: str) -> str:
    argv, env = lab.exec_argv(where, host, [sys.executable, "-c", script, *arguments])
    done = subprocess.run(
        argv, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=60
    )
    return done.stdout


def serve(where: lab.Lab, host: str, script: str) -> tuple[subprocess.Popen[str], str]:
    argv, env = lab.exec_argv(where, host, [sys.executable, "-c", script])
    server = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def round_trip(where: lab.Lab, source: str, target: str, count: int = 400) -> float:
    """Return the 10th percentile of the idle round trip, seconds."""
    server, port = serve(where, target, ECHO)
    try:
        return float(run(where, source, PING, target, port, str(count)))
    finally:
        server.terminate()
        server.communicate(timeout=10)


def throughput(where: lab.Lab, source: str, target: str, seconds: float = 3) -> float:
    """Return what one TCP stream carries, bytes/s."""
    server, port = serve(where, target, SINK)
    run(where, source, SOURCE, target, port, str(seconds))
    return float(server.communicate(timeout=30)[0])


def start_times(racks: tuple[int, ...], repeats: int = 7) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        lab.up(lab.quick(racks, 50e6, 50e6, rtt=500e-6, preset="tuned"), "bench")
        times.append(time.perf_counter() - start)
        lab.down("bench")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser)
    options = parser.parse_args()
    starts = (
        median_of(f"start of {sum(racks)} hosts", start_times(racks), "s")
        for racks in ((4, 4, 4, 4), (16,) * 4)
    )
    write_figures(starts, options.json)
    print("\nround trip asked, measured (p10, idle), us")
    for rtt, rack_rtt in (
        (0.0, 0.0),
        (1e-4, 0.0),
        (2e-4, 5e-5),
        (5e-4, 1e-4),
        (1e-3, 0.0),
        (1e-2, 1e-3),
    ):
        where = lab.up(
            lab.quick((2, 2), rtt=rtt, rack_rtt=rack_rtt, preset="tuned"), "bench"
        )
        (first, second), (third, _) = where.groups
        for name, asked, target in (
            ("between racks", rtt, third),
            ("within a rack", rack_rtt, second),
        ):
            measured = round_trip(where, first, target)
            print(f"{name:14} {asked * 1e6:8.0f} {measured * 1e6:8.0f}")
        lab.down("bench")
    print("\none TCP stream between racks, asked and carried, Mbit/s")
    for rate in (50e6, 125e6, 250e6, 312.5e6, float("inf")):
        spec = lab.quick((2, 2), uplink=rate, rtt=500e-6, preset="tuned")
        where = lab.up(spec, "bench")
        carried = throughput(where, where.groups[0][0], where.groups[1][0])
        print(f"{rate * 8 / 1e6:8.0f} {carried * 8 / 1e6:8.0f}  by {where.backend}")
        lab.down("bench")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        try:
            main()
        finally:
            lab.down("bench")
