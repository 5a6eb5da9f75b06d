"""Names of hosts, their addresses and users: what passes is safe wherever it goes.

Names come from files, other machines and other programs, and end up on command
lines and as words of the files that launchers and Slurm read. So every way in
has this check, and nothing else passes: no blank, no end of line, no quote, no
leading dash, no path.
"""

from __future__ import annotations

import re
import reprlib

from cloudcoll.errors import UsageError

# A leading dash would reach ssh as an option.
_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_DIGEST = re.compile(r"[A-Za-z0-9_.-]{0,128}")


def is_host_name(value: object) -> bool:
    """Return whether `value` can be a host's name: no address with colons."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_user(value: object) -> bool:
    """Return whether `value` can be a login name."""
    return isinstance(value, str) and _USER.fullmatch(value) is not None


def ipv6(text: str) -> str | None:
    """Return an IPv6 address as it is usually spelled, None for anything else."""
    import ipaddress

    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # The name of an interface may hold anything but a percent sign.
    if found.scope_id is not None and not _ZONE.fullmatch(found.scope_id):
        return None
    return str(found)


def check_host(value: object, where: str) -> str:
    """Return `value` if it can be a host's name or address; else `where` is named."""
    if isinstance(value, str) and (
        is_host_name(value) or (len(value) < 100 and ipv6(value) is not None)
    ):
        return value
    raise UsageError(
        f"{where}: {shown(value)} is not a host name (letters, digits, '.', '-', "
        "'_') or address"
    )


def check_user(value: object, where: str) -> str:
    """Return `value` if it is empty or can be a login name; else `where` is named."""
    if value == "" or is_user(value):
        return str(value)
    raise UsageError(f"{where}: {shown(value)} is not a user's name")


def check_digest(value: str, where: str) -> str:
    """Return `value` if it can be a snapshot's digest, or is empty."""
    if not _DIGEST.fullmatch(value):
        raise UsageError(f"{where}: {shown(value)} is not a digest")
    return value


def shown(value: object) -> str:
    """Return a value as an error message quotes it: ASCII, 40 characters at most."""
    if isinstance(value, str):
        return ascii(value[:80])[:40]
    # Of a list of millions only the first are put into words.
    return reprlib.repr(value).encode("ascii", "backslashreplace").decode()[:40]
