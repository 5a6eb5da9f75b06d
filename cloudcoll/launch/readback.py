"""Did the ranks land where they were planned? Ask the launcher, or the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.launch.leaf import Mailbox
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


def planned_names(seen: Mapping[int, str], planned: Iterable[str]) -> dict[int, str]:
    """Return `seen` with each host as the plan calls it.

    A name with a domain and one without it are the same host, unless several
    planned ones begin alike or it is an address.
    """
    exact = set(planned)
    by_label: dict[str, set[str]] = {}
    for host in exact:
        by_label.setdefault(_label(host), set()).add(host)

    def known(name: str) -> str:
        alike = by_label.get(_label(name), set())
        return name if name in exact or len(alike) != 1 else next(iter(alike))

    return {rank: known(name) for rank, name in seen.items()}


def _label(host: str) -> str:
    first = host.partition(".")[0]
    return host if first.isdecimal() else first


@dataclass(frozen=True)
class ReadBack:
    """The comparison of a plan with what is heard of its ranks.

    Attributes
    ----------
    plan : LaunchPlan
    seen : callable
        Returns rank -> host as far as it is known.
    """

    plan: LaunchPlan
    seen: Callable[[], Mapping[int, str]]

    def check(self) -> str | None:
        """Return what is wrong, empty if nothing, None while it is not known."""
        placement = self.plan.placement
        seen = self.seen()
        if len(seen) < len(placement):
            return None
        wrong = first_mismatch(placement, planned_names(seen, placement))
        if wrong is None:
            return ""
        rank, host = wrong
        return (
            f"the order did not take: rank {rank} runs on {host}, planned on "
            f"{placement[rank]}"
        )


@contextlib.contextmanager
def reading_back(
    plan: LaunchPlan, say: Callable[[str], None]
) -> Iterator[ReadBack | None]:
    """Listen to the ranks of a plan for the time of the context.

    Yields None where nothing can be heard; `say` is told if that is a surprise.
    """
    if plan.inbox is None:
        yield ReadBack(plan, lambda: _table(plan)) if plan.table else None
        return
    try:
        mailbox = Mailbox(plan.inbox)
    except OSError as error:
        say(f"cannot hear where ranks start: port {plan.inbox.port}: {error.strerror}")
        yield None
        return
    with contextlib.closing(mailbox):
        yield ReadBack(plan, mailbox.seen)


def _table(plan: LaunchPlan) -> Mapping[int, str]:
    """Return what the launcher has listed, nothing before all have started."""
    try:
        text = Path(plan.table).read_text(errors="replace")
    except FileNotFoundError:
        return {}
    return plan.request.launcher.read_table(text) if plan.request else {}
