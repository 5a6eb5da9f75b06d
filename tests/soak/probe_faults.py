"""What lost packets and strangers do to a probe's figures.

Two hosts of an emulated data centre, one of which loses packets both ways, in six
draws: the share lost and told, and the 10th percentile of the round trips against that
without loss. Then an agent on this machine whose ports are scanned: 64 idle
connections, and strangers' connects and datagrams each second; quantiles of
round trips without them, with them, and while they come to another agent of this
machine, which costs the same CPU; the three take turns. And an agent
killed at some moment, 200 times, or stopped, 10 times, which leaves its
connections half open: how often only its own row and column were lost, and how
much longer than planned a probe took. And probes that get SIGTERM under load: how
soon they were gone, and what was kept; and a hundred hosts of which one is unknown
and one is silent: how soon that was told. Run it on a quiet machine:

    python tests/soak/probe_faults.py
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # probes/ is not installed

from cloudcoll import lab as labs
from cloudcoll.hosts import Host
from cloudcoll.lab.state import Lab
from cloudcoll.measured.samples import RttSamples
from cloudcoll.probe import Conduct, plan_probes, run_probe
from cloudcoll.probe.agents import Agents
from cloudcoll.probe.frames import Decoder, encode
from cloudcoll.probe.shell import LabShell, Local, Ssh
from cloudcoll.programs import AGENT_ARGV, agent_source
from probes import agent

LAB = "probe-faults"
SAMPLES = 1000
SHARES = (0.0, 0.01, 0.05, 0.20)
DRAWS = 6
"""Labs in which packets are lost."""
KEY = "00" * 16
TURNS = 10
STRANGERS = (500, 5000)
"""Connects and datagrams of strangers in a second."""


def lossy(lab: Lab, share: float) -> RttSamples:
    """Return what a probe sees of two hosts, one of which loses packets."""
    hosts = lab.hosts[:2]
    labs.lose(lab, hosts[0].name, share)
    plan = replace(plan_probes(hosts), samples=SAMPLES, rtt_s=15.0)
    plan = replace(plan, passes=(("rtt", 1, False),))
    return run_probe(hosts, plan, LabShell(str(lab.ssh))).rtt


def show_loss() -> None:
    """Print a row for each share of lost packets, of several labs' draws of them."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        labs_seen = [every_share(seed) for seed in range(DRAWS)]
    print(
        "lost, both ways    sent  told lost  sigma  p10 against none, median and most"
    )
    for place, share in enumerate(SHARES):
        seen = [lab[place] for lab in labs_seen]
        sent = sum(int(rtt.sent[0]) for rtt in seen)
        told = 1 - sum(len(rtt.seconds) for rtt in seen) / sent
        lost = 1 - (1 - share) ** 2
        sigma = (lost * (1 - lost) / sent) ** 0.5
        change = [
            p10(rtt) / p10(lab[0]) - 1 for rtt, lab in zip(seen, labs_seen, strict=True)
        ]
        print(
            f"{lost:15.2%} {sent:7} {told:10.2%} {sigma:6.2%} "
            f"{np.median(change):+13.1%} {max(change, key=abs):+7.1%}"
        )


def every_share(seed: int) -> list[RttSamples]:
    """Return what a probe sees of each share in a lab, whose draws are `seed`'s."""
    rate, rtt = labs.parse_rate("400mbit"), labs.parse_duration("500us")
    # Links with a latency have a wire from the start, which draws by the lab's seed.
    spec = labs.quick(
        (2, 1), nic=rate, uplink=rate, rtt=rtt, rack_rtt=1e-4, seed=seed, preset="tuned"
    )
    lab = labs.up(spec, LAB)
    try:
        return [lossy(lab, share) for share in SHARES]
    finally:
        labs.down(LAB)


def p10(rtt: RttSamples) -> float:
    """Return the 10th percentile of the round trips in seconds."""
    return float(np.quantile(rtt.seconds, 0.10))


@contextlib.contextmanager
def running_agent() -> Iterator[tuple[int, int]]:
    """Start an agent that serves; yield its UDP and its TCP port."""
    with subprocess.Popen(
        AGENT_ARGV, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source = agent_source()
        process.stdin.write(b"%d\n" % len(source) + source)
        process.stdin.write(encode("prepare", **prepare_fields()))
        decoder, frames = Decoder(), []  # type: Decoder, list[dict[str, Any]]
        while len(frames) < 2:
            frames += decoder.feed(os.read(process.stdout.fileno(), 1 << 16))
        yield frames[1]["udp"], frames[1]["tcp"]
        process.stdin.close()  # which ends it


def prepare_fields() -> dict[str, Any]:
    """Return what an agent needs to serve as one of two hosts."""
    plan = plan_probes((Host("a"), Host("b")))
    return {
        **plan.parameters(),
        "position": 0,
        "key": KEY,
        "address": "127.0.0.1",
        "life_s": 600.0,
        "force": True,
    }


def intrude(udp: int, tcp: int, rate: int, active: Event) -> None:
    """Connect and send junk `rate` times a second while `active` is set."""
    junk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    idle: list[socket.socket] = []
    while True:
        active.wait()
        while len(idle) < agent.STRANGERS:
            idle.append(socket.create_connection(("127.0.0.1", tcp)))
        begin = time.monotonic()
        for _ in range(rate // 100):
            with socket.socket() as sock:
                # Gone at once: no port of ours is left waiting.
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                sock.connect(("127.0.0.1", tcp))
            junk.sendto(b"x" * agent.PACKET, ("127.0.0.1", udp))
        time.sleep(max(0.0, 0.01 - (time.monotonic() - begin)))
        idle = [sock for sock in idle if is_open(sock)]


def is_open(sock: socket.socket) -> bool:
    """Return whether the agent has not closed a connection yet."""
    try:
        return sock.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@contextlib.contextmanager
def intruder(udp: int, tcp: int, rate: int) -> Iterator[Event]:
    """Start a process of strangers; yield what has them come."""
    active = multiprocessing.Event()
    stranger = multiprocessing.Process(
        target=intrude, args=(udp, tcp, rate, active), daemon=True
    )
    stranger.start()
    try:
        yield active
    finally:
        stranger.terminate()
        stranger.join()


def show_strangers(rate: int) -> None:
    """Print round trips of an agent when strangers come, to it or to another one."""
    fields = json.loads(json.dumps(prepare_fields()))
    task = agent.read_task({**fields, "samples": 5000, "ports": 8})
    taken: dict[str, list[int]] = {"alone": [], "beside": [], "attacked": []}
    with (
        running_agent() as (udp, tcp),
        running_agent() as other,
        intruder(udp, tcp, rate) as attacked,
        intruder(*other, rate) as beside,
    ):
        for number, (_, name) in enumerate(itertools.product(range(TURNS), taken)):
            for active, whom in ((attacked, "attacked"), (beside, "beside")):
                (active.set if name == whom else active.clear)()
            time.sleep(0.2)  # until what went before has drained
            limit = agent.clock() + int(5e9)
            slot = agent.Slot(number, 0.0, 5.0, "rtt", 0, True)
            trips = agent.ping(("127.0.0.1", udp), task, slot, limit)
            taken[name] += trips["ns"]
    for name, seen in taken.items():
        quantiles = [float(np.quantile(seen, q)) / 1e3 for q in (0.1, 0.5, 0.99)]
        print(f"{rate:9} {name:>9}", *(f"{us:9.1f}" for us in quantiles))


def show_kills(runs: int, how: signal.Signals) -> None:
    """Print what came of probes on this machine that lost an agent on the way."""
    hosts = tuple(Host(f"vm-{i}", f"127.0.0.{i + 1}") for i in range(5))
    plan = replace(plan_probes(hosts, concurrency=1), rtt_s=0.05, samples=12)
    plan = replace(plan, passes=(("rtt", 5, False), ("load", 1, False)))
    reports = sum(len(slot.pairs) for slot in plan.rounds())
    alone, over = 0, []
    for seed in range(runs):
        rng = random.Random(seed)
        victim, moment = rng.randrange(5), rng.randrange(1, reports // 2)

        def progress(done: int, _: int, at: int = moment, who: int = victim) -> None:
            if done == at:
                me = os.getpid()
                children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
                os.kill(int(children[who]), how)

        begin = time.perf_counter()
        found = run_probe(hosts, plan, Local(), Conduct(progress=progress))
        over.append(time.perf_counter() - begin - plan.most_seconds)
        live = [i for i in range(5) if i != victim]
        pairs = np.isfinite(found.latency.values[np.ix_(live, live)]).sum()
        alone += list(found.failed) == [f"vm-{victim}"] and pairs == 4 * 3
    print(f"{runs} agents, {how.name}: {alone} times only their own pairs were lost;")
    print(f"the slowest probe took {max(over):+.2f} s against its plan")


def show_interrupts(runs: int) -> None:
    """Print what SIGTERM at some moment under load leaves of a probe of 5 hosts."""
    rng, took, kept, agents = random.Random(0), [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder, "a.snap.partial")
        words = ("probe", "-w", "127.0.0.[1-5]", "--via", "local", "--quick", "-o")
        argv = [sys.executable, "-m", "cloudcoll.cli", *words, f"{folder}/a.snap"]
        for _ in range(runs):
            spool.unlink(missing_ok=True)
            with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as probe:
                while not (spool.exists() and b'"flow"' in spool.read_bytes()):
                    time.sleep(0.01)
                time.sleep(rng.uniform(0.0, 0.7))
                children = Path(f"/proc/{probe.pid}/task/{probe.pid}/children")
                started = children.read_text().split()
                begin = time.perf_counter()
                probe.terminate()
                assert probe.wait() == 128 + signal.SIGTERM
                took.append(time.perf_counter() - begin)
            agents += sum(Path("/proc", pid).exists() for pid in started)
            kept += spool.read_bytes().count(b'"type":"rtt"') == 5 * 4 // 2
    print(f"{runs} probes, SIGTERM under load: gone after {max(took):.2f} s at most,")
    print(f"all that was measured kept {kept} times, {agents} agents left")


def show_absent(count: int) -> None:
    """Print how soon one unknown and one silent host among others are told."""
    names = [f"127.0.1.{i + 1}" for i in range(count - 2)]
    names[count // 3 : count // 3] = ["no-such-host.invalid", "silent"]
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        tempfile.TemporaryDirectory() as folder,
    ):
        rsh = Path(folder, "rsh")
        own = f"-p {mute.getsockname()[1]} -o HostName=127.0.0.1"
        rsh.write_text(
            '#!/bin/sh\ncase $6 in\n127.*) shift 6; exec sh -c "$*";;\n'
            f'silent) exec ssh {own} "$@";;\nesac\nexec ssh "$@"\n'
        )
        rsh.chmod(0o755)
        hosts = tuple(Host(name) for name in names)
        with Ssh(str(rsh)).starts(hosts) as starts, Agents(starts) as agents:
            begin = time.perf_counter()
            agents.start()
            took = time.perf_counter() - begin
            failed = {a.name: a.failed for a in agents.agents if a.failed}
    print(f"{count} hosts: after {took:.1f} s all have answered but {failed}")


def show_all_strangers() -> None:
    """Print a table of round trips by the strangers that come."""
    print("strangers  they come       p10    median  p99 [us]")
    for rate in STRANGERS:
        show_strangers(rate)


PARTS: dict[str, Callable[[], None]] = {
    "kills": lambda: show_kills(200, signal.SIGKILL),
    "stops": lambda: show_kills(10, signal.SIGSTOP),
    "interrupts": lambda: show_interrupts(20),
    "absent": lambda: show_absent(100),
    "loss": show_loss,
    "strangers": show_all_strangers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    for name in [options.only] if options.only else PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
