"""Hosts that belong to an attacker: what they say to the driver of a probe."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

from attack.kit import argv, attack, hold
from cloudcoll.probe.frames import MAGIC, encode

HELLO = MAGIC + encode(
    "hello", pid=1, load=0.0, python="3.11.7", hostname="vm-1", boot_id="b", cpus=1
)
RSH = """#!{python}
import os, sys, time
def say(data, to=1):
    while data:
        data = data[os.write(to, data):]
hello = {hello!r}
{act}
"""
MOST_MB = 400
"""Of address space that a driver may take beyond what it has at its start."""


def probe(act: str, seconds: float = 8.0) -> str:
    """Probe two hosts that do something; return what the driver says, in a line."""
    Path("rsh").write_text(RSH.format(python=sys.executable, hello=HELLO, act=act))
    Path("rsh").chmod(0o755)
    begin = time.monotonic()
    process = subprocess.Popen(
        argv("probe", "-w", "vm-[1-2]", "--quick", "--rsh", Path("rsh").resolve()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        hold(False, f"the driver is kept for more than {seconds:g} s")
        raise
    err = said.decode("utf-8", "backslashreplace")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    hold("Traceback" not in err, f"a traceback: {err[-300:]}")
    hold(process.returncode == 3, f"exit code {process.returncode}: {err}")
    hold("\x1b" not in err, "escapes are printed")
    hold(most < MOST_MB, f"the driver takes {most} MiB")
    took = time.monotonic() - begin
    return f"after {took:.1f} s, with {most} MiB: {err.splitlines()[0][:160]}"


@attack()
def a_host_that_says_gigabytes() -> str:
    """Announce a frame of 4 GiB and send on for ever."""
    return probe("say(hello + b'\\xff' * 4)\nwhile True: say(bytes(1 << 20))")


@attack()
def a_host_that_talks_before_it_is_asked() -> str:
    """Send noise for ever in place of a greeting."""
    return probe("while True: say(os.urandom(1 << 16))")


@attack()
def a_host_with_endless_last_words() -> str:
    """Fill the driver's memory, or its terminal, by way of stderr."""
    return probe("for _ in range(300): say(b'\\x1b[2Jx' * 100000, 2)\nsys.exit(1)")


@attack()
def a_host_that_sends_what_is_no_frame() -> str:
    """Send frames that are nested, unknown, numbers, or of wrong fields."""
    told = []
    for body in (
        b"[" * 100_000,
        b"7",
        b'{"type":"evil"}',
        b'{"type":"hello","pid":"x"}',
        b'{"type":"ports","udp":-1,"tcp":1e999}',
        b"\xff" * 100,
        b'{"type":"done"}' + b" " * 1000,
    ):
        frame = len(body).to_bytes(4, "big") + body
        told.append(probe(f"say(hello + {frame!r})\nsys.stdin.buffer.read()", 4.0))
    return f"{len(told)} frames; the last: {told[-1]}"


@attack()
def a_host_that_sends_packets_elsewhere() -> str:
    """Name ports and addresses of others in place of one's own."""
    ports = encode("ports", udp=53, tcp=22, unlocked="\x1b[2J", address="192.0.2.1")
    act = f"say(hello + {ports!r})\nsys.stdin.buffer.read(1)\ntime.sleep(1); sys.exit()"
    return probe(act)


@attack()
def a_host_that_runs_commands_by_its_name() -> str:
    """Come into a list as an option of ssh, or as a line of a shell."""
    for name in ("-oProxyCommand=touch owned", "vm-1;touch owned", "$(touch owned)"):
        Path("hosts").write_text(f"{name}\nvm-2\n")
        done = subprocess.run(
            argv("probe", "--hostfile", "hosts", "--quick"),
            capture_output=True,
            text=True,
            timeout=8,
            check=False,
        )
        hold(done.returncode in (2, 3), f"{name}: exit code {done.returncode}")
        hold(not Path("owned").exists(), f"{name} ran")
    return done.stderr.splitlines()[0][:160]
