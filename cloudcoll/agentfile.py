"""Command lines that start a Python with the agent's text or one of our modules."""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

import cloudcoll

BOOTSTRAP = (
    "import sys;b=sys.stdin.buffer;"
    "exec(compile(b.read(int(b.readline())),'agent.py','exec'))"
)
AGENT_ARGV = ("python3", "-I", "-S", "-u", "-c", BOOTSTRAP)
"""What runs on a host. With -I and -S nothing in its home folder or in
site-packages gets between the agent and its standard library."""
OWN = (
    # Not the current folder, which is there as "" if Python was not told otherwise.
    "import importlib, sys; sys.path[: sys.path[:1] == ['']] = [sys.argv.pop(1)]; "
    "sys.exit(importlib.import_module(sys.argv.pop(1)).main())"
)
ROOT = str(Path(__file__).parents[1])


def own_command(module: str, *flags: str) -> list[str]:
    """Return the command line that runs `main` of a module of this very package.

    From any working directory, without a PYTHONPATH that the user's program would
    inherit. Words that are added are `main`'s ``sys.argv[1:]``.

    Parameters
    ----------
    module : str
        Its whole name.
    *flags : str
        Of Python.
    """
    return [sys.executable, *flags, "-c", OWN, ROOT, module]


def programs() -> Path:
    """Return the folder of the programs that run on hosts, installed or not."""
    try:
        return Path(str(importlib.resources.files("cloudcoll._probes")))
    except ModuleNotFoundError:
        # A checkout that is not installed has it beside the package.
        return Path(cloudcoll.__file__).parent.parent / "probes"


def rank_program(name: str) -> tuple[str, ...]:
    """Return the arguments of a rank's Python that start a program of ``probes/``.

    It finds the program in any working directory, at the same path on every host.
    """
    return (str(programs() / "start.py"), name)


def agent_source() -> bytes:
    """Return the text of ``probes/agent.py``."""
    return (programs() / "agent.py").read_bytes()


def parcel(source: bytes) -> bytes:
    """Return an agent's text as `BOOTSTRAP` reads it: its length, then itself."""
    return b"%d\n" % len(source) + source
