"""How long many ranks wait until they know that all have the preloaded library.

Simulated ranks on this machine speak the protocol of launch/roll.py over real
sockets, as roll.c does. Prints seconds from the first question to the last
"all", and what it takes without some ranks.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.launch.roll import calling_roll
from cloudcoll.launch.seal import Seal
from cloudcoll.launch.wrapper import Inbox, choose_inbox

AGAIN_S, AGAIN_HEARD_S = 0.1, 0.5  # of roll.c
DEADLINE_S = 40.0


def seconds(ranks: int, missing: int) -> tuple[float, set[str]]:
    """Return when the last rank knew, and what they were told."""
    said: list[str] = []
    inbox = replace(choose_inbox(), addresses=("127.0.0.1",))
    with calling_roll(inbox, said.append), selectors.DefaultSelector() as selector:
        start = time.perf_counter()
        told = _told(inbox, ranks, missing, selector)
        return time.perf_counter() - start, told


def _told(
    inbox: Inbox, ranks: int, missing: int, selector: selectors.BaseSelector
) -> set[str]:
    to, seal = ("127.0.0.1", inbox.port), Seal(inbox.secret)
    sockets = [
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(ranks - missing)
    ]
    for rank, one in enumerate(sockets):
        selector.register(one, selectors.EVENT_READ, rank)
    heard, outcome = [0] * ranks, dict[int, str]()
    again, end = [0.0] * ranks, time.monotonic() + DEADLINE_S
    while len(outcome) < len(sockets):
        now = time.monotonic()
        assert now < end, f"{len(outcome)} of {ranks} were told in {DEADLINE_S} s"
        for rank, one in enumerate(sockets):
            if rank not in outcome and now >= again[rank]:
                _ask(one, to, seal, rank, ranks, heard[rank])
                again[rank] = now + (AGAIN_HEARD_S if heard[rank] else AGAIN_S)
        for key, _ in selector.select(AGAIN_S / 10):
            rank, one = key.data, sockets[key.data]
            answer = one.recv(256).decode().split()[3]
            if answer != "wait":
                outcome[rank] = answer
            elif not heard[rank]:
                heard[rank] = 1
                _ask(one, to, seal, rank, ranks, 1)
    for one in sockets:
        one.close()
    return set(outcome.values())


def _ask(
    one: socket.socket,
    to: tuple[str, int],
    seal: Seal,
    rank: int,
    ranks: int,
    hears: int,
) -> None:
    text = f"here w {rank} {ranks} {rank:x} {hears} {rank}"
    one.sendto(seal.close(text), to)


def figures(runs: int) -> Iterator[Figure]:
    """Yield a figure per number of ranks."""
    for ranks, missing in ((16, 0), (128, 0), (1000, 0), (1000, 1)):
        took, told = zip(*(seconds(ranks, missing) for _ in range(runs)), strict=True)
        (outcome,) = set().union(*told)
        what = f"roll call of {ranks} ranks, {missing} missing: told {outcome!r} after"
        yield median_of(what, took, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    json_option(parser)
    options = parser.parse_args()
    write_figures(figures(options.runs), options.json)


if __name__ == "__main__":
    main()
