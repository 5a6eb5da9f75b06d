"""What a driver's connections to resident agents cost it: of all hosts in one process.

Against a listener on this machine, the real one but for its limits, whose agents
only say hello. The same with a process for each host, in the same run, for fewer
hosts. Prints memory that no other process shares, once all hosts have said hello,
CPU seconds of the processes that hold connections, and seconds. Needs
cloudcoll[certs]:

    python -m benchmarks.tls_hosts
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import ssl
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.hosts import Host
from cloudcoll.probe.agents import Agents
from cloudcoll.probe.frames import MAGIC, encode
from cloudcoll.probe.shell import Tls
from cloudcoll.programs import agent_source
from cloudcoll.resident import Carrier, answer, check_greeting, read_greeting
from cloudcoll.tls import DRIVER, Credentials
from cloudcoll.tls.certs import write_all
from cloudcoll.tls.server import Limits, Server

OPEN = Limits(strangers=64, per_source=64, burst=1 << 20, pace_s=0.0, members=1 << 20)
HOST = "127.0.0.1"
FACTS = {"python": "3", "hostname": HOST, "boot_id": "", "cpus": 1, "load": 0.0}


def listen(ours: Credentials, port: Connection) -> None:
    """Serve drivers until killed; each gets the first frame of an agent."""
    program = agent_source()

    def serve(conn: ssl.SSLSocket, _: str) -> None:
        check_greeting(read_greeting(conn, OPEN.life_s), program)
        conn.sendall(answer() + MAGIC + encode("hello", **FACTS, pid=1))
        conn.settimeout(None)
        while conn.recv(1 << 16):
            pass

    say: Callable[[str], None] = print
    farewell: Callable[[str], bytes] = str.encode
    with Server((HOST, 0), ours, {DRIVER}, serve, say, farewell, OPEN) as server:
        port.send(server.address[1])
        server.run()


def measure(tls: Tls, hosts: int, each: bool) -> list[Figure]:
    """Return what so many hosts cost, with a process for each or one for all."""
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        count = hosts if each else 1
        diallers = [stack.enter_context(Carrier(tls.dialler())) for _ in range(count)]
        starts = [
            (f"{HOST} {i}", partial(diallers[i % count].start, HOST, HOST))
            for i in range(hosts)
        ]
        agents = stack.enter_context(Agents(starts))
        said = len(agents.start())
        seconds = time.perf_counter() - begin
        seen = [psutil.Process(one.process.pid) for one in diallers]
        memory = sum(one.memory_full_info().uss for one in seen) / 1e6
        cpu = sum(sum(one.cpu_times()[:2]) for one in seen)
    print(f"{hosts} hosts, {said} said hello after {seconds:.2f} s")
    how = "a process each" if each else "one process"
    what = f"connections to {hosts} agents, {how}"
    return [
        Figure(f"{what}: memory", memory, unit="MB"),
        Figure(f"{what}: CPU", cpu, unit="s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 64, 256, 1000])
    parser.add_argument("--each", type=int, nargs="*", default=[1, 64])
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pki = Path(folder)
        write_all([Host(HOST)], pki, 1)
        host, driver = (
            Credentials(*(pki / of / f"{name}.pem" for name in ("cert", "key", "ca")))
            for of in (f"agents/{HOST}", "driver")
        )
        port, theirs = multiprocessing.Pipe()
        listener = multiprocessing.Process(target=listen, args=(host, theirs))
        listener.start()
        tls = Tls(driver, port.recv())
        for each, counts in ((True, options.each), (False, options.hosts)):
            for hosts in counts:
                write_figures(measure(tls, hosts, each), options.json)
        listener.kill()
        listener.join()


if __name__ == "__main__":
    main()
