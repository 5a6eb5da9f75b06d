"""All agents of a probe: their processes, the talk with them, what prepares them.

One thread, one selector: no agent can hold up another, and every wait has a
deadline.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cloudcoll import programs
from cloudcoll.errors import UnusableError
from cloudcoll.files import state_dir
from cloudcoll.hosts import Host
from cloudcoll.probe.frames import Decoder, Frame, FrameError, encode
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.resident import Carried

START_SECONDS = 10.0
"""How long a host may take from its command's start to its first frame."""
FAN_OUT = 32
"""Commands that are starting at the same time: sshd refuses floods."""
STOP_SECONDS = 1.0
"""How long agents may take to go when their stdin ends, and when killed."""
SPARE_DESCRIPTORS = 64

STDERR_KEPT = 4096
PIPES = ("stdin", "stdout", "stderr")

Program = subprocess.Popen[bytes] | Carried
Start = Callable[[], Program]
"""Starts an agent's program on its host; OSError if that cannot be tried."""


OnFrame = Callable[[int, Frame], None]


class AgentProcess:
    """One agent, as the driver sees it, started by `begin` on the host `name`.

    Attributes
    ----------
    failed : str
        Why it is of no more use; empty while it is.
    awaits : str
        Type of the frame it owes us by `deadline`; empty if none.
    deadline : float
        On the monotonic clock.
    pipes : dict of str to int
        Our ends of its stdin, stdout and stderr, none of them blocking;
        empty before it starts and after `release`.
    """

    def __init__(self, name: str, begin: Start) -> None:
        self.name = name
        self.failed = ""
        self.awaits = ""
        self.deadline = 0.0
        self.decoder = Decoder()
        self.pipes: dict[str, int] = {}
        self._begin = begin
        self._process: Program | None = None
        self._outgoing = bytearray()
        self._stderr = b""

    def start(self, source: bytes) -> None:
        """Start it and send it the agent's text; `failed` if it cannot."""
        try:
            self._process = self._begin()
        except OSError as error:
            self.failed = f"cannot run {error.filename}: {error.strerror}"
            return
        for name in PIPES:
            self.pipes[name] = getattr(self._process, name).fileno()
            os.set_blocking(self.pipes[name], False)
        self.write(programs.parcel(source))

    def write(self, data: bytes = b"") -> bool:
        """Send `data` after what still waits; return whether some must wait."""
        self._outgoing += data
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self.pipes["stdin"], self._outgoing)]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._outgoing.clear()  # the end of its output will say why
        return False

    def read(self) -> bytes:
        """Return what it has written to stdout; empty at the end."""
        return os.read(self.pipes["stdout"], 1 << 16)

    def read_stderr(self) -> bool:
        """Keep the end of its stderr; return whether more may come."""
        data = os.read(self.pipes["stderr"], 1 << 16)
        self._stderr = (self._stderr + data)[-STDERR_KEPT:]
        return bool(data)

    def why_ended(self) -> str:
        """Return what is known of why its output has ended."""
        assert self._process is not None
        try:
            code = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return "closed its output"
        with contextlib.suppress(BlockingIOError):
            self.read_stderr()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        if code == 127:
            return f"python3 not found on {self.name}"
        if code < 0:
            return f"killed by signal {-code} ({signal.strsignal(-code)})"
        return lines[-1].strip()[:200] if lines else f"ended with exit code {code}"

    def release(self) -> None:
        """Close our ends of its pipes: the end of stdin is what ends an agent."""
        for name in self.pipes:
            getattr(self._process, name).close()
        self.pipes.clear()

    def ended(self, deadline: float) -> bool:
        """Wait for its end after `release`; return whether it came by `deadline`."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill it: it is stopped, or does not pass on the end of its input."""
        if self._process and not self.ended(0.0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Agents:
    """All agents of a probe; as a context manager, none outlives it.

    `starts` has each host's name, and what starts its agent.
    """

    def __init__(self, starts: Sequence[tuple[str, Start]]) -> None:
        self.agents = [AgentProcess(name, start) for name, start in starts]
        self._waiting = deque(enumerate(self.agents))
        self._source = programs.agent_source()
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

    def begin(self) -> None:
        """Start as many as may be starting at the same time, and wait for none."""
        starting = sum(bool(agent.awaits) for agent in self.agents)
        while self._waiting and starting < FAN_OUT:
            position, agent = self._waiting.popleft()
            agent.start(self._source)
            if not agent.failed:
                self._watch(position)
                _expect(agent, "hello", START_SECONDS)
                starting += 1

    def start(self) -> dict[int, Frame]:
        """Start all, `FAN_OUT` at a time; return their ``hello`` frames."""
        answers: dict[int, Frame] = {}
        while True:
            self.begin()
            if not any(agent.awaits for agent in self.agents):
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


ANSWER_SECONDS = 10.0
"""How long an agent may take for an answer that needs no measurement."""
SPARE_LIFE_SECONDS = 60.0
"""What an agent may live longer than the plan takes, if its driver hangs."""


def prepare(
    agents: Agents, hosts: tuple[Host, ...], plan: ProbePlan, force: bool
) -> dict[int, Frame]:
    """Bring the agents to where they only wait for `go`; return what each is.

    That is its hello, the ``address`` by which another host reaches it, and, if it
    could not be locked where all probes of its user look, why it is ``unlocked``.
    """
    hello = agents.start()
    need_two(agents)
    key, parameters = secrets.token_hex(16), plan.parameters()
    for position in agents.alive:
        agents.send(
            position,
            "prepare",
            **parameters,
            position=position,
            key=key,
            address=hosts[position].address,
            life_s=plan.most_seconds + SPARE_LIFE_SECONDS,
            force=force,
        )
    ports = agents.collect("ports", ANSWER_SECONDS)
    _refuse_busy(ports, hosts)
    peers = [
        [host.address, ports[i]["udp"], ports[i]["tcp"]] if i in ports else None
        for i, host in enumerate(hosts)
    ]
    agents.send_all("peers", peers=peers)
    ready = agents.collect("ready", ANSWER_SECONDS)
    for position, host in enumerate(hosts):
        others = [frame for i, frame in ready.items() if i != position]
        if others and all(position in frame["unknown"] for frame in others):
            reason = f"{host.address} does not resolve on the other hosts"
            agents.dismiss(position, reason)
    need_two(agents)
    for i, fact in hello.items():
        fact |= _address(i, peers, ready)
        if unlocked := ports.get(i, {}).get("unlocked"):
            fact["unlocked"] = unlocked
    return hello


def _address(
    position: int, peers: Sequence[object], ready: Mapping[int, Frame]
) -> dict[str, str]:
    """Return the address by which the host before this one reaches it, if known."""
    around = [*range(position - 1, -1, -1), *range(len(peers) - 1, position, -1)]
    before = next((i for i in around if peers[i]), -1)
    if before not in ready or position in ready[before]["unknown"]:
        return {}
    return {"address": ready[before]["next"]}


def _refuse_busy(ports: dict[int, Frame], hosts: tuple[Host, ...]) -> None:
    for position, frame in sorted(ports.items()):
        if frame["type"] == "busy":
            raise UnusableError(
                f"{hosts[position].name} is being probed by process {frame['pid']} "
                f"since {frame['since']}: wait for it, or 'cloudcoll probe --force'"
            )


def need_two(agents: Agents) -> None:
    """Raise UnusableError, which says why, unless two agents are left."""
    if len(agents.alive) >= 2:
        return
    reasons = [
        f"{agent.name}: {agent.failed}" for agent in agents.agents if agent.failed
    ]
    shown = "; ".join(reasons[:5]) + ("; ..." if len(reasons) > 5 else "")
    raise UnusableError(
        f"{len(agents.alive)} of {len(agents.agents)} hosts could be probed, two are "
        f"needed ({shown}){_way_out(agents)}"
    )


def _way_out(agents: Agents) -> str:
    """Return what to do where ssh's own words leave it open; empty if they don't."""
    for agent in agents.agents:
        if "Host key verification failed" in agent.failed:
            return f": 'ssh {agent.name} true' has to work without a question"
        if "Could not resolve hostname" in agent.failed:
            for path in sorted(state_dir().glob("lab/*/hosts")):
                hosts = ""
                # A lab that ends meanwhile takes its files along.
                with contextlib.suppress(OSError):
                    hosts = path.read_text()
                if agent.name in hosts.split():
                    return (
                        f": {agent.name} is a host of lab {path.parent.name!r}, whose "
                        f"commands begin with 'cloudcoll lab exec --name "
                        f"{path.parent.name} --'"
                    )
    return ""
