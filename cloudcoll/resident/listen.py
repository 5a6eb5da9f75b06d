"""The host's end: runs the agent for each driver that shows a certificate."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from cloudcoll.programs import AGENT_ARGV, agent_source, parcel
from cloudcoll.resident import answer, check_greeting, read_greeting
from cloudcoll.resident.relay import relay
from cloudcoll.tls import DRIVER, Credentials
from cloudcoll.tls.server import USUAL, Server

STOP_SECONDS = 1.0
"""How long an agent may take to go when its stdin ends."""

Say = Callable[[str], None]


def listener(address: tuple[str, int], credentials: Credentials, say: Say) -> Server:
    """Return a `Server` of this host's agent, for drivers; not running yet.

    Each driver gets an agent of its own, which ends with the connection. The
    agent's lock lets one of them measure at a time.
    """
    serve = partial(_serve, program=agent_source(), say=say)
    return Server(address, credentials, {DRIVER}, serve, say, answer)


def _serve(conn: ssl.SSLSocket, name: str, *, program: bytes, say: Say) -> None:
    """Lead a driver and an agent together until one of them goes."""
    check_greeting(read_greeting(conn, USUAL.life_s), program)
    conn.settimeout(USUAL.life_s)
    conn.sendall(answer())
    source = conn.getpeername()[0]
    say(f"{name} at {source} drives the agent")
    # Its errors are for this host's log: a driver sees only that it ended.
    with subprocess.Popen(
        [sys.executable, *AGENT_ARGV[1:]],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    ) as agent:
        assert agent.stdin
        assert agent.stdout
        try:
            pipes = agent.stdout.fileno(), agent.stdin.fileno()
            relay(conn, *pipes, first=parcel(program))
        finally:
            agent.stdin.close()
            _end(agent)
    say(f"{name} at {source} has gone")


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Wait for an agent whose stdin has ended; kill it if it does not go."""
    try:
        agent.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
