"""The agents of a probe as local processes: start, talk, end.

One thread, one selector: no agent can hold up another, and every wait has a
deadline.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import cloudcoll
from cloudcoll.probe.frames import Decoder, Frame, FrameError, encode

START_SECONDS = 10.0
"""How long a host may take from its command's start to its first frame."""
FAN_OUT = 32
"""Commands that are starting at the same time: sshd refuses floods."""
STOP_SECONDS = 1.0
"""How long an agent may take to go when its stdin ends."""

BOOTSTRAP = (
    "import sys;b=sys.stdin.buffer;"
    "exec(compile(b.read(int(b.readline())),'agent.py','exec'))"
)
# -I and -S: nothing in the home directory or in site-packages can get between
# the agent and its standard library, and the start is shorter.
AGENT_ARGV = ("python3", "-I", "-S", "-u", "-c", BOOTSTRAP)


def agent_source() -> bytes:
    """Return the text of ``probes/agent.py``, installed or in a checkout."""
    try:
        folder = importlib.resources.files("cloudcoll._probes")
    except ModuleNotFoundError:
        # A checkout that is not installed has it beside the package.
        folder = Path(cloudcoll.__file__).parent.parent / "probes"
    return folder.joinpath("agent.py").read_bytes()


class Agent:
    """One agent, as this end sees it.

    Attributes
    ----------
    name : str
        Its host.
    failed : str
        Why it is of no more use; empty while it is.
    awaits : str
        Type of the frame it owes us by `deadline`; empty if none.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.failed = ""
        self.awaits = ""
        self.deadline = 0.0
        self.outgoing = bytearray()
        self.stderr = b""
        self.decoder = Decoder()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, source: bytes) -> None:
        """Start the command and queue the agent's own text for it."""
        self.deadline = time.monotonic() + START_SECONDS
        self.outgoing += b"%d\n" % len(source) + source
        try:
            # Its own session: Ctrl-C is for us, who then end it in order.
            self.process = subprocess.Popen(
                self.command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.failed = f"cannot run {self.command[0]}: {error.strerror}"

    def why_ended(self) -> str:
        """Return what is known of why its output has ended."""
        assert self.process is not None
        try:
            code = self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            return "closed its output"
        with contextlib.suppress(BlockingIOError):
            assert self.process.stderr is not None
            self.stderr = (self.stderr + self.process.stderr.read())[-4096:]
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1].strip()[:200] if lines else ""
        if code == 127:
            return f"python3 not found on {self.name}"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return last or f"ended with exit code {code}"


class Agents:
    """All agents of a probe; as a context manager, none outlives it.

    Parameters
    ----------
    commands : sequence of (str, sequence of str)
        Host name and local command line of each agent.
    """

    def __init__(self, commands: Sequence[tuple[str, Sequence[str]]]) -> None:
        self.agents = [Agent(name, command) for name, command in commands]
        self._selector = selectors.DefaultSelector()
        self._source = agent_source()

    def __enter__(self) -> Agents:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            self._release(agent)
        deadline = time.monotonic() + STOP_SECONDS
        for agent in self.agents:
            _end(agent, deadline)
        self._selector.close()

    @property
    def alive(self) -> list[int]:
        """Positions of the agents that have not failed."""
        return [i for i, agent in enumerate(self.agents) if not agent.failed]

    def start(self) -> dict[int, Frame]:
        """Start all, `FAN_OUT` at a time; return their ``hello`` frames."""
        waiting = deque(enumerate(self.agents))
        answers: dict[int, Frame] = {}
        while True:
            starting = sum(bool(agent.awaits) for agent in self.agents)
            while waiting and starting < FAN_OUT:
                position, agent = waiting.popleft()
                agent.start(self._source)
                if not agent.failed:
                    self._register(position)
                    agent.awaits = "hello"
                    starting += 1
            if not starting:
                return answers
            self._turn(answers, None)

    def send(self, position: int, kind: str, /, **fields: object) -> None:
        """Queue a frame for one agent; it leaves while frames are collected."""
        self.agents[position].outgoing += encode(kind, **fields)
        self._flush(position)

    def collect(
        self,
        kind: str,
        seconds: float,
        meanwhile: Callable[[int, Frame], None] | None = None,
    ) -> dict[int, Frame]:
        """Return one frame of type `kind` from each agent that sends it in time.

        Frames of other types go to `meanwhile`. An agent fails that ends, sends
        what it must not, or lets `seconds` pass.
        """
        for position in self.alive:
            self.agents[position].awaits = kind
            self.agents[position].deadline = time.monotonic() + seconds
        answers: dict[int, Frame] = {}
        while any(agent.awaits for agent in self.agents):
            self._turn(answers, meanwhile)
        return answers

    def dismiss(self, position: int, reason: str) -> None:
        """End one agent, whose host is failed for `reason`."""
        self._fail(self.agents[position], reason)

    def _turn(
        self,
        answers: dict[int, Frame],
        meanwhile: Callable[[int, Frame], None] | None,
    ) -> None:
        """Wait for any agent, or for the next deadline."""
        owing = [agent for agent in self.agents if agent.awaits]
        nearest = min(agent.deadline for agent in owing)
        for key, events in self._selector.select(max(0.0, nearest - time.monotonic())):
            position, role = key.data
            if self.agents[position].failed:
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(position)
            elif role == "stderr":
                self._read_stderr(position)
            else:
                self._read(position, answers, meanwhile)
        now = time.monotonic()
        for agent in owing:
            if agent.awaits and now > agent.deadline:
                self._fail(agent, f"no answer in time (its {agent.awaits} is missing)")

    def _read(
        self,
        position: int,
        answers: dict[int, Frame],
        meanwhile: Callable[[int, Frame], None] | None,
    ) -> None:
        agent = self.agents[position]
        assert agent.process is not None and agent.process.stdout is not None
        data = os.read(agent.process.stdout.fileno(), 1 << 16)
        if not data:
            self._fail(agent, agent.why_ended())
            return
        try:
            for frame in agent.decoder.feed(data):
                # A busy host owes us nothing more than to say so.
                if frame["type"] in (agent.awaits, "busy"):
                    answers[position] = frame
                    agent.awaits = ""
                elif meanwhile and agent.awaits:
                    meanwhile(position, frame)
                else:
                    raise FrameError(f"{frame['type']} frame out of turn")
        except FrameError as error:
            self._fail(agent, f"not the agent's protocol: {error}")

    def _read_stderr(self, position: int) -> None:
        agent = self.agents[position]
        assert agent.process is not None and agent.process.stderr is not None
        data = os.read(agent.process.stderr.fileno(), 1 << 16)
        agent.stderr = (agent.stderr + data)[-4096:]
        if not data:
            self._selector.unregister(agent.process.stderr)

    def _register(self, position: int) -> None:
        process = self.agents[position].process
        assert process is not None
        assert process.stdin is not None
        for role, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (position, role))
        os.set_blocking(process.stdin.fileno(), False)
        self._flush(position)

    def _flush(self, position: int) -> None:
        """Write what the pipe takes, and watch it while there is more."""
        agent = self.agents[position]
        assert agent.process is not None and agent.process.stdin is not None
        pipe = agent.process.stdin
        try:
            if agent.outgoing:
                written = os.write(pipe.fileno(), agent.outgoing)
                del agent.outgoing[:written]
        except BlockingIOError:
            pass  # full: the selector says when it is not
        except BrokenPipeError:
            agent.outgoing.clear()  # the end of its output will say why
        watched = pipe in self._selector.get_map()
        if agent.outgoing and not watched:
            self._selector.register(pipe, selectors.EVENT_WRITE, (position, "stdin"))
        elif watched and not agent.outgoing:
            self._selector.unregister(pipe)

    def _fail(self, agent: Agent, reason: str) -> None:
        agent.failed = reason
        agent.awaits = ""
        self._release(agent)

    def _release(self, agent: Agent) -> None:
        """Close our ends of its pipes: the end of stdin is what ends an agent."""
        if agent.process is None:
            return
        for pipe in (agent.process.stdin, agent.process.stdout, agent.process.stderr):
            assert pipe is not None
            if not pipe.closed:
                with contextlib.suppress(KeyError):  # not every pipe is watched
                    self._selector.unregister(pipe)
                pipe.close()


def _end(agent: Agent, deadline: float) -> None:
    """Reap a process whose stdin has ended; kill it after `deadline`."""
    if agent.process is None:
        return
    try:
        agent.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        # It is stopped, or does not pass on the end of its input.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent.process.pid, signal.SIGKILL)
        agent.process.wait()
