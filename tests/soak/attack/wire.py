"""Strangers at the ports that a probe and a job open."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing

from driven import KEY, WAIT, Driven, greet
from test_agent_under_attack import (
    GUESSES,
    OTHER,
    answers,
    attempt,
    both,
    echoed,
    is_reset,
    recorded,
    refused,
    request,
)

from attack.kit import attack, hold
from cloudcoll.launch import choose_inbox
from cloudcoll.launch.seal import COOKIE, Seal, new_secret
from cloudcoll.launch.wrapper import Mailbox
from probes import agent

ADDRESSES = 200


@contextlib.contextmanager
def probing() -> Iterator[tuple[Driven, dict[str, int]]]:
    """Start an agent and let a probe begin; yield it and its ports."""
    one = Driven()
    try:
        yield one, one.prepare()
    finally:
        one.close()


@attack()
def guess_a_key_byte_by_byte() -> str:
    """Learn from when and how a greeting ends how much of it was right."""
    names = sorted(GUESSES) * 6
    random.Random(19).shuffle(names)
    with probing() as (_, ports), contextlib.ExitStack() as opened:
        address = ("127.0.0.1", ports["tcp"])
        begun = []
        for place, name in enumerate(names):
            begin = time.monotonic()
            sock = attempt(address, GUESSES[name], f"127.1.{place}.1")
            begun.append((name, begin, opened.enter_context(sock)))
        took = []
        for name, begin, sock in begun:  # in the order in which they end
            hold(is_reset(sock), f"{name}: not ended by a reset")
            took.append(time.monotonic() - begin)
            hold(took[-1] > agent.STRANGER_LIFE - 0.1, f"{name}: after {took[-1]} s")
    return f"{len(took)} greetings: all reset, after {min(took):.2f}-{max(took):.2f} s"


@attack()
def guess_many_keys_from_one_address() -> str:
    """Send one wrong greeting after the other as fast as the port takes them."""
    source, tries = "127.7.0.1", 0
    wrong = bytes(agent.NONCE + agent.HELLO.size)
    with probing() as (driven, ports), contextlib.ExitStack() as opened:
        for _ in range(agent.STRANGERS_ALIKE):
            sock = socket.create_connection(
                ("127.0.0.1", ports["tcp"]), WAIT, (source, 0)
            )
            opened.enter_context(sock).sendall(wrong)
            tries += 1
        # All are judged when their time is over, the door is shut then.
        limit = time.monotonic() + agent.STRANGER_LIFE + 1.0
        while time.monotonic() < limit and answers(ports["tcp"], source):
            tries += 1
            time.sleep(0.05)
        hold(not answers(ports["tcp"], source), "it is still heard")
        hold(answers(ports["tcp"], "127.7.0.2"), "others are not heard any more")
        assert driven.process.poll() is None
    return f"{tries} connections, then the door was shut"


@attack()
def guess_proofs_of_datagrams() -> str:
    """Send requests with the right head and random proofs."""
    rng = random.Random(7)
    right = request(KEY, 1)
    forged = [right[:-16] + rng.randbytes(16) for _ in range(2000)]
    with probing() as (_, ports):
        for first in range(0, len(forged), 50):
            hold(
                not echoed(ports["udp"], forged[first : first + 50], KEY),
                "a forged request was answered",
            )
    return f"{len(forged)} forged requests, none answered"


@attack()
def replay_within_a_probe() -> str:
    """Say again what a host of the probe has said, from another address."""
    packets = [request(KEY, number) for number in range(40)]
    with probing() as (_, ports):
        hold(len(echoed(ports["udp"], packets, KEY)) == 40, "hosts are not answered")
        back = echoed(ports["udp"], packets * 5, KEY)
    hold(not back, f"{len(back)} replays were answered")
    return "200 replays, none answered"


@attack()
def replay_across_probes() -> str:
    """Say in a probe all that was said in the one before: both ports."""
    packets = [part for n in range(40) for part in both(KEY, n)]
    one = Driven()
    try:
        ports = one.prepare(key=OTHER)
        hold(not echoed(ports["udp"], packets, OTHER), "a datagram was answered")
        hold(refused(ports["tcp"], recorded()), "a stream was let in")
    finally:
        one.close()
    return "80 datagrams and a stream of an earlier probe: nothing"


@attack()
def amplify() -> str:
    """Have an agent send more than it gets: long, short, and cut requests."""
    rng = random.Random(5)
    packets = [
        request(KEY, number)[:size].ljust(size, b"\0")
        for number in range(300)
        for size in [rng.choice([0, 1, 63, 65, 512, 1400])]
    ]
    with probing() as (_, ports):
        back = echoed(ports["udp"], packets[:150], KEY)
        back += echoed(ports["udp"], packets[150:], KEY)
    hold(not back, f"{len(back)} were answered")
    return f"{len(packets)} requests of other lengths, none answered"


@attack()
def trickle_a_greeting() -> str:
    """Keep a place by saying one byte every 0.2 s."""
    said = bytes(agent.NONCE + agent.HELLO.size)
    with probing() as (_, ports):
        begin = time.monotonic()
        with closing(socket.create_connection(("127.0.0.1", ports["tcp"]))) as sock:
            for byte in said:
                try:
                    sock.sendall(bytes([byte]))
                except ConnectionError:
                    break
                time.sleep(0.2)
                hold(time.monotonic() - begin < 7, "it was not cut off")
    return f"cut off after {time.monotonic() - begin:.1f} s"


@attack()
def flood_the_stream_port() -> str:
    """Take all places of greetings from 200 addresses, while a host begins a flow."""
    host = "127.9.0.1"
    with probing() as (driven, ports), contextlib.ExitStack() as opened:
        driven.meet(ports, host)
        address = ("127.0.0.1", ports["tcp"])
        descriptors = f"/proc/{driven.process.pid}/fd"
        before = len(os.listdir(descriptors))
        let_in = 0
        for place in range(2 * ADDRESSES):
            source = f"127.10.{place % ADDRESSES}.1"
            sock = socket.create_connection(address, WAIT, (source, 0))
            opened.enter_context(sock)
            with contextlib.suppress(ConnectionError):  # it had to make room
                sock.sendall(b"x" * 5)
            if place % 50 == 0:
                with socket.create_connection(address, WAIT, (host, 0)) as member:
                    greet(member)
                    let_in += 1
        held = len(os.listdir(descriptors)) - before
        hold(held <= 2 * agent.STRANGERS + let_in, f"{held} are held")
        assert driven.process.poll() is None
    return f"{2 * ADDRESSES} strangers, {held} held; the host got in {let_in} times"


def tries_until_answered(port: int, slot: int) -> int:
    """Return how many requests of a host it takes until one is answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.1)
        sock.connect(("127.0.0.1", port))
        for number in range(10):
            asked, reply = both(KEY, number, slot)
            sock.send(asked)
            with contextlib.suppress(TimeoutError):
                if sock.recv(100) == reply:
                    return number + 1
    hold(False, "a host was not answered")
    return 0


@attack()
def flood_the_datagram_port() -> str:
    """Send 20,000 datagrams in bursts from 200 addresses, while a host asks."""
    rng = random.Random(3)
    tries = []
    with probing() as (driven, ports):
        for place in range(ADDRESSES):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.bind((f"127.11.{place}.1", 0))
                for _ in range(100):
                    junk = rng.randbytes(agent.PACKET)
                    sock.sendto(junk, ("127.0.0.1", ports["udp"]))
                if place % 20 == 19:
                    tries.append(tries_until_answered(ports["udp"], 100 + place))
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    hold(not sock.recv(100), "junk was answered")
        assert driven.process.poll() is None
    return f"{100 * ADDRESSES} datagrams; a host had its answer by request {max(tries)}"


@attack()
def forge_reports_of_ranks() -> str:
    """Tell `run` where ranks are: with no secret, and with the cookie off the wire."""
    inbox = choose_inbox()
    mailbox = Mailbox(inbox, 8)
    copied = Seal(inbox.secret[:COOKIE] + new_secret()[COOKIE:])
    address = (inbox.addresses[0], inbox.port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for at in range(3000):
            sock.sendto(copied.close(f"at {at % 8} evil-host"), address)
            sock.sendto(Seal(new_secret()).close(f"at {at % 8} evil-host"), address)
            sock.sendto(b"at %d evil-host" % (at % 8), address)
            if at % 500 == 0:
                mailbox.seen()
        sock.sendto(Seal(inbox.secret).close("at 2 vm-2"), address)
    seen = mailbox.seen()
    mailbox.close()
    hold("evil-host" not in seen.values(), f"a forged report was believed: {seen}")
    hold(seen == {2: "vm-2"}, f"a rank's report was lost: {seen}")
    return "9000 forged reports, none believed; the rank's own came through"


@attack()
def change_a_report_by_replay() -> str:
    """Copy a rank's report, and replay an older one of another job."""
    inbox = choose_inbox()
    mailbox, seal = Mailbox(inbox, 8), Seal(inbox.secret)
    address = (inbox.addresses[0], inbox.port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(Seal(new_secret()).close("at 1 vm-of-last-job"), address)
        first = seal.close("at 1 vm-1")
        sock.sendto(first, address)
        hold(mailbox.seen() == {1: "vm-1"}, f"{mailbox.seen()}")
        # A byte more, a MAC of another rank, an escape in place of a name.
        sock.sendto(first + b"0", address)
        sock.sendto(first.replace(b"at 1", b"at 3"), address)
        sock.sendto(seal.close("at 4 \x1b]0;owned\x07"), address)
        sock.sendto(seal.close("at 9999999 vm-9"), address)
        for _ in range(100):
            sock.sendto(first, address)
    seen = mailbox.seen()
    mailbox.close()
    hold(seen == {1: "vm-1"}, f"believed: {seen}")
    return "copies, changed ones and those of another job changed nothing"
