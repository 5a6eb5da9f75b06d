"""Bytes of one call between hosts; shared by the programs that run on them.

Each program is started once per rank with one argument, a JSON list of cases
``{"call", "size", "calls", "settings"}``. Rank 0 prints ``{"library": NAME
AND VERSION}``, then a line for each case: ``{"sent", "elsewhere"}``, or
``{"unavailable"}``.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sockets import bytes_sent, card_payload

CARD = "card"
"""Stands for the network card among the addresses of a count."""

Call = Callable[[], object]


class Unavailable(Exception):
    """The library has nothing of this name, or of this number."""


@dataclass(frozen=True)
class Job:
    """A job, host after host, as the library that is counted has it.

    Attributes
    ----------
    rank : int
        Of this process.
    gather : callable
        Takes any JSON value and returns those of all ranks, by rank.
    barrier : callable
        Returns when all ranks have called it.
    prepare : callable
        From a case to a context in which its call can be made.
    """

    rank: int
    gather: Callable[[Any], list[Any]]
    barrier: Call
    prepare: Callable[[dict[str, Any]], AbstractContextManager[Call]]

    def run(self, version: str) -> None:
        """Count the cases of the command line and print what was counted."""
        self._say({"library": version})
        for case in json.loads(sys.argv[1]):
            try:
                with self.prepare(case) as call:
                    self._say(self.count(call, case["calls"]))
            except Unavailable as error:
                self._say({"unavailable": str(error)})

    def count(self, call: Call, calls: int) -> dict[str, Any]:
        """Return the bytes of one call from each host to each other.

        After `calls` calls twice as many are counted: what the second count
        has more is the calls' own, without barriers and others' traffic.

        Returns
        -------
        dict
            ``sent``: matrix of bytes; ``elsewhere``: bytes that the busiest
            card sent besides what the open connections account for.
        """
        counts = []
        for times in (1, calls, 2 * calls):
            # The first opens the connections.
            for _ in range(times):
                call()
            self.barrier()
            counts.append(Counter({CARD: card_payload(), **bytes_sent()}))
            # No rank of this host begins anew while another one reads.
            self.barrier()
        opening, once, twice = counts
        own = {to: (twice[to] - 2 * once[to] + opening[to]) / calls for to in twice}
        address = socket.gethostbyname(socket.gethostname())
        own.pop(address, None)
        rest = abs(own.pop(CARD) - sum(own.values()))
        # The ranks of a host read the same counters: the last one's do.
        hosts = {at: (row, rest) for at, row, rest in self.gather([address, own, rest])}
        sent = [[row.get(to, 0.0) for to in hosts] for row, _ in hosts.values()]
        return {"sent": sent, "elsewhere": max(rest for _, rest in hosts.values())}

    def _say(self, value: dict[str, Any]) -> None:
        if self.rank == 0:
            print(json.dumps(value), flush=True)
