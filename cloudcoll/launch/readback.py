"""Did the ranks land where they were planned? Ask the launcher, or the ranks.

Of ranks that the launcher started on this host their environment tells it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from cloudcoll.launch.own_host import hosts_named
from cloudcoll.launch.plan import LaunchPlan, RankTable
from cloudcoll.launch.wrapper import Mailbox


def started_values(name: str) -> set[str]:
    """Return the values of a variable in all processes that descend from this one.

    Only what a process was started with counts, and only where it differs from
    what this one has: a child that has not become its program yet has our own.
    """
    own, found = os.environ.get(name), set[str]()
    for pid in _descendants(os.getpid()):
        # It may have ended, or belong to somebody else.
        with contextlib.suppress(OSError):
            for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                key, _, value = setting.decode(errors="replace").partition("=")
                if key == name and value != own:
                    found.add(value)
    return found


def _descendants(pid: int) -> Iterator[int]:
    """Yield children, their children and so on; none where Linux does not list them."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


Check = Callable[[], "str | None"]
"""Returns what is wrong, empty if nothing, None while it is not known."""


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

    A name with a domain and one without it are the same host, unless it could be
    several planned ones.
    """
    exact = set(planned)
    by_label: dict[str, list[str]] = {}
    for host in exact:
        by_label.setdefault(_label(host), []).append(host)

    def known(name: str) -> str:
        if name in exact:
            return name
        alike = by_label.get(_label(name), [])
        found = hosts_named(alike, name)
        return alike[found[0]] if len(found) == 1 else name

    return {rank: known(name) for rank, name in seen.items()}


def _label(host: str) -> str:
    """Return what all names of one host begin with."""
    return host.partition(".")[0].lower()


class ReadBack:
    """Asks `seen` where the ranks are, rank -> host, until that is known of all."""

    def __init__(
        self, placement: Sequence[str], seen: Callable[[], Mapping[int, str]]
    ) -> None:
        self._placement = placement
        self._seen = seen
        self.agreed = f"all {len(placement)} ranks are in place"

    @property
    def heard(self) -> bool:
        """Whether any rank is known to have started."""
        return bool(self._seen())

    def __call__(self) -> str | None:
        """Return what is wrong, as every `Check`."""
        found, planned = self._seen(), self._placement
        if len(found) < len(planned):
            return None
        wrong = first_mismatch(planned, planned_names(found, planned))
        if wrong is None:
            return ""
        rank, host = wrong
        return (
            f"the order did not take: rank {rank} runs on {host}, planned on "
            f"{planned[rank]}"
        )


class OwnReadBack:
    """The same for the ranks of this host alone, by a variable and its value in them.

    None while there are none.
    """

    heard = True
    """Other hosts may have begun."""

    def __init__(self, name: str, planned: str) -> None:
        self._name = name
        self._planned = planned
        self.agreed = f"{name} is {planned} here, as planned"

    def __call__(self) -> str | None:
        """Return what is wrong, as every `Check`."""
        name, planned = self._name, self._planned
        if not (found := started_values(name)):
            return None
        wrong = sorted(found - {planned})
        if not wrong:
            return ""
        return (
            f"the order did not take: {name} is {wrong[0]} here, planned is {planned}"
        )


@contextlib.contextmanager
def reading_back(
    plan: LaunchPlan, say: Callable[[str], None]
) -> Iterator[ReadBack | OwnReadBack | None]:
    """Listen to the ranks of a plan for the time of the context.

    Yields None where nothing can be heard; `say` is told if that is a surprise.
    """
    if plan.own:
        yield OwnReadBack(*plan.own)
        return
    if plan.inbox is None:
        if plan.table:
            yield ReadBack(plan.placement, partial(_listed, plan.table))
        else:
            yield None
        return
    try:
        # Machines cloned from one image may all have one name.
        mailbox = Mailbox(plan.inbox, len(plan.placement), set(plan.placement))
    except OSError as error:
        say(f"cannot hear where ranks start: port {plan.inbox.port}: {error.strerror}")
        yield None
        return
    with contextlib.closing(mailbox):
        yield ReadBack(plan.placement, mailbox.seen)


def _listed(table: RankTable) -> Mapping[int, str]:
    """Return what the launcher has listed, nothing before all have started."""
    try:
        text = Path(table.path).read_text(errors="replace")
    except FileNotFoundError:
        return {}
    return table.read(text)
