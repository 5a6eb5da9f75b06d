"""Plain `run`'s probe in networks of the kernel's bridges and shapers, with real ssh.

The product was made in its own lab; here is another one, of which nothing is shared
with it: each host is a network namespace with an sshd, racks are bridges, cards and
uplinks the kernel's token buckets (tbf) or classes (htb) with a queue, and TCP is CUBIC
or BBR. In each a quick probe, and then one job of Open MPI in which a ring in
CloudColl's order and one in that of the true racks take turns; rows are as of
`benchmarks.grid`. Then, in the first one, a daemon, and an uplink that falls to a
fifth: after how many seconds is another order in force?

As root, with iproute2 and openssh-server:

    python -m benchmarks.bridged [--only WORD] [--repeats 4]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from benchmarks.emulated import CLOUDCOLL
from benchmarks.grid import (
    NO_RACKS,
    Outcome,
    figures,
    outcome,
    row,
    true_order,
)
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.result import BenchRun
from cloudcoll.measured.snapshot import load_snapshot

SSHD = "/usr/sbin/sshd"
PROGRAMS = ("ip", "tc", "ssh", "ssh-keygen", SSHD)

NAMED = "cloudcoll-bridged"
"""The namespaces' names begin with it."""

SWITCHES = f"{NAMED}-switches"
BURST_KIB = 128
"""Of the buckets: two of the largest packets that a card is given at once."""

SECONDS = 40
"""Of a job."""

FALLEN = 5
"""Times less that an uplink carries in the end."""

QUIET_S, PATIENCE_S, LOOK_S = 100.0, 180.0, 1.0
"""Seconds that a daemon has before the fall and after it, and between two looks."""

SOON_S = 60.0
"""In which another order should be in force."""


@dataclass(frozen=True)
class Bridged:
    """One network; rates in Mbit/s.

    Attributes
    ----------
    racks : str
        Hosts in each.
    card, uplink : float
    queue : float
        Milliseconds that a full one holds.
    shaper : str
        ``tbf`` or ``htb``.
    congestion : str
        TCP's.
    seed : int
        By which hosts are dealt.
    """

    racks: str
    card: float
    uplink: float
    queue: float
    shaper: str
    congestion: str
    seed: int

    @property
    def name(self) -> str:
        """What it is called in the table."""
        rates = f"{self.card:g}/{self.uplink:g}"
        queue = f"{self.queue:g}ms {self.shaper}"
        return f"{self.racks} {rates} {queue} {self.congestion}"

    @property
    def sizes(self) -> list[int]:
        """Hosts in each rack."""
        return [int(size) for size in self.racks.split(",")]

    @property
    def hosts(self) -> int:
        """Hosts in all of it."""
        return sum(self.sizes)

    def limits(self, hosts: int) -> bool:
        """Return as `Racked` has it."""
        return hosts > 1 and hosts * self.card > self.uplink


FAST = 1e4
"""Mbit/s of an uplink that no hosts here fill."""

NETWORKS = [
    Bridged("4,4,4,4", 100, 200, 50, "tbf", "cubic", 1),
    Bridged("5,3,6,2", 100, 100, 50, "tbf", "bbr", 2),
    Bridged("5,3,6,2", 400, 400, 50, "tbf", "cubic", 3),
    Bridged("4,4,4,4", 200, 400, 50, "tbf", "bbr", 4),
    Bridged("4,4,4,4", 100, 200, 5, "tbf", "bbr", 5),
    Bridged("7,1,4,4", 100, 200, 50, "htb", "cubic", 6),
    Bridged("7,1,4,4", 200, 400, 200, "tbf", "bbr", 7),
    Bridged("6,4,3", 100, 150, 20, "tbf", "cubic", 8),
    Bridged("9,7,8", 100, 400, 20, "tbf", "cubic", 9),
    Bridged("5,3,6,2", 200, 400, 100, "tbf", "bbr", 10),
    Bridged(NO_RACKS, 200, FAST, 50, "tbf", "bbr", 11),
    Bridged(NO_RACKS, 400, FAST, 200, "tbf", "cubic", 12),
]


def shell(*words: str) -> str:
    """Run a program of the system and return what it prints."""
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def within(space: str, *words: str) -> str:
    """Run a program in a network namespace."""
    return shell("ip", "netns", "exec", space, *words)


class Cluster:
    """A network that is up.

    Attributes
    ----------
    home : Path
        Of files; ``CLOUDCOLL_HOME``.
    racks : list of list of str
        Addresses of the hosts, by which they are called.
    """

    def __init__(self, network: Bridged, home: Path) -> None:
        self.network, self.home = network, home
        dealt = [f"10.77.0.{10 + n}" for n in range(network.hosts)]
        self.hosts = tuple(dealt)
        random.Random(network.seed).shuffle(dealt)
        left = iter(dealt)
        self.racks = [sorted(next(left) for _ in range(n)) for n in network.sizes]
        self.hostfile = home / "hosts"
        self.hostfile.write_text("".join(f"{host} slots=1\n" for host in self.hosts))

    def start(self) -> None:
        """Make namespaces, links and shapers, and start the sshd of each host."""
        keys = {name: self.home / name for name in ("key", "host-key")}
        for key in keys.values():
            shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        (self.home / "ssh").write_text(
            f"#!/bin/sh\nexec ssh -F /dev/null -i {keys['key']} -o LogLevel=ERROR "
            '-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$@"\n'
        )
        (self.home / "ssh").chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)
        shell("ip", "netns", "add", SWITCHES)
        self._bridge("core")
        for number, rack in enumerate(self.racks):
            bridge, ends = f"rack{number}", (f"up{number}", f"down{number}")
            self._bridge(bridge)
            within(
                SWITCHES,
                *("ip", "link", "add", ends[0], "type", "veth"),
                *("peer", "name", ends[1]),
            )
            for end, other in zip(ends, ("core", bridge), strict=True):
                self._plug(end, other, self.network.uplink)
            for host in rack:
                self._host(host, bridge)

    def _bridge(self, name: str) -> None:
        within(SWITCHES, "ip", "link", "add", name, "type", "bridge")
        within(SWITCHES, "ip", "link", "set", name, "up")

    def _plug(self, end: str, bridge: str, rate: float) -> None:
        """Put an end of a cable into a bridge, which sends to it so fast."""
        within(SWITCHES, "ip", "link", "set", end, "master", bridge, "up")
        self.shape(SWITCHES, end, rate)

    def _host(self, host: str, bridge: str) -> None:
        space, port = self.space(host), f"port{host.rpartition('.')[2]}"
        shell("ip", "netns", "add", space)
        shell(
            *("ip", "link", "add", "eth0", "netns", space, "type", "veth"),
            *("peer", "name", port, "netns", SWITCHES),
        )
        within(space, "ip", "link", "set", "lo", "up")
        within(space, "ip", "address", "add", f"{host}/24", "dev", "eth0")
        within(space, "ip", "link", "set", "eth0", "up")
        route = ("10.77.0.0/24", "dev", "eth0", "src", host)
        within(
            space, "ip", "route", "change", *route, "congctl", self.network.congestion
        )
        self.shape(space, "eth0", self.network.card)
        self._plug(port, bridge, self.network.card)
        options = {
            "ListenAddress": host,
            "HostKey": self.home / "host-key",
            "AuthorizedKeysFile": self.home / "key.pub",
            "StrictModes": "no",
            "PidFile": "none",
            "PermitRootLogin": "yes",
            "UsePAM": "no",
            "MaxStartups": 100,
        }
        words = [f"-o{name}={value}" for name, value in options.items()]
        within(space, *self._called(host), SSHD, "-f/dev/null", *words)

    def _called(self, host: str) -> tuple[str, ...]:
        """Return what runs a program on a machine of this name."""
        script = f'hostname vm-{host.rpartition(".")[2]}; exec "$@"'
        return ("unshare", "--uts", "sh", "-c", script, "sh")

    def space(self, host: str) -> str:
        """Return the name of a host's namespace."""
        return f"{NAMED}-{host}"

    def shape(self, space: str, device: str, rate: float) -> None:
        """Let a device send so many Mbit/s, with the network's queue before it."""
        burst, bits = f"{BURST_KIB}k", f"{rate:g}mbit"
        tc = ("tc", "qdisc", "replace", "dev", device)
        if self.network.shaper == "tbf":
            queue = ("latency", f"{self.network.queue:g}ms")
            within(space, *tc, "root", "tbf", "rate", bits, "burst", burst, *queue)
            return
        limit = max(int(rate * 125 * self.network.queue), BURST_KIB << 10)
        within(space, *tc, "root", "handle", "1:", "htb", "default", "1", "r2q", "1000")
        within(
            space,
            *("tc", "class", "replace", "dev", device, "parent", "1:"),
            *("classid", "1:1", "htb", "rate", bits, "burst", burst, "cburst", burst),
        )
        within(space, *tc, "parent", "1:1", "bfifo", "limit", str(limit))

    def fall(self, rack: int) -> None:
        """Let a rack's uplink carry less, both ways."""
        for end in (f"up{rack}", f"down{rack}"):
            self.shape(SWITCHES, end, self.network.uplink / FALLEN)

    def command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return what runs CloudColl on the first host, and its environment."""
        ssh = str(self.home / "ssh")
        argv = ["ip", "netns", "exec", self.space(self.hosts[0])]
        argv += [*self._called(self.hosts[0]), *CLOUDCOLL, *arguments]
        return argv, {
            **os.environ,
            "CLOUDCOLL_HOME": str(self.home),
            "CLOUDCOLL_RSH": ssh,
            "PRTE_MCA_plm_ssh_agent": ssh,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # All hosts share these cores: no rank may have one for itself.
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        }

    def cloudcoll(self, *arguments: str) -> str:
        """Run CloudColl on the first host and return what it prints."""
        argv, env = self.command(*arguments)
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True)
        # 1: some pairs gave no result, as may be on a busy machine.
        if done.returncode not in (0, 1):
            done.check_returncode()
        return done.stdout


def take_down() -> None:
    """Remove all namespaces of such a network, with what runs in them."""
    spaces = [line.split()[0] for line in shell("ip", "netns", "list").splitlines()]
    ours = [space for space in spaces if space.startswith(NAMED)]
    for space in ours:
        for number in shell("ip", "netns", "pids", space).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        shell("ip", "netns", "delete", space)


@contextlib.contextmanager
def cluster(network: Bridged) -> Iterator[Cluster]:
    """Start a network, and take it down in the end."""
    take_down()
    with tempfile.TemporaryDirectory() as folder:
        found = Cluster(network, Path(folder))
        try:
            found.start()
            yield found
        finally:
            take_down()


def measured(network: Bridged, repeats: int) -> Outcome:
    """Return what comes of a network."""
    with cluster(network) as made:
        snapshot, truth = made.home / "network.snap", made.home / "true-racks"
        truth.write_text("\n".join(true_order(made.racks)))
        hosts = ("--hostfile", str(made.hostfile))
        begin = time.perf_counter()
        made.cloudcoll("probe", "--quick", *hosts, "-o", str(snapshot))
        seconds = time.perf_counter() - begin
        runs = {}
        if repeats and network.racks != NO_RACKS:
            text = made.cloudcoll(
                *("bench", "--json", "--snapshot", str(snapshot)),
                *("--algorithm", "ring", "-b", "1M", "-e", "4M"),
                *("--repeats", str(repeats), "--seconds", str(SECONDS)),
                *("--orders", f"{truth},cloudcoll", "mpirun", *hosts),
            )
            runs["ring"] = BenchRun.from_json(text)
        return outcome(network, load_snapshot(snapshot), made.racks, runs, seconds)


def drift(network: Bridged) -> Figure:
    """Return the seconds until a daemon has another order after an uplink fell.

    They are `PATIENCE_S` if it has none by then.
    """
    with cluster(network) as made:
        socket = str(made.home / "socket")

        def order() -> list[str]:
            argv, env = made.command("daemon", "status", "--json", "--socket", socket)
            done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True)
            maps = json.loads(done.stdout)["maps"] if done.returncode == 0 else []
            return list(maps[0]["order"]) if maps else []

        argv, env = made.command(
            "daemon", "--hostfile", str(made.hostfile), "--socket", socket
        )
        with subprocess.Popen(argv, env=env) as daemon:
            try:
                wait_until(lambda: bool(order()), QUIET_S)
                time.sleep(QUIET_S)
                if not (before := order()):
                    sys.exit("bridged: the daemon has no order")
                begin = time.monotonic()
                made.fall(1)
                wait_until(lambda: order() not in ([], before), PATIENCE_S)
                seconds = time.monotonic() - begin
            finally:
                daemon.terminate()
    name = "bridged: until another order is in force"
    return Figure(name, seconds, unit="s", most=SOON_S)


def wait_until(happened: Callable[[], bool], seconds: float) -> None:
    """Return once something has happened, or after so many seconds without."""
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(LOOK_S)


def main() -> None:
    """Measure each network, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose names have this word")
    parser.add_argument(
        "--repeats", type=int, default=4, help="of each size; 0: no job"
    )
    json_option(parser)
    given = parser.parse_args()
    if os.geteuid() or not all(map(which, PROGRAMS)):
        sys.exit(f"bridged: as root alone, and with {', '.join(PROGRAMS)}")
    found = {}
    for network in (one for one in NETWORKS if given.only in one.name):
        found[network] = measured(network, given.repeats)
        print(row(network, found[network]), flush=True)
    write_figures(figures(found, "bridged"), given.json)
    if not given.only:
        write_figures([drift(NETWORKS[0])], given.json)


if __name__ == "__main__":
    main()
