from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from needs import WIRES

from cloudcoll import lab as labs
from cloudcoll.errors import UsageError
from cloudcoll.lab.faults import LinkFault, dead_wires, run_inside
from cloudcoll.lab.link import SWITCH

Start = Callable[[labs.LabSpec], labs.Lab]
Inside = Callable[..., subprocess.CompletedProcess[str]]

TWO = labs.quick((2,), 50e6, 50e6)
TWO_EASY = labs.quick((2,), 50e6, 50e6, preset="tuned")
POLICED = labs.quick((2,), 50e6, 50e6, preset="policed")
TWO_FAR = labs.quick((1, 1), 50e6, 50e6, rtt=400e-6, rack_rtt=200e-6)

links = pytest.mark.parametrize(
    "spec", [TWO, TWO_FAR, POLICED], ids=["plain", "delayed", "policed"]
)
"""With a wire and without."""

ASK = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.settimeout(float(sys.argv[3]))
answers = 0
for number in range(int(sys.argv[4])):
    try:
        sender.sendto(b"%d" % number, (sys.argv[1], int(sys.argv[2])))
        while sender.recv(16) != b"%d" % number:
            pass
        answers += 1
    except TimeoutError:
        pass
print(answers)
"""
ANSWER = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 7777))
print("ready", flush=True)
while True:
    data, sender = server.recvfrom(16)
    server.sendto(data, sender)
"""


@pytest.fixture
def answers(inside: Inside) -> Callable[..., int]:
    """Count the answers that one host gets from another."""

    def count(
        lab: labs.Lab, source: str, target: str, tries: int = 3, wait: float = 0.2
    ) -> int:
        argv, env = labs.exec_argv(lab, target, [sys.executable, "-c", ANSWER])
        server = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        with server.stdout:
            assert server.stdout.readline() == "ready\n"
            ask = (sys.executable, "-c", ASK, target, "7777", str(wait), str(tries))
            try:
                done = inside(lab, source, *ask)
            finally:
                server.terminate()
                server.wait(30)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    return count


@pytest.mark.parametrize(
    ("text", "expected"), [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("0", 0.0)]
)
def test_shares_are_read(text: str, expected: float) -> None:
    """Tests that a share may be written with a percent sign or without."""
    assert labs.parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "101%", "-1%", "x"])
def test_bad_shares_are_refused(text: str) -> None:
    """Tests that what is not from 0 to 1 is refused."""
    with pytest.raises(UsageError, match="not a share of packets"):
        labs.parse_share(text)


@pytest.mark.many
@pytest.mark.lab
@links
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_dropped_direction_is_silent_until_healed(
    shared_lab: Start, answers: Callable[..., int], spec: labs.LabSpec, direction: str
) -> None:
    """Tests drop and heal on links with and without a wire."""
    running = shared_lab(spec)
    assert answers(running, "vm-01", "vm-02", wait=10) == 3
    labs.drop(running, "vm-02", direction)
    assert labs.faults(running) == {
        "vm-02": LinkFault(drop_in=direction == "in", drop_out=direction == "out")
    }
    assert answers(running, "vm-01", "vm-02") == 0
    assert labs.heal(running) == "healed: vm-02"
    assert labs.faults(running) == {}
    assert answers(running, "vm-01", "vm-02", wait=10) == 3


@pytest.mark.many
@pytest.mark.lab
@links
def test_a_late_host_answers_late_until_healed(
    shared_lab: Start, answers: Callable[..., int], spec: labs.LabSpec
) -> None:
    """Tests a round trip of 2 s more, on links with and without a wire."""
    running = shared_lab(spec)
    assert labs.delay(running, "vm-01", 2.0) == "vm-01: its round trips take 2 s longer"
    assert "vm-01: late by 2 s" in labs.show_lab(running)
    # One alone: to a second question came the answer to the first.
    assert answers(running, "vm-01", "vm-02", tries=1, wait=1.9) == 0
    assert answers(running, "vm-01", "vm-02", tries=1, wait=20) == 1
    labs.heal(running)
    assert answers(running, "vm-01", "vm-02", tries=1, wait=1.9) == 1


@pytest.mark.lab
def test_loss_loses_some(shared_lab: Start, answers: Callable[..., int]) -> None:
    """Tests that half of the packets lost leaves some answers, not all."""
    running = shared_lab(TWO)
    labs.lose(running, "vm-01", 0.5)
    # All or none of 60 would be a chance of one in ten million.
    assert 0 < answers(running, "vm-01", "vm-02", tries=60, wait=0.05) < 60


@pytest.mark.lab
def test_faults_add_up_and_heal_one_host_at_a_time(shared_lab: Start) -> None:
    """Tests that a second fault keeps the first, and heal takes one host's."""
    running = shared_lab(TWO)
    labs.slow(running, "vm-01", 12.5e6)
    labs.lose(running, "vm-01", 0.05)
    labs.drop(running, "vm-02", "in")
    assert labs.faults(running)["vm-01"] == LinkFault(loss=0.05, rate=12.5e6)
    assert "vm-01: 5.00% lost, slowed to 100 Mbit/s" in labs.show_lab(running)
    assert labs.heal(running, "vm-01") == "healed: vm-01"
    assert list(labs.faults(running)) == ["vm-02"]


@pytest.mark.lab
def test_slow_and_heal_set_the_rate(shared_lab: Start, inside: Inside) -> None:
    """Tests that the card's rate is changed, never raised, and restored."""
    running = shared_lab(TWO_EASY)

    def rate() -> str:
        return inside(running, "vm-01", "tc", "qdisc", "show", "dev", "eth0").stdout

    assert "rate 400Mbit" in rate()
    labs.slow(running, "vm-01", 12.5e6)
    assert "rate 100Mbit" in rate()
    labs.slow(running, "vm-01", 125e6)
    assert "rate 400Mbit" in rate()
    labs.slow(running, "vm-01", 12.5e6)
    labs.heal(running)
    assert "rate 400Mbit" in rate()


@pytest.mark.lab
def test_a_killed_host_goes_silent(
    shared_lab: Start, inside: Inside, answers: Callable[..., int]
) -> None:
    """Tests that processes die, peers hear nothing, and ssh finds no route."""
    running = shared_lab(TWO)
    victim = subprocess.Popen(
        [running.ssh, "vm-02", "echo ready; exec sleep 600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    with victim.stdout:
        assert victim.stdout.readline() == "ready\n"
        labs.kill(running, "vm-02")
        assert victim.wait(30) != 0
    ssh = subprocess.run(
        [running.ssh, "vm-02", "true"], capture_output=True, text=True, timeout=120
    )
    assert (ssh.returncode, "No route to host" in ssh.stderr) == (255, True)
    assert inside(running, "vm-01", "hostname").stdout == "vm-01\n"
    assert answers(running, "vm-01", "vm-02", wait=0.1) == 0
    labs.heal(running)
    assert answers(running, "vm-01", "vm-02", wait=10) == 3


@pytest.mark.lab
def test_healing_takes_the_wire_out_again(shared_lab: Start, inside: Inside) -> None:
    """Tests that a link that got a wire for a fault is plain again after it."""
    running = shared_lab(TWO)

    def links() -> set[str]:
        shown = subprocess.run(
            [*running.nsenter(), "ip", "-br", "link"],
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        return {line.split("@")[0].split()[0] for line in shown.splitlines()}

    before = links()
    labs.drop(running, "vm-01", "in")
    labs.heal(running)
    assert links() == before
    assert list((running.directory / "wires").iterdir()) == []


@pytest.mark.lab
def test_traffic_flows_and_heal_ends_it(shared_lab: Start, inside: Inside) -> None:
    """Tests that bytes arrive at the rate's scale and stop when healed."""
    running = shared_lab(TWO)
    labs.start_traffic(running, "vm-01", "vm-02", 12.5e6, seconds=60)
    (flow,) = (running.directory / "flows").iterdir()
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "count = Path('/sys/class/net/eth0/statistics/rx_bytes')\n"
        "until = time.monotonic() + 30\n"
        "while int(count.read_text()) < 1_000_000:\n"
        "    assert time.monotonic() < until, 'no traffic'\n"
        "    time.sleep(0.01)\n"
    )
    done = inside(running, "vm-02", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert labs.heal(running) == "healed: 1 streams of traffic"
    assert not flow.exists()


@pytest.mark.lab
def test_unknown_hosts_are_refused(shared_lab: Start) -> None:
    """Tests that no fault is tried on a host that isn't there."""
    running = shared_lab(TWO)
    for attempt in (labs.kill, labs.heal):
        with pytest.raises(UsageError, match="no host 'vm-9'"):
            attempt(running, "vm-9")
    with pytest.raises(UsageError, match="no host 'vm-9'"):
        labs.start_traffic(running, "vm-01", "vm-9", 1e6, 1.0)
    assert labs.faults(running) == {}


END_WIRE = """
for process in /proc/[0-9]*; do
  tr '\\0' ' ' < $process/cmdline | grep -q wires/vm-01 || continue
  kill ${process#/proc/}
  while [ -d $process ]; do :; done
done
"""


@pytest.mark.lab
def test_a_wire_that_ended_is_reported(lab: Start) -> None:
    """Tests that the table names the link that carries nothing any more."""
    running = lab(TWO_FAR)
    if running.backend != "wire":
        WIRES.skip()
    assert dead_wires(running) == []
    assert "!" not in labs.show_lab(running)
    run_inside(running, SWITCH, "sh", "-s", text=END_WIRE)
    assert dead_wires(running) == ["vm-01"]
    assert "! vm-01: its wire program has ended" in labs.show_lab(running)
