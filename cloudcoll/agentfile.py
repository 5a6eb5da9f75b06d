"""The agent's program: its text, and how a host's Python is started on it."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import cloudcoll

BOOTSTRAP = (
    "import sys;b=sys.stdin.buffer;"
    "exec(compile(b.read(int(b.readline())),'agent.py','exec'))"
)
AGENT_ARGV = ("python3", "-I", "-S", "-u", "-c", BOOTSTRAP)
"""What runs on a host. With -I and -S nothing in its home folder or in
site-packages gets between the agent and its standard library."""


def programs() -> Path:
    """Return the folder of the programs that run on hosts, installed or not."""
    try:
        return Path(str(importlib.resources.files("cloudcoll._probes")))
    except ModuleNotFoundError:
        # A checkout that is not installed has it beside the package.
        return Path(cloudcoll.__file__).parent.parent / "probes"


def agent_source() -> bytes:
    """Return the text of ``probes/agent.py``."""
    return (programs() / "agent.py").read_bytes()


def parcel(source: bytes) -> bytes:
    """Return an agent's text as `BOOTSTRAP` reads it: its length, then itself."""
    return b"%d\n" % len(source) + source
