"""The few system calls of Linux namespaces that Python does not offer before 3.12."""

from __future__ import annotations

import ctypes
import os

NEWNS = 0x0002_0000
NEWUTS = 0x0400_0000
NEWUSER = 0x1000_0000
NEWPID = 0x2000_0000
NEWNET = 0x4000_0000
FLAGS = {"user": NEWUSER, "mnt": NEWNS, "uts": NEWUTS, "net": NEWNET, "pid": NEWPID}

MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give this process namespaces of its own.

    Raises
    ------
    OSError
        The kernel refused.
    """
    _check(_libc.unshare(flags), "unshare")


def become_root() -> None:
    """Enter a new user namespace in which this user is root.

    Raises
    ------
    OSError
        The kernel, or a security policy, forbids it.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(NEWUSER)
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def enter(process: int, *kinds: str) -> None:
    """Join namespaces of another process, in the order given.

    The process identifier namespace takes effect for children only; joining
    a mount namespace moves the working directory to its root.

    Parameters
    ----------
    process : int
        Its identifier, as ``/proc`` here shows it.
    *kinds : str
        Keys of `FLAGS`.

    Raises
    ------
    OSError
        The process is gone or the kernel refused.
    """
    # All are opened before the first is joined: /proc may change under us.
    files = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    try:
        for kind, file in zip(kinds, files, strict=True):
            _check(_libc.setns(file, FLAGS[kind]), f"setns {kind}")
    finally:
        for file in files:
            os.close(file)


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    """Mount `source` on `target`.

    Raises
    ------
    OSError
        The kernel refused.
    """
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None
    )
    _check(result, f"mount on {target}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent dies.

    Raises
    ------
    OSError
        The kernel refused.
    """
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")
