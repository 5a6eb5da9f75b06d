"""Throw hostile first bytes at a resident agent's listener.

First in memory, half of them changed from a right handshake and half junk: how
many of them the TLS of both ends took, the memory that grew, the longest time.
Then on sockets, against `cloudcoll agent --listen` as it is: floods of garbage,
of half handshakes and of bytes that trickle in, from many addresses; what the
listener held at most of memory, descriptors and threads, how much CPU it took,
and how long a driver took to get in meanwhile and afterwards. Ends in 1 if
memory grew by 32 MB or a driver did not get in. Needs cloudcoll[certs]:

    python tests/soak/fuzz_tls.py
"""

from __future__ import annotations

import argparse
import random
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from cloudcoll.errors import CloudcollError
from cloudcoll.programs import agent_source
from cloudcoll.resident import greeting, read_answer
from cloudcoll.resident.dial import connect
from cloudcoll.tls import AGENT, DRIVER, Credentials
from cloudcoll.tls.certs import issue, make_ca

MEMORY_MB = 32
HOST = "127.0.0.1"


def credentials(folder: Path) -> tuple[Credentials, Credentials]:
    """Return those of a host and of a driver."""
    ca = make_ca()
    made = []
    for name, role, names in (("host", AGENT, [HOST]), ("driver", DRIVER, [])):
        signed = issue(ca, name, [role], names)
        paths = [folder / f"{name}.{kind}" for kind in ("cert", "key", "ca")]
        pems = (signed.cert_pem, signed.key_pem, ca.cert_pem)
        for path, pem in zip(paths, pems, strict=True):
            path.write_bytes(pem)
            path.chmod(0o600)
        made.append(Credentials(*paths))
    return made[0], made[1]


def first_bytes(context: ssl.SSLContext) -> bytes:
    """Return a right ClientHello."""
    said = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=HOST)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return said.read()
    raise AssertionError("a handshake takes two")


def hostile(rng: random.Random, right: bytes) -> bytes:
    """Return first bytes with something wrong."""
    kind = rng.randrange(4)
    said = bytearray(right)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 600))
    if kind == 1:  # a record of a length of its own
        head = bytes([rng.choice([20, 21, 22, 23, 24]), 3, rng.randrange(5)])
        return head + rng.randbytes(2) + rng.randbytes(rng.randrange(300))
    for _ in range(rng.randrange(1, 8)):
        said[rng.randrange(len(said))] = rng.randrange(256)
    return bytes(said[: rng.randrange(1, len(said) + 1)] if kind == 2 else said)


def fuzz_in_memory(host: ssl.SSLContext, right: bytes, count: int, seed: int) -> float:
    """Print what became of `count` first bytes; return the MB that grew."""
    rng = random.Random(seed)
    waits = refused = 0
    longest = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        data = hostile(rng, right)
        begin = time.perf_counter()
        session = host.wrap_bio(heard, said, server_side=True)
        heard.write(data)
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            waits += 1  # for more: it has `life_s`
        except ssl.SSLError:
            refused += 1
        else:
            raise AssertionError("a stranger got in")
        longest = max(longest, time.perf_counter() - begin)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{count} first bytes in memory: {refused} refused, {waits} wait for more")
    print(f"memory grew by {grown:.1f} MB, the longest took {longest * 1e3:.1f} ms")
    return grown


def attack(
    address: tuple[str, int], kind: str, right: bytes, seed: int, over: threading.Event
) -> None:
    """Connect from many addresses until it is over, as fast as one can."""
    rng = random.Random(seed)
    held: list[socket.socket] = []
    while not over.is_set():
        source = f"127.{rng.randrange(1, 255)}.{rng.randrange(255)}.1"
        try:
            sock = socket.create_connection(address, 0.2, (source, 0))
            sock.setblocking(False)
            whole = hostile(rng, right) if kind == "garbage" else right
            sock.send(whole if kind == "garbage" else whole[: len(whole) // 2])
            held.append(sock)
            if kind == "trickle":
                for one in held:
                    one.send(b"\x16")
        except OSError:
            continue  # it was sent away, or has to wait: that is the point
        finally:
            if len(held) > 200:
                held.pop(0).close()
    for sock in held:
        sock.close()


def get_in(ours: Credentials, address: tuple[str, int]) -> float:
    """Return the seconds that a driver takes until it is welcome; NaN if never."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 10:
        try:
            with connect(ours.client(), HOST, address) as conn:
                conn.sendall(greeting(agent_source()))
                read_answer(conn)
                return time.perf_counter() - begin
        except (OSError, CloudcollError):
            time.sleep(0.5)  # its own rate is limited too
    return float("nan")


def fuzz_on_sockets(
    host: Credentials, driver: Credentials, right: bytes, seconds: float
) -> bool:
    """Print what the listener held in each flood; return whether it was bounded."""
    words = [f"--{name}={getattr(host, name)}" for name in ("cert", "key", "ca")]
    command = [sys.executable, "-m", "cloudcoll.cli", "agent", "--listen", f"{HOST}:0"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*command, *words], stderr=log) as process,
    ):
        time.sleep(2.0)  # until it listens
        log.seek(0)
        address = (HOST, int(log.readline().rpartition(":")[2]))
        seen = psutil.Process(process.pid)
        get_in(driver, address)
        usual = seen.memory_info().rss
        good = True
        print("flood        grown [MB]  descriptors  threads  CPU  driver in [s]  then")
        for kind in ("garbage", "half", "trickle"):
            over = threading.Event()
            crowd = [
                threading.Thread(target=attack, args=(address, kind, right, i, over))
                for i in range(4)
            ]
            for one in crowd:
                one.start()
            most = [0.0, 0.0, 0.0]
            inside = float("nan")
            used, begin = sum(seen.cpu_times()[:2]), time.perf_counter()
            while time.perf_counter() - begin < seconds:
                now = (seen.memory_info().rss, seen.num_fds(), seen.num_threads())
                most = [max(pair) for pair in zip(most, now, strict=True)]
                time.sleep(0.05)
                if inside != inside and time.perf_counter() - begin > seconds / 2:
                    inside = get_in(driver, address)
            share = (sum(seen.cpu_times()[:2]) - used) / (time.perf_counter() - begin)
            over.set()
            for one in crowd:
                one.join()
            then = get_in(driver, address)
            grown = (most[0] - usual) / 1e6
            print(
                f"{kind:>8} {grown:14.1f} {most[1]:12.0f} {most[2]:8.0f} {share:4.0%} "
                f"{inside:14.2f} {then:5.2f}"
            )
            good &= grown < MEMORY_MB and then < 10
        process.terminate()
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        host, driver = credentials(Path(folder))
        right = first_bytes(driver.client())
        grown = fuzz_in_memory(host.server(), right, options.count, options.seed)
        good = fuzz_on_sockets(host, driver, right, options.seconds)
    return int(grown >= MEMORY_MB or not good)


if __name__ == "__main__":
    sys.exit(main())
