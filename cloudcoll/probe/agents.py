"""All agents of a probe: start them, talk to them, end them.

One thread, one selector: no agent can hold up another, and every wait has a
deadline.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence

from cloudcoll import agentfile
from cloudcoll.probe.frames import Frame, FrameError, encode
from cloudcoll.probe.process import PIPES, AgentProcess, Start

START_SECONDS = 10.0
"""How long a host may take from its command's start to its first frame."""
FAN_OUT = 32
"""Commands that are starting at the same time: sshd refuses floods."""
STOP_SECONDS = 1.0
"""How long agents may take to go when their stdin ends, and when killed."""
SPARE_DESCRIPTORS = 64

OnFrame = Callable[[int, Frame], None]


class Agents:
    """All agents of a probe; as a context manager, none outlives it.

    Parameters
    ----------
    starts : sequence of (str, callable)
        Each host's name, and what starts its agent.
    """

    def __init__(self, starts: Sequence[tuple[str, Start]]) -> None:
        self.agents = [AgentProcess(name, start) for name, start in starts]
        self._selector = selectors.DefaultSelector()
        _allow_descriptors(len(PIPES) * len(starts) + SPARE_DESCRIPTORS)

    def __enter__(self) -> Agents:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            self._release(agent)
        self._selector.close()
        # All are killed before any is waited for: each death takes a busy machine a
        # while. One that survives that is the system's to end.
        late = _still_there(self.agents)
        for agent in late:
            agent.kill()
        _still_there(late)

    @property
    def alive(self) -> list[int]:
        """Positions of the agents that have not failed."""
        return [i for i, agent in enumerate(self.agents) if not agent.failed]

    def start(self) -> dict[int, Frame]:
        """Start all, `FAN_OUT` at a time; return their ``hello`` frames."""
        source = agentfile.agent_source()
        waiting = deque(enumerate(self.agents))
        answers: dict[int, Frame] = {}
        while True:
            starting = sum(bool(agent.awaits) for agent in self.agents)
            while waiting and starting < FAN_OUT:
                position, agent = waiting.popleft()
                agent.start(source)
                if not agent.failed:
                    self._watch(position)
                    _expect(agent, "hello", START_SECONDS)
                    starting += 1
            if not starting:
                return answers
            self._turn(answers, None)

    def send(self, position: int, kind: str, /, **fields: object) -> None:
        """Send a frame; what the pipe does not take leaves with `collect`."""
        self._write(position, encode(kind, **fields))

    def send_all(self, kind: str, /, **fields: object) -> None:
        """Send the same frame to all that have not failed."""
        frame = encode(kind, **fields)
        for position in self.alive:
            self._write(position, frame)

    def collect(
        self, kind: str, seconds: float, meanwhile: OnFrame | None = None
    ) -> dict[int, Frame]:
        """Return one frame of type `kind` from each agent that sends it in time.

        Frames of other types go to `meanwhile`. An agent fails that ends, sends
        what it must not, or lets `seconds` pass.
        """
        for position in self.alive:
            _expect(self.agents[position], kind, seconds)
        answers: dict[int, Frame] = {}
        while any(agent.awaits for agent in self.agents):
            self._turn(answers, meanwhile)
        return answers

    def dismiss(self, position: int, reason: str) -> None:
        """End an agent, which has failed for `reason`."""
        agent = self.agents[position]
        agent.failed = reason
        agent.awaits = ""
        self._release(agent)

    def _turn(self, answers: dict[int, Frame], meanwhile: OnFrame | None) -> None:
        """Wait for any agent or for the next deadline, and act on it."""
        nearest = min(agent.deadline for agent in self.agents if agent.awaits)
        for key, _ in self._selector.select(max(0.0, nearest - time.monotonic())):
            position, pipe = key.data
            agent = self.agents[position]
            if agent.failed:
                continue
            if pipe == "stdin":
                self._write(position, b"")
            elif pipe == "stdout":
                self._read(position, answers, meanwhile)
            elif not agent.read_stderr():
                self._selector.unregister(key.fileobj)
        now = time.monotonic()
        for position, agent in enumerate(self.agents):
            if agent.awaits and now > agent.deadline:
                self.dismiss(position, f"no answer in time ({agent.awaits} is missing)")
                # What has been silent for so long does not go by itself either.
                agent.kill()

    def _read(
        self, position: int, answers: dict[int, Frame], meanwhile: OnFrame | None
    ) -> None:
        agent = self.agents[position]
        data = agent.read()
        if not data:
            self.dismiss(position, agent.why_ended())
            return
        try:
            for frame in agent.decoder.feed(data):
                if _answers(frame, agent.awaits):
                    answers[position] = frame
                    agent.awaits = ""
                elif meanwhile and agent.awaits:
                    meanwhile(position, frame)
                else:
                    raise FrameError(f"{frame['type']} frame out of turn")
        except FrameError as error:
            self.dismiss(position, f"not the agent's protocol: {error}")

    def _watch(self, position: int) -> None:
        pipes = self.agents[position].pipes
        for name in ("stdout", "stderr"):
            self._selector.register(pipes[name], selectors.EVENT_READ, (position, name))
        self._write(position, b"")

    def _write(self, position: int, data: bytes) -> None:
        """Write what the pipe takes, and watch it while there is more."""
        agent = self.agents[position]
        more = agent.write(data)
        pipe = agent.pipes["stdin"]
        watched = pipe in self._selector.get_map()
        if more and not watched:
            self._selector.register(pipe, selectors.EVENT_WRITE, (position, "stdin"))
        elif watched and not more:
            self._selector.unregister(pipe)

    def _release(self, agent: AgentProcess) -> None:
        for pipe in agent.pipes.values():
            with contextlib.suppress(KeyError):  # not every pipe is watched
                self._selector.unregister(pipe)
        agent.release()


def _still_there(agents: Sequence[AgentProcess]) -> list[AgentProcess]:
    """Return which agents do not end within `STOP_SECONDS`."""
    deadline = time.monotonic() + STOP_SECONDS
    return [agent for agent in agents if not agent.ended(deadline)]


def _expect(agent: AgentProcess, kind: str, seconds: float) -> None:
    agent.awaits = kind
    agent.deadline = time.monotonic() + seconds


def _answers(frame: Frame, awaited: str) -> bool:
    """Return whether a frame is what its agent owed us."""
    # A host that is being probed has no ports to offer, and says so.
    return frame["type"] == awaited or (awaited == "ports" and frame["type"] == "busy")


def _allow_descriptors(count: int) -> None:
    """Raise this process's soft limit: a thousand hosts pass the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
