"""Hosts, and every host-list format that names them.

Order is kept as written: it is the order the user gave.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudcoll.errors import UsageError
from cloudcoll.files import bounded
from cloudcoll.files.limits import HOSTS, LIST_BYTES, SLOTS
from cloudcoll.hosts.formats import (
    FORMATS,
    Entry,
    Format,
    Line,
    detect,
    expand,
    parse_counted,
)
from cloudcoll.hosts.names import check_host, check_user

__all__ = [
    "Host",
    "expand",
    "first_clash",
    "host_set_key",
    "matched_names",
    "natural_key",
    "parse_host_argument",
    "parse_hosts",
    "read_hosts",
]

_MAX_LINE = 1 << 20
_ANSIBLE = re.compile(r"\[[A-Za-z_][\w.-]*(:\w+)?\]|\S+\s.*\bansible_\w+\s*=.*")


@dataclass(frozen=True, slots=True)
class Host:
    """One virtual machine.

    Attributes
    ----------
    name : str
        The name the launcher knows it by; unique within a list.
    address : str
        Where it is reached, a name or an IP address; `name` if left empty.
    slots : int or None
        Processes it takes, or None where the list does not say.
    user : str
        Login name for ssh, empty for the default.
    labels : mapping of str to str
        What a provider or an operator says of it: ``zone``, ``rack``, ...

    Raises
    ------
    UsageError
        Name, address or user is none that may stand on a command line, or there
        are no or too many slots. So no way in can leave the check out.
    """

    name: str
    address: str = ""
    slots: int | None = None
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.address:
            object.__setattr__(self, "address", self.name)
        check_host(self.name, "host")
        if self.address is not self.name:
            check_host(self.address, f"host {self.name!r}: address")
        check_user(self.user, f"host {self.name!r}: user")
        if self.slots is not None and not 1 <= self.slots <= SLOTS:
            raise UsageError(
                f"host {self.name!r}: {self.slots} slots: a host takes 1 to {SLOTS}"
            )


def read_hosts(path: str | os.PathLike[str], format: str = "auto") -> tuple[Host, ...]:
    """Read a host list file; see `parse_hosts` for the formats.

    Raises
    ------
    UsageError
        It cannot be read, is not text, or does not parse.
    """
    try:
        # A pipe, as in --hostfile <(command), works; /dev/zero does not.
        data = bounded(path, LIST_BYTES)
    except ValueError as error:
        raise UsageError(f"{path}: {error}: this is not a host list") from None
    except OSError as error:
        raise UsageError(
            f"cannot read the host list {path}: {error.strerror} (name a file "
            "with --hostfile, or the hosts with -w)"
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{number}: not text: this is not a host list"
        ) from None
    return parse_hosts(text, str(path), format)


def parse_hosts(text: str, source: str, format: str = "auto") -> tuple[Host, ...]:
    """Return the hosts that `text` names, each once, in its order.

    Parameters
    ----------
    text : str
        The list. ``#`` starts a comment, blank lines are skipped, and bracket
        ranges such as ``node[01-16]`` are expanded in every format.
    source : str
        Where it comes from, for error messages.
    format : str
        ``hostfile`` (Open MPI and PRRTE; the same as ``deepspeed``,
        ``horovod`` and ``kubernetes``), ``seq``, ``rankfile``, ``mpich`` (and
        Intel MPI), ``pbs``, ``slurm``, ``lightgbm``, or ``auto``: the rules
        are those of `cloudcoll.hosts.formats.detect`.

    Notes
    -----
    A host repeated without a count gets one slot per mention, as in Open MPI
    hostfiles, seq files and PBS node files. Its place is that of its first
    mention; a rankfile's order is that of its ranks. A host mentioned once
    without a count has unknown slots (None) in ``hostfile`` and ``slurm``, one
    in the other formats.

    Raises
    ------
    UsageError
        Unknown format, no hosts, a line that does not parse (``file:line:``
        first), or one host listed twice (both lines are named).
    """
    if format != "auto" and format not in FORMATS:
        known = ", ".join(("auto", *FORMATS))
        raise UsageError(f"unknown host list format {format!r} (known: {known})")
    lines = _significant_lines(text, source)
    if not lines:
        raise UsageError(
            f"{source}: no hosts in it: write one per line; example: node01 slots=8"
        )
    chosen = FORMATS[detect(lines) if format == "auto" else format]
    return _merge(chosen.parse(lines), chosen)


def parse_host_argument(text: str) -> tuple[Host, ...]:
    """Return the hosts of a ``-w`` or ``-H`` list such as ``node[01-16],b:4``.

    Slots are None for a host given once without ``:N``.
    """
    line = Line("host list argument", text.strip())
    if not line.text:
        raise line.refuse("it is empty", "node[01-16],other:4")
    return _merge(parse_counted(line), FORMATS["slurm"])


def matched_names(
    hosts: Sequence[Host], known: Mapping[str, str], look_up: Callable[[str], set[str]]
) -> list[str]:
    """Return the name in `known`, name to address, of each of `hosts`.

    By name or address; `look_up`, name -> its addresses, is asked only where neither
    are alike. A host that `known` does not have, or has twice, keeps its name.
    """
    by_address: dict[str, set[str]] = {}
    for name, address in known.items():
        by_address.setdefault(_canonical(address), set()).add(name)
    if any(h.name not in known and _canonical(h.name) not in by_address for h in hosts):
        for name, reached in known.items():
            for address in look_up(reached):
                by_address.setdefault(_canonical(address), set()).add(name)
    matched = []
    for host in hosts:
        found = by_address.get(_canonical(host.name), set())
        one = len(found) == 1 and host.name not in known
        matched.append(min(found) if one else host.name)
    return matched


def first_clash(hosts: Sequence[Host]) -> tuple[int, int] | None:
    """Return the positions of the first two hosts that are the same machine.

    That is: one name, or one address written in two ways. None if all differ.
    """
    names: dict[str, int] = {}
    addresses: dict[str, int] = {}
    for place, host in enumerate(hosts):
        first = min(
            names.setdefault(host.name, place),
            addresses.setdefault(_canonical(host.address), place),
        )
        if first < place:
            return first, place
    return None


def host_set_key(hosts: Iterable[Host]) -> str:
    """Return a short hash of the set of names, the same in any order.

    It is stable between runs and machines, and names the files that belong
    to these hosts.
    """
    names = "\n".join(sorted({host.name for host in hosts}))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def natural_key(name: str) -> tuple[tuple[str, int, str], ...]:
    """Return a sort key that puts ``vm-2`` before ``vm-10``; case counts."""
    pieces = re.findall(r"([^0-9]*)([0-9]*)", name)
    # The digits themselves come last to tell 01 from 1.
    return tuple((text, int(digits or -1), digits) for text, digits in pieces)


def _significant_lines(text: str, source: str) -> list[Line]:
    lines: list[Line] = []
    for number, raw in enumerate(io.StringIO(text, "\n"), start=1):
        raw = raw.removesuffix("\n")
        where = f"{source}:{number}"
        if len(raw) > _MAX_LINE or "\0" in raw:
            what = "a NUL byte" if "\0" in raw else f"a line of {len(raw)} characters"
            raise UsageError(f"{where}: {what}: this is not a host list")
        line = Line(where, raw.partition("#")[0].strip())
        if _ANSIBLE.fullmatch(line.text):
            raise UsageError(
                f"{where}: {line.text[:40]!r} is an Ansible inventory: write its "
                "hosts out first with 'ansible all -i INVENTORY --list-hosts | "
                "tail -n +2 > hosts'"
            )
        if line.text:
            if len(lines) == HOSTS:
                raise UsageError(f"{where}: more than {HOSTS} hosts")
            lines.append(line)
    return lines


def _merge(entries: Iterable[Entry], format: Format) -> tuple[Host, ...]:
    """Turn mentions into hosts: a repetition adds a slot or is refused."""
    first: dict[str, Entry] = {}
    counts: dict[str, int] = {}
    for mentions, entry in enumerate(entries, start=1):
        if mentions > HOSTS:
            raise UsageError(f"{entry.line.where}: more than {HOSTS} hosts")
        before = first.setdefault(entry.name, entry)
        counts[entry.name] = counts.get(entry.name, 0) + 1
        counted = entry.slots is not None or before.slots is not None
        if before is not entry and (counted or entry.user != before.user):
            raise _twice(entry, before)
    hosts = [
        Host(
            entry.name,
            slots=entry.slots or (counts[name] if counts[name] > 1 else format.single),
            user=entry.user,
        )
        for name, entry in first.items()
    ]
    if clash := first_clash(hosts):
        before, entry = (list(first.values())[place] for place in clash)
        raise _twice(entry, before)
    return tuple(hosts)


def _twice(entry: Entry, before: Entry) -> UsageError:
    same = "" if entry.name == before.name else f" as {before.name!r}"
    return entry.line.refuse(
        f"host {entry.name!r} was listed before{same}, at {before.line.where}: keep "
        "one of the two lines",
        f"{entry.name} slots={(entry.slots or 1) + (before.slots or 1)}",
    )


def _canonical(address: str) -> str:
    """Return one spelling for all spellings of an address."""
    if ":" in address:
        import ipaddress

        try:
            return ipaddress.ip_address(address).compressed
        except ValueError:
            # Not an address after all: a name that a caller made up.
            return address
    plain = address.rstrip(".").lower()
    return address if plain == address else plain  # mostly no new object
