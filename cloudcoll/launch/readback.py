"""Did the ranks land where they were planned? Ask the launcher's own table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.launch.plan import LaunchPlan


def first_mismatch(
    planned: Sequence[str], seen: Mapping[int, str]
) -> tuple[int, str] | None:
    """Return the first rank that is on another host than planned, and where.

    A host may go by another name in the table, as the one that the launcher
    runs on often does. A name that no planned host has counts as an alias, one
    for each host.
    """
    alias_of: dict[str, str] = {}
    host_of = {host: host for host in planned}
    for rank, host in enumerate(planned):
        name = seen.get(rank, "")
        first = alias_of.setdefault(host, name), host_of.setdefault(name, host)
        if first != (name, host):
            return rank, name
    return None


@dataclass(frozen=True)
class ReadBack:
    """The comparison of a plan with the table that its launcher writes.

    Attributes
    ----------
    plan : LaunchPlan
        With the path of the table.
    """

    plan: LaunchPlan

    def check(self) -> str | None:
        """Return what is wrong, empty if nothing, None while it is not known."""
        request = self.plan.request
        try:
            text = Path(self.plan.table).read_text(errors="replace")
        except FileNotFoundError:
            # Not all ranks are started yet.
            return None
        seen = request.launcher.read_table(text) if request else {}
        if len(seen) < len(self.plan.placement):
            return None
        wrong = first_mismatch(self.plan.placement, seen)
        if wrong is None:
            return ""
        rank, host = wrong
        return (
            f"the order did not take: rank {rank} runs on {host}, planned on "
            f"{self.plan.placement[rank]}"
        )
