"""What a stranger learns of a probe's session key from how its greetings end.

Ten thousand wrong greetings of an agent's stream port, each from an address of its
own, in random order: silent ones, short ones, and whole ones that are wrong from the
first byte of the proof, after it, after half of it, or in its last bit alone. The
agent runs as it is but for the time that strangers have, which is cut to 0.5 s. Prints,
for each kind, how it ended and the percentiles of how long it took; then how well time
tells a kind from those wrong from the first byte (two-sample Kolmogorov-Smirnov).
Ends in 1 if a kind ends in another way, or its times differ by more than chance
(p < 0.001 divided by the number of kinds), or if any greeting got through:

    python tests/soak/greetings.py
"""

from __future__ import annotations

import argparse
import itertools
import random
import selectors
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import ks_2samp

sys.path.insert(0, str(Path(__file__).parents[2]))  # probes/ is not installed
sys.path.insert(0, str(Path(__file__).parents[1]))

from driven import TO_FIRST, WAIT, Driven, task_of, whole

from cloudcoll.programs import agent_source
from probes import agent

LIFE = b"STRANGER_LIFE = %.1f"
SECONDS = 0.5
AT_ONCE = 48
"""Fewer than an agent keeps: none has to make room for another."""
CHANCE = 0.001
FROM_THE_FIRST = "wrong from its first byte"
KINDS = (
    FROM_THE_FIRST,
    "wrong after its first byte",
    "wrong after half",
    "wrong in its last bit",
    "short by a byte",
    "silent",
)


def guess(kind: str, right: bytes) -> bytes:
    """Return what is said in place of a right proof."""
    head, proof = right[:4], right[4:]
    wrong = bytes(byte ^ 255 for byte in proof)
    said = {
        FROM_THE_FIRST: wrong,
        "wrong after its first byte": proof[:1] + wrong[1:],
        "wrong after half": proof[:16] + wrong[16:],
        "wrong in its last bit": proof[:-1] + bytes([proof[-1] ^ 1]),
        "short by a byte": proof[:-1],
    }
    return head + said[kind] if kind in said else b""


def begin(address: tuple[str, int], kind: str, source: str) -> socket.socket:
    """Connect from an address and say all that this kind says."""
    sock = socket.create_connection(address, WAIT, (source, 0))
    nonce = random.randbytes(agent.NONCE)
    sock.sendall(nonce)
    own, _ = agent.ANSWER.unpack(whole(sock, agent.ANSWER.size))
    right = agent.greeting(task_of(), 0, nonce + own, TO_FIRST.number)
    sock.sendall(guess(kind, right))
    return sock


def ending(sock: socket.socket) -> str:
    """Return how a connection ended that has something to be read."""
    with sock:
        try:
            return "said something" if sock.recv(1) else "closed"
        except ConnectionResetError:
            return "reset"


def addresses() -> itertools.chain[str]:
    """Return loopback addresses, none of them twice."""
    return itertools.chain.from_iterable(
        (f"127.{a}.{b}.{c}" for b in range(256) for c in range(1, 255))
        for a in range(16, 256)
    )


def attack(
    address: tuple[str, int], count: int
) -> tuple[dict[str, list[float]], dict[str, Counter[str]]]:
    """Return the seconds from each connect to its end, and the endings."""
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    random.Random(19).shuffle(kinds)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ends: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    left = iter(zip(kinds, addresses(), strict=False))
    with selectors.DefaultSelector() as selector:
        while True:
            free = AT_ONCE - len(selector.get_map())
            for kind, source in itertools.islice(left, min(free, 4)):
                since = (kind, time.perf_counter())
                try:
                    sock = begin(address, kind, source)
                except ConnectionError:
                    # This machine stalled: its time was over before it could speak.
                    ends[kind]["late"] += 1
                    continue
                selector.register(sock, selectors.EVENT_READ, since)
            if not selector.get_map():
                return seconds, ends
            found = selector.select(0.0 if free else None)
            now = time.perf_counter()
            for key, _ in found:
                kind, start = key.data
                seconds[kind].append(now - start)
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                ends[kind][ending(key.fileobj)] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    source = agent_source()
    assert LIFE % 5.0 in source
    driven = Driven(source.replace(LIFE % 5.0, LIFE % SECONDS))
    try:
        port = driven.prepare(life_s=3600.0)["tcp"]
        seconds, ends = attack(("127.0.0.1", port), options.count)
    finally:
        driven.close()
    usual = seconds[FROM_THE_FIRST]
    worst, alike = 1.0, True
    print(f"{'a greeting that is':28} count   p5   p50   p95 [ms]   KS p   ends")
    for kind in KINDS:
        times = np.array(seconds[kind]) * 1e3
        p = float(ks_2samp(usual, seconds[kind]).pvalue)
        worst, alike = min(worst, p), alike and {*ends[kind]} <= {"reset", "late"}
        quantiles = " ".join(f"{np.quantile(times, q):6.1f}" for q in (0.05, 0.5, 0.95))
        print(f"{kind:28} {len(times):5} {quantiles} {p:10.3f}   {dict(ends[kind])}")
    return 0 if alike and worst > CHANCE / len(KINDS) else 1


if __name__ == "__main__":
    sys.exit(main())
