"""How much of each host's card the background may take: a leaky bucket each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.probe import ProbePlan

BURST_S = 7200.0
"""What a host has not used for so many seconds can be used at once."""


@dataclass(frozen=True)
class Budget:
    """Seconds for which hosts may still be loaded, in the long run `share` of all.

    Over any time of T seconds a host is loaded for less than
    ``share * (T + BURST_S)`` and one probe.

    Attributes
    ----------
    share : float
        Of a host's rate, on the average.
    clear : mapping of str to float
        When a host will have made up for what it was used.
    """

    share: float
    clear: Mapping[str, float] = field(default_factory=dict)

    def allows(self, hosts: Iterable[str], now: float, *, reserve: float = 0.0) -> bool:
        """Return whether none of `hosts` owes too much to be loaded now.

        Parameters
        ----------
        hosts : iterable of str
        now : float
        reserve : float
            Share of the burst that is left for what matters more.
        """
        latest = now + (1.0 - reserve) * BURST_S
        return all(self.clear.get(host, now) <= latest for host in hosts)

    def charged(self, hosts: Iterable[str], now: float, seconds: float) -> Budget:
        """Return the budget after `hosts` were loaded for `seconds` from `now`."""
        owed = seconds / self.share
        used = {host: max(self.clear.get(host, now), now) + owed for host in hosts}
        # Names come and go for weeks: who owes nothing is forgotten.
        owing = {host: clear for host, clear in self.clear.items() if clear > now}
        return replace(self, clear=owing | used)


def loaded_seconds(plan: ProbePlan) -> float:
    """Return for how long a probe loads a host, at most."""
    rounds = sum(count for kind, count, _ in plan.passes if kind != "rtt")
    return rounds * plan.load_s + plan.sure_s + plan.uplink_s + plan.repeat_s


def slowest_card(snapshot: NetworkSnapshot, names: Iterable[str]) -> float:
    """Return the known rate of the slowest of some hosts' cards, in bytes/s.

    That is the fastest flow of each; hosts that had none don't count, and 0.0 is
    returned where no host had any.
    """
    flows = snapshot.flows
    fastest = np.zeros(len(snapshot.names))
    for ends in (flows.src, flows.dst):
        np.maximum.at(fastest, ends, np.nan_to_num(flows.bytes_per_s))
    known = fastest[np.isin(snapshot.names, list(names)) & (fastest > 0.0)]
    return float(known.min()) if len(known) else 0.0
