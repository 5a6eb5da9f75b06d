"""The process that owns a lab's namespaces, and the system calls to make and join them.

The process carries out a `Plan` and then waits. Python itself has no such calls before
3.12.

`main` runs in a Python of its own. It is the init process of the
lab's process namespace: when it dies, however it dies, the kernel kills every
process in the lab, and with the last of them go namespaces and interfaces.
Until it is told to stay it dies with the process that started it, so that an
interrupted start leaves nothing behind.

The conversation, one line of JSON each:

    in   {"token", "hosts_file", "hosts", "batches", "wires"}
    out  {"holder": PID}           as the starter's process namespace counts
    out  {"anchors": {HOST: PID}}  as the lab's counts, or {"error": MESSAGE}
    in   "stay"
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from cloudcoll.lab.link import SCRATCH

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

PORT_SECONDS = 10.0
"""Until all bridge ports forward; the kernel takes up to one second."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give this process namespaces of its own; OSError if the kernel refuses."""
    _check(_libc.unshare(flags), "unshare")


def become_root() -> None:
    """Enter a new user namespace in which this user is root, if none forbids it."""
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
    """Join namespaces of another process, keys of `FLAGS`, in the order given.

    The process identifier namespace takes effect for children only; joining
    a mount namespace moves the working directory to its root.
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
    """Mount `source` on `target`."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None
    )
    _check(result, f"mount on {target}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def main() -> None:
    """Split off the namespaces, and become their first process."""
    request = json.loads(sys.stdin.readline())
    try:
        if os.geteuid() != 0:
            become_root()
        unshare(NEWNS | NEWUTS | NEWNET | NEWPID)
    except OSError as error:
        _say(
            error=f"this system does not allow network namespaces ({error}); run the "
            "lab as root, or allow unprivileged user namespaces (sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces)"
        )
        return
    child = os.fork()
    if child:
        _say(holder=child)
        return
    try:
        anchors = _build(request)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        _say(error=str(error))
        return
    _say(anchors=anchors)
    while True:  # as init, which reaps what others leave
        os.wait()


def _say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def _build(request: dict[str, Any]) -> dict[str, int]:
    # Says inside from outside: bin/ssh and `Lab.inside` read it.
    Path("/proc/self/comm").write_text(request["token"])
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    anchors = _make_hosts(request["hosts"], request["hosts_file"])
    # Only now: a thread and a fork do not go together.
    threading.Thread(target=_leave_unless_told_to_stay, daemon=True).start()
    _disable_ipv6()
    for batch in request["batches"]:
        _run_batch(batch["tool"], batch["lines"], anchors.get(batch["namespace"]))
    for argv in request["wires"]:
        _start_wire(argv)
    _wait_for_ports()
    return anchors


def _leave_unless_told_to_stay() -> None:
    if sys.stdin.readline() != "stay\n":
        os._exit(1)
    # From here on nobody listens; a closed pipe must not hurt.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)


def _make_hosts(names: Sequence[str], hosts_file: str) -> dict[str, int]:
    """Fork one anchor per host: it makes the host's namespaces and keeps them."""
    reader, writer = os.pipe()
    anchors = {}
    for name in names:
        anchors[name] = os.fork()
        if anchors[name] == 0:
            _anchor(name, hosts_file, writer)
    os.close(writer)
    with open(reader) as reports:
        for _ in names:
            report = reports.readline()
            if report != "ok\n":
                raise RuntimeError(f"cannot make a host's namespaces: {report.strip()}")
    return anchors


def _anchor(name: str, hosts_file: str, writer: int) -> NoReturn:
    report = "ok\n"
    try:
        unshare(NEWNS | NEWUTS | NEWNET)
        socket.sethostname(name)
        _disable_ipv6()
        # /etc/hosts is a link on some systems; a mount wants the file.
        mount(hosts_file, os.path.realpath("/etc/hosts"), flags=MS_BIND)
        # Memory files and session folders (TMPDIR) of the host's own: process
        # numbers repeat from lab to lab, and so would the files' names.
        mount("tmpfs", SCRATCH, "tmpfs")
        # A /sys that shows this host's interfaces. Without it programs see
        # the machine's, which they can do with: containers often forbid it.
        with contextlib.suppress(OSError):
            mount("sysfs", "/sys", "sysfs")
        Path("/proc/self/comm").write_text(name)
    except OSError as error:
        report = f"{name}: {error}\n"
    os.write(writer, report.encode())
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, writer):
        os.dup2(null, file)
    while True:
        signal.pause()


def _disable_ipv6() -> None:
    for scope in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if setting.exists():  # not in a kernel without IPv6
            setting.write_text("1")


def _run_batch(tool: str, lines: Sequence[str], anchor: int | None) -> None:
    """Run lines of ``ip`` or ``tc`` in a host's network namespace, or in this."""
    inside = ("nsenter", f"--net=/proc/{anchor}/ns/net") if anchor else ()
    argv = [*inside, tool, "-batch", "-"]
    done = subprocess.run(
        argv, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=30
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {' '.join(done.stderr.split())}")


def _wait_for_ports() -> None:
    """Return when every bridge forwards on all its ports.

    A port stays disabled until the kernel's link watcher has seen its carrier,
    which it may put off for the better part of a second; packets are lost
    until then.
    """
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        shown = subprocess.run(
            ["bridge", "-json", "link"], capture_output=True, check=True, timeout=30
        )
        ports = json.loads(shown.stdout or b"[]")
        waiting = [p["ifname"] for p in ports if p.get("state") != "forwarding"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"bridge port {waiting[0]} does not forward")
        time.sleep(0.02)


def _start_wire(argv: Sequence[str]) -> None:
    """Start a wire and return when it carries packets."""
    wire = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert wire.stdout is not None
    if wire.stdout.readline() != b"ready\n":
        raise RuntimeError(f"{' '.join(argv)} did not start")
    wire.stdout.close()
