from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import random
import signal
import socket
import struct
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from driven import (
    KEY,
    TO_SECOND,
    WAIT,
    Driven,
    prepare_frame,
    task_of,
    welcome,
    whole,
    with_life,
)
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.probe.frames import MAGIC, encode
from cloudcoll.probe.plan import plan_probes
from probes import agent


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock files of agents that are killed out of the system's folders."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))


@pytest.fixture
def driven() -> Iterator[Driven]:
    one = Driven()
    yield one
    one.close()


@given(
    st.integers(2, 130),
    st.integers(0, 2**63 - 1),
    st.integers(1, 70),
    st.sampled_from(["quick", "standard", "full"]),
    st.data(),
)
def test_agents_and_driver_have_one_schedule(
    count: int, seed: int, concurrency: int, mode: str, data: st.DataObject
) -> None:
    """Tests that a host's own slots are what the driver's plan says of it."""
    count = min(count, 20) if mode == "full" else count
    hosts = tuple(Host(f"vm-{i}") for i in range(count))
    plan = plan_probes(hosts, mode=mode, seed=seed, concurrency=concurrency)
    me = data.draw(st.integers(0, count - 1))
    frame = {**prepare_frame(), **plan.parameters(), "position": me}
    task = agent.read_task(json.loads(json.dumps(frame)))
    planned = {
        (slot.number, slot.kind, *pair)
        for slot in plan.rounds()
        for pair in slot.pairs
        if me in pair
    }
    own = list(agent.slots(task))
    found = {(s.number, s.kind, me, s.peer) for s in own if s.asks or s.sends}
    found |= {(s.number, s.kind, s.peer, me) for s in own if not s.asks or s.receives}
    assert found == planned
    starts = {slot.number: slot.start for slot in plan.rounds()}
    for slot in own:
        assert slot.start == pytest.approx(starts[slot.number])


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_as_a_frame(body: bytes, framed: bool) -> None:
    """Tests that an agent reads a frame, the end, or refuses; nothing else."""
    data = struct.pack("!I", len(body)) + body if framed else body
    try:
        frame = agent.read_frame(io.BytesIO(data))
    except ValueError:
        return
    assert frame is None or isinstance(frame["type"], str)


@given(
    st.sampled_from(sorted(prepare_frame())),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.lists(st.text() | st.integers() | st.booleans())),
)
def test_a_task_with_a_wrong_field(name: str, value: object) -> None:
    """Tests that a `prepare` with one arbitrary field is right or refused."""
    try:
        task = agent.read_task(prepare_frame(**{name: value}))
    except ValueError:
        return
    assert task.position < task.hosts
    if name in agent.LIMITS:
        kind, low, high = agent.LIMITS[name]
        assert type(value) is kind
        assert low <= getattr(task, name) <= high


def rounds_frame(first: object, meetings: object, kind: str = "load") -> dict[str, Any]:
    return {"kind": kind, "first": first, "meetings": meetings}


def test_rounds_become_slots() -> None:
    """Tests that meetings sent by the driver are timed like those of their pass."""
    task = task_of(hosts=4, position=1, load_s=0.2, load_gap_s=0.1)
    meetings = [[0, 3, True, 7], [2, 0, False, 0]]
    first, second = agent.read_rounds(rounds_frame(30, meetings), task)
    assert first == agent.Slot(30, 0.0, 0.2, "load", 3, True, 7)
    assert (second.number, second.peer, second.asks) == (32, 0, False)
    assert (second.start, second.end) == pytest.approx((0.6, 0.8))
    assert agent.read_rounds(rounds_frame(0, []), task) == []
    (asked,) = agent.read_rounds(rounds_frame(9, [[2, 0, True, 0]], "rtt"), task)
    assert (asked.number, asked.kind) == (11, "rtt")
    assert second.pace == 0
    length, gap = task.rtt_s, task.rtt_gap_s
    assert asked.start == pytest.approx(2 * (length + gap))
    assert asked.end - asked.start == pytest.approx(length)


@pytest.mark.parametrize(
    ("first", "meetings"),
    [
        (-1, []),
        (True, []),
        (1 << 31, []),
        (0, None),
        (0, [[0, 2]]),
        (0, [[0, 2, True]]),
        (0, [[0, 2, 1, 0]]),
        (0, [[0, 1, True, 0]]),
        (0, [[0, 4, True, 0]]),
        (0, [[-1, 2, True, 0]]),
        (0, [[0, 2, True, 0], [0, 3, True, 0]]),
        (0, [[1, 2, True, 0], [0, 3, True, 0]]),
        (0, [[agent.ROUNDS_LIMIT, 2, True, 0]]),
        (0, [[0, 2, True, -1]]),
        (0, [[0, 2, True, 1.5]]),
        (0, [[0, 2, True, True]]),
        (0, [[0, 2, True, agent.PACE_LIMIT]]),
    ],
)
def test_wrong_rounds_are_refused(first: object, meetings: object) -> None:
    """Tests that unknown hosts, itself, double slots and wrong types are errors."""
    task = task_of(hosts=4, position=1)
    with pytest.raises(ValueError, match=" is "):
        agent.read_rounds(rounds_frame(first, meetings), task)
    with pytest.raises(ValueError, match="kind is"):
        agent.read_rounds(rounds_frame(0, [], "ping"), task)


def test_a_pace_is_the_socket_s_own() -> None:
    """Tests that TCP itself is told, and nothing where there is no pace."""
    with socket.socket() as sock:
        usual = sock.getsockopt(socket.SOL_SOCKET, agent.SO_MAX_PACING_RATE)
        agent.pace(sock, 0)
        assert sock.getsockopt(socket.SOL_SOCKET, agent.SO_MAX_PACING_RATE) == usual
        agent.pace(sock, 3_000_000)
        told = sock.getsockopt(socket.SOL_SOCKET, agent.SO_MAX_PACING_RATE)
        assert told == 3_000_000 != usual


@given(
    st.integers() | st.none() | st.booleans(),
    st.none()
    | st.lists(
        st.lists(st.integers(-2, 6) | st.booleans(), min_size=4, max_size=4)
        | st.tuples(
            st.integers(0, 9), st.integers(0, 3), st.booleans(), st.integers(0)
        ).map(list)
        | st.text()
    ),
)
def test_any_rounds_are_right_or_refused(first: object, meetings: object) -> None:
    """Tests that whatever is taken is in order, of other hosts and not too long."""
    task = task_of(hosts=4, position=1)
    try:
        slots = agent.read_rounds(rounds_frame(first, meetings), task)
    except ValueError:
        return
    assert isinstance(meetings, list)
    assert len(slots) == len(meetings) <= agent.ROUNDS_LIMIT
    assert all(slot.peer in (0, 2, 3) for slot in slots)
    assert all(a.end <= b.start for a, b in pairwise(slots))


def _measured(driven: Driven) -> None:
    """Bring an agent to where its schedule, an empty one, is done."""
    ports = driven.prepare(passes=[["load", 0, False]])
    peer = ["127.0.0.1", ports["udp"], ports["tcp"]]
    driven.stdin.write(encode("peers", peers=[peer, peer]))
    assert driven.next_frame()["type"] == "ready"
    driven.stdin.write(encode("go", after_s=0.0))
    assert driven.next_frame()["type"] == "done"


def test_rounds_end_with_done(driven: Driven) -> None:
    """Tests that rounds may follow each other, each with its reports and `done`."""
    _measured(driven)
    for first, meetings in ((7, [[1, 1, False, 0]]), (9, [])):
        frame = encode("rounds", after_s=0.0, **rounds_frame(first, meetings))
        driven.stdin.write(frame)
        if meetings:
            report = driven.next_frame()
            if report["type"] == "starved":  # this machine is busy
                report = driven.next_frame()
            assert report == {"type": "flow", "slot": 8, "peer": 1, "windows": []}
        assert driven.next_frame()["type"] == "done"
    driven.stdin.close()
    assert driven.process.wait(WAIT) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"after_s": 0.0, "first": 0, "meetings": [[0, 0, True, 0]]},
        {"after_s": 0.0, "first": 0, "meetings": [[0, 2, True, 0]]},
        {"after_s": 61.0, "first": 0, "meetings": []},
        {"after_s": 0.0},
    ],
    ids=["itself", "nobody", "late", "fields"],
)
def test_nonsense_rounds_end_the_agent(
    driven: Driven, fields: dict[str, object]
) -> None:
    """Tests that an agent with wrong rounds says so and ends, rather than load."""
    _measured(driven)
    driven.stdin.write(encode("rounds", kind="load", **fields))
    assert driven.process.wait(WAIT) == 1
    assert "ValueError" in driven.error()


def test_oversized_frame_is_refused() -> None:
    """Tests that a length above the cap is not even read."""
    with pytest.raises(ValueError, match="at most"):
        agent.read_frame(io.BytesIO(struct.pack("!I", agent.FRAME_LIMIT + 1)))


def test_end_of_stdin_ends_the_agent(driven: Driven) -> None:
    """Tests that an agent goes when its driver does, and takes its lock along."""
    driven.prepare(force=False)
    runtime, own = agent.lock_folders()
    name = agent.lock_name("127.0.0.1")
    paths = [os.path.join(folder, name) for folder in (runtime, own)]
    assert all(map(os.path.exists, paths))
    driven.stdin.close()
    assert driven.process.wait(WAIT) == 0
    assert not any(map(os.path.exists, paths))


def test_the_next_host_is_the_one_after_this() -> None:
    """Tests that each host is told of by the one before it, the first by the last."""
    one, two, three = (agent.Peer((f"10.0.0.{i}", 1), ("", 1)) for i in (1, 2, 3))
    known = [one, None, two, three]
    said = [agent.next_address(position, known) for position in range(4)]
    assert said == ["10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.1"]
    assert agent.next_address(0, [one, None]) == ""


def test_end_of_stdin_ends_a_measurement(driven: Driven) -> None:
    """Tests that an agent in the middle of a long slot goes at once, too."""
    ports = driven.prepare(rtt_s=60.0, force=True, passes=[["rtt", 1, False]])
    peer = ["127.0.0.1", ports["udp"], ports["tcp"]]
    driven.stdin.write(encode("peers", peers=[peer, peer]))
    ready = {"type": "ready", "unknown": [], "next": "127.0.0.1"}
    assert driven.next_frame() == ready
    driven.stdin.write(encode("go", after_s=0.0))
    driven.stdin.close()
    assert driven.process.wait(WAIT) == 0


def test_alarm_ends_an_agent_that_nobody_drives(driven: Driven) -> None:
    """Tests that an agent whose driver hangs does not outlive its time."""
    driven.prepare(life_s=1.0)
    assert driven.process.wait(WAIT) == -signal.SIGALRM


@pytest.mark.parametrize(
    "frame",
    [
        encode("go", after_s=0.0),
        encode("prepare", **prepare_frame(samples="many")),
        struct.pack("!I", 1 << 30),
    ],
    ids=["turn", "type", "size"],
)
def test_nonsense_from_the_driver(driven: Driven, frame: bytes) -> None:
    """Tests that an agent that is driven wrongly ends and says why."""
    assert driven.next_frame()["type"] == "hello"
    driven.stdin.write(frame)
    assert driven.process.wait(WAIT) == 1
    assert "ValueError" in driven.error()


def test_greeting_comes_first(driven: Driven) -> None:
    """Tests that the first bytes are the line that a driver looks for."""
    assert driven.process.stdout is not None
    start = b""
    while len(start) < len(MAGIC):
        start += os.read(driven.process.stdout.fileno(), len(MAGIC) - len(start))
    assert start == MAGIC == agent.MAGIC


def test_no_answer_without_the_session_key(driven: Driven) -> None:
    """Tests that wrong keys, sizes and kinds get no reply, and a right one does.

    One socket's datagrams arrive in order on loopback: had any of the first
    got a reply, it would be read before the reply to the last.
    """
    port = driven.prepare()["udp"]

    def packet(key: str, kind: int, size: int = agent.PACKET) -> bytes:
        head = agent.PING.pack(1, 2, 3)
        return agent.exchange(bytes.fromhex(key), 0, head)[kind].ljust(size, b"\0")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT)
        sock.connect(("127.0.0.1", port))
        sock.send(packet("ff" * 16, agent.REQUEST))
        sock.send(packet(KEY, agent.REPLY))
        sock.send(packet(KEY, agent.REQUEST, 1000))
        sock.send(packet(KEY, agent.REQUEST)[:40])
        sock.send(b"")
        sock.send(packet(KEY, agent.REQUEST))
        assert sock.recv(2000) == packet(KEY, agent.REPLY)


def test_strangers_are_dropped() -> None:
    """Tests that TCP without the key is closed."""
    driven = with_life(0.5)
    try:
        ports = driven.prepare()
        driven.meet(ports)
        address = ("127.0.0.1", ports["tcp"])
        with closing(socket.create_connection(address, WAIT)) as wrong:
            wrong.sendall(b"x" * (agent.NONCE + agent.HELLO.size))
            assert len(whole(wrong, agent.ANSWER.size)) == agent.ANSWER.size
            with pytest.raises(ConnectionResetError):
                wrong.recv(1)
    finally:
        driven.close()


def test_idle_strangers_make_room() -> None:
    """Tests that one more than there is room for costs the first its place."""
    driven = with_life(60.0)
    try:
        ports = driven.prepare()
        driven.meet(ports)
        address, count = ("127.0.0.1", ports["tcp"]), agent.STRANGERS + 1
        idle = [socket.create_connection(address, WAIT) for _ in range(count)]
        with pytest.raises(ConnectionResetError):
            idle[0].recv(1)
        for sock in idle:
            sock.close()
    finally:
        driven.close()


def _ping(answer: Any, **changes: object) -> dict[str, Any]:
    """Ping a reflector that answers request number i with `answer(i, reply)`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def serve() -> None:
            number = 0
            while True:
                data, sender = sock.recvfrom(100)
                if len(data) < agent.PACKET:
                    return
                head = data[1 : 1 + agent.PING.size]
                request, reply = agent.exchange(bytes.fromhex(KEY), 1, head)
                assert data == request
                for one in answer(number, reply):
                    sock.sendto(one, sender)
                number += 1

        thread = threading.Thread(target=serve)
        thread.start()
        limit = agent.clock() + int(6 * WAIT * 1e9)
        result = agent.ping(sock.getsockname(), task_of(**changes), TO_SECOND, limit)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", sock.getsockname())
        thread.join(WAIT)
        return result


def test_ping_takes_the_samples_asked_for() -> None:
    """Tests that warm-up is left out and samples are spread over ports."""
    result = _ping(lambda _, reply: [reply], samples=10, ports=3, warm_up=2)
    assert (result["sent"], len(result["ns"])) == (10, 10)
    assert min(result["ns"]) > 0


def test_ping_counts_losses() -> None:
    """Tests that a request without a reply is sent but not a sample."""
    result = _ping(
        lambda i, reply: [reply] if i % 5 < 4 else [], samples=20, ports=1, warm_up=1
    )
    assert (result["sent"], len(result["ns"])) == (20, 16)


@pytest.mark.many
@pytest.mark.parametrize(("loss", "sent"), [(0.01, 600), (0.05, 200), (0.20, 100)])
def test_loss_is_told_as_it_was(loss: float, sent: int) -> None:
    """Tests that the share of replies that never came is known within a point."""
    rng = random.Random(loss)
    answered: list[bool] = []

    def answer(_: int, reply: bytes) -> list[bytes]:
        answered.append(rng.random() >= loss)
        return [reply] if answered[-1] else []

    result = _ping(answer, samples=sent, ports=1, warm_up=0)
    assert result["sent"] == len(answered) == sent > sum(answered)
    told = 1 - len(result["ns"]) / result["sent"]
    assert told == pytest.approx(1 - sum(answered) / len(answered), abs=0.01)


def test_ping_ignores_other_packets() -> None:
    """Tests that stale, duplicate and forged packets are not taken for a reply."""
    seen: list[bytes] = [b"x" * agent.PACKET]

    def answer(_: int, reply: bytes) -> list[bytes]:
        forged = b"\xff" * 16 + reply[16:]
        stale = seen[-1]
        seen.append(reply)
        return [stale, forged, b"", reply, reply]

    result = _ping(answer, samples=20, ports=1, warm_up=0)
    assert (result["sent"], len(result["ns"])) == (20, 20)


def test_ping_gives_up() -> None:
    """Tests that a pair that went silent does not take all of its slot."""
    result = _ping(
        lambda i, reply: [reply] if i < 5 else [], samples=100, ports=1, warm_up=0
    )
    assert result["sent"] == 5 + agent.GIVE_UP
    assert len(result["ns"]) == 5


@pytest.mark.parametrize("kind", ["rtt", "load"])
def test_who_is_silent_is_left_alone(kind: str) -> None:
    """Tests that an address gets nothing more, whatever port and place it is given."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(WAIT)
        closed = socket.create_server(("127.0.0.1", 0))
        with closed:
            place = closed.getsockname()
        contact = agent.Contact(task_of(samples=1, ports=1, warm_up=0))
        for turn in range(agent.SILENT):
            slot = agent.Slot(turn, 0.0, 1.0, kind, turn % 2, True)
            # All of it for an answer that never comes; a refusal comes at once.
            limit = agent.clock() + (20_000_000 if kind == "rtt" else 10**10)
            if kind == "rtt":
                peer = agent.Peer(sock.getsockname(), place)
                assert contact.reach(slot, peer, limit)[1] == {"sent": 1, "ns": []}
                assert len(sock.recv(100)) == agent.PACKET
            else:
                with pytest.raises(ConnectionRefusedError):
                    contact.reach(slot, agent.Peer(place, place), limit)
        with pytest.raises(OSError, match="left alone"):
            contact.reach(slot, agent.Peer(sock.getsockname(), place), limit)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(100)


def test_who_answers_now_and_then_is_not_left_alone() -> None:
    """Tests that a meeting with an answer undoes those without."""
    task = task_of(samples=1, ports=1, warm_up=0)
    slot = TO_SECOND._replace(kind="rtt")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        contact = agent.Contact(task)
        peer = agent.Peer(sock.getsockname(), ("", 1))
        _, reply = agent.exchange(task.key, 1, agent.PING.pack(slot.number, 0, 0))
        for _ in range(3):
            for _ in range(agent.SILENT - 1):
                contact.reach(slot, peer, agent.clock() + 2_000_000)
            sock.setblocking(False)
            # None was sent where this process came too late to a meeting.
            with contextlib.suppress(BlockingIOError):
                while sock.recv(100):
                    pass
            sock.settimeout(WAIT)
            limit = agent.clock() + int(WAIT * 1e9)
            asking = threading.Thread(target=contact.reach, args=(slot, peer, limit))
            asking.start()
            _, asker = sock.recvfrom(100)
            sock.sendto(reply, asker)
            asking.join(WAIT)


def test_flow_counts_whole_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that silent windows count as zero and the last, partial one not."""
    now = 0
    monkeypatch.setattr(agent, "clock", lambda: now)
    flow = agent.TcpFlow(0.010)
    for now, size in ((5, 100), (9, 50), (16, 10), (48, 1)):
        now *= 1_000_000
        flow.count(size)
    now = 59 * 1_000_000
    flow.close()
    now = 500 * 1_000_000
    assert flow.windows() == [150, 10, 0, 0, 1]


def test_a_flow_that_is_there_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that its time ends with its last stream, and with none that breaks off."""
    now = 0
    monkeypatch.setattr(agent, "clock", lambda: now)
    flow = agent.TcpFlow(0.010)
    for _ in range(2):
        flow.open()
    for now, size in ((5, 100), (30, 50)):
        now *= 1_000_000
        flow.count(size)
        flow.finish()
    now = 500 * 1_000_000
    assert flow.windows() == [100, 0]
    flow.close()
    assert flow.windows() == [100, 0]


def test_a_burst_is_sent_to_its_last_byte() -> None:
    """Tests that each stream carries its share, and ends without a reset."""
    task = task_of(streams=3, flow_bytes=1_000_000)
    taken: list[int] = []

    def take(stream: socket.socket) -> None:
        with stream, stream.makefile("rb") as data:
            welcome(stream)
            taken.append(len(data.read()))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        limit = agent.clock() + int(WAIT * 1e9)
        sender = threading.Thread(
            target=agent.transmit,
            args=(listener.getsockname(), task, TO_SECOND, limit),
        )
        sender.start()
        readers = [
            threading.Thread(target=take, args=(listener.accept()[0],))
            for _ in range(3)
        ]
        for thread in readers:
            thread.start()
        for thread in (*readers, sender):
            thread.join(WAIT)
    assert taken == 3 * [333_334]
    assert not sender.is_alive()
    assert agent.clock() < limit


def _crowded() -> socket.socket:
    """Return a listener that takes one connection and drops the next ones' SYNs."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.listen(0)  # the kernel queues one more than that
    listener.settimeout(WAIT)
    return listener


def test_what_the_kernel_only_took_was_not_sent() -> None:
    """Tests that a receiver that reads nothing is sent no more than it has room for."""
    task = task_of(streams=1, flow_bytes=1 << 30)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        address = listener.getsockname()
        limit = agent.clock() + 200_000_000
        sent: list[int] = []
        sender = threading.Thread(
            target=lambda: sent.append(agent.transmit(address, task, TO_SECOND, limit))
        )
        sender.start()
        with listener.accept()[0] as conn:
            welcome(conn)
            sender.join(WAIT)
            answer = fcntl.ioctl(conn, termios.FIONREAD, bytes(4))
    (waiting,) = struct.unpack("i", answer)
    # The greeting is not counted.
    assert 0 < sent[0] <= waiting <= sent[0] + agent.HELLO.size


def test_a_stream_that_comes_up_too_late_costs_nothing_else() -> None:
    """Tests that a flow uses the streams it has when SYNs of others are lost."""
    task = task_of(streams=4, flow_bytes=1 << 40)
    with _crowded() as listener:
        address = listener.getsockname()
        sender = threading.Thread(
            target=agent.transmit,
            args=(address, task, TO_SECOND, agent.clock() + 800_000_000),
        )
        sender.start()
        stream, _ = listener.accept()
        stream.settimeout(WAIT)
        with stream, stream.makefile("rb") as data:
            welcome(stream)
            assert len(data.read(1 << 16)) == 1 << 16
            sender.join(WAIT)
            assert not sender.is_alive()


def test_a_flow_without_a_stream_says_so() -> None:
    """Tests that nobody who answers, and nobody who listens, is told apart."""
    task = task_of(streams=2)
    with _crowded() as listener:
        address = listener.getsockname()
        with socket.create_connection(address), socket.socket() as late:
            late.setblocking(False)
            late.connect_ex(address)  # the queue is full now
            with pytest.raises(OSError, match="timed out"):
                agent.transmit(address, task, TO_SECOND, agent.clock() + 100_000_000)
    with pytest.raises(ConnectionRefusedError):
        agent.transmit(address, task, TO_SECOND, agent.clock() + 100_000_000)


def test_lock_names_its_owner(driven: Driven) -> None:
    """Tests that a second agent for a host says who has it."""
    driven.prepare(force=False, address="127.0.0.9")
    second = Driven()
    try:
        busy = second.prepare(force=False, address="127.0.0.9")
        assert (busy["type"], busy["pid"]) == ("busy", driven.process.pid)
        assert busy["since"]
    finally:
        second.close()


def test_lock_is_released_by_a_kill(driven: Driven) -> None:
    """Tests that an agent killed with SIGKILL leaves no lock held."""
    driven.prepare(force=False, address="127.0.0.9")
    driven.close()
    second = Driven()
    try:
        assert second.prepare(force=False, address="127.0.0.9")["type"] == "ports"
    finally:
        second.stdin.close()
        second.process.wait(WAIT)
        second.close()


@pytest.mark.parametrize(
    ("late_s", "steal_s", "starved"),
    [
        (0.0, 0.0, False),
        (0.049, 0.0, False),
        (0.051, 0.0, True),
        (0.0, 0.015, False),
        (0.0, 0.017, True),
    ],
)
def test_who_is_starved(
    late_s: float, steal_s: float, starved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a quarter of a slot, or 2 % of four CPUs over it, is too much."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    slot = agent.Slot(0, 1.0, 1.2, "rtt", 1, True)
    assert agent.is_starved(slot, late_s, steal_s) is starved
