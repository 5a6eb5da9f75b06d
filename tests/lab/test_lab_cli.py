from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudcoll import lab as labs

Run = Callable[..., subprocess.CompletedProcess[str]]
PODS = Path(__file__).parents[1] / "data" / "lab-pods.toml"


@pytest.fixture
def up(command_line: Run) -> Iterator[Run]:
    """Start labs by the command line; the default one is taken down after."""
    yield lambda *arguments: command_line("up", *arguments)
    labs.down()


@pytest.mark.lab
def test_the_commands_of_a_day(up: Run, command_line: Run) -> None:
    """Tests up, status, hosts, exec, fault and down as a user types them."""
    started = up("--file", str(PODS))
    assert started.returncode == 0, started.stderr
    assert "7 hosts, RTT 500 us across the root" in started.stdout
    assert "lab exec -- mpirun --hostfile" in started.stdout
    assert command_line("status").stdout == started.stdout
    assert command_line("hosts").stdout.splitlines()[0].startswith("vm-01 slots=")
    groups = command_line("hosts", "--true-groups", "--json").stdout
    assert [len(group) for group in json.loads(groups)] == [3, 2, 2]
    assert command_line("exec", "--", "hostname").stdout == "head\n"
    assert command_line("exec", "hostname").stdout == "head\n"
    assert command_line("exec", "vm-02", "hostname").stdout == "vm-02\n"
    assert (none := command_line("exec", "vm-02")).returncode == 125
    assert "no command" in none.stderr
    assert "no host 'vm-99'" in command_line("exec", "vm-99", "--", "true").stderr
    assert command_line("exec", "vm-02", "--", "sh", "-c", "exit 9").returncode == 9
    assert "10.00% lost" in (
        command_line("fault", "loss", "vm-01", "10%").stdout
        and command_line("status").stdout
    )
    status = json.loads(command_line("status", "--json").stdout)
    assert (status["faults"]["vm-01"]["loss"], status["dead_wires"]) == (0.1, [])
    assert command_line("fault", "heal").stdout == "healed: vm-01\n"
    again = up()
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.count("\n") == 1
    assert "already up with 7 hosts" in again.stderr
    assert command_line("down").stdout == "lab 'default' is down\n"
    assert command_line("down").returncode == 0


@pytest.mark.lab
def test_a_daemon_of_a_lab(lab: Callable[..., labs.Lab]) -> None:
    """Tests that --lab alone names the hosts."""
    name = lab(labs.quick((2, 1))).name
    argv = [sys.executable, "-m", "cloudcoll.cli", "daemon", "--lab", name]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        assert "keeping 3 hosts" in daemon.stderr.readline()
        daemon.kill()


@pytest.mark.lab
def test_up_prints_json(up: Run) -> None:
    """Tests that --json has the racks, the hosts and the backend."""
    result = json.loads(up("--racks", "2,1", "--rtt", "0", "--json").stdout)
    assert [len(group) for group in result["groups"]] == [2, 1]
    assert [host["name"] for host in result["hosts"]] == ["vm-01", "vm-02", "vm-03"]
    assert result["backend"] in ("netem", "wire")


@pytest.mark.lab
def test_options_change_a_preset(up: Run) -> None:
    """Tests that status says what the network is like, as text and as JSON."""
    options = (
        *("--preset", "packets", "--racks", "1,2/1", "--uplink-queue", "8ms"),
        *("--rto", "8ms", "--congestion", "reno", "--hogs", "1"),
        *("--traffic", "rack-1:pod-2:10mbit", "--nic-jitter", "30us"),
        *("--pod-uplink", "800mbit", "--rtt", "200us"),
    )
    started = up("--dry-run", *options)
    assert "gso_max_size" in started.stdout
    assert "rto_min 8ms congctl reno" in started.stdout
    done = up("--json", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["character"] == {
        "preset": "packets",
        "racks": [1, 2, 1],
        "cards": ["400 Mbit/s, queue: 64 packets, jitter up to 30 us"],
        "uplinks": [
            "800 Mbit/s, queue: 8 ms, 50 us each way",
            "400 Mbit/s, queue: 8 ms",
        ],
        "rto_s": 0.008,
        "congestion": "reno",
        "hogs": 1,
        "traffic": ["rack-1 to pod-2, 10 Mbit/s"],
        "delayed_by": json.loads(done.stdout)["backend"],
    }


@pytest.mark.lab
def test_dry_run_starts_nothing(up: Run) -> None:
    """Tests that --dry-run prints what would be typed, and that is all."""
    done = up("--racks", "1,1", "--nic", "1gbit", "--dry-run")
    assert "link add eth0 address 02:00:0a:4d:00:01 type veth peer" in done.stdout
    assert "tbf rate 1000000000bit" in done.stdout
    as_json = up("--racks", "1,1", "--dry-run", "--json").stdout
    assert json.loads(as_json)["hosts"] == ["vm-01", "vm-02", "head"]
    assert "was not up" in labs.down()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("up", "--racks", "4,x"), 2, "not a list of numbers"),
        (("up", "--racks", "0"), 2, "hosts = 0 is not"),
        (("up", "--nic", "fast"), 2, "'fast' is not a rate"),
        (("up", "--preset", "fast"), 2, "no preset 'fast' (known: cloud, deep"),
        (("up", "--queue", "long"), 2, "'long' is not a queue"),
        (("up", "--traffic", "a:b:1mbit"), 2, "no group 'a' for cross traffic"),
        (("up", "--file", "x.toml", "--hogs", "1"), 2, "--hogs and --file"),
        (("up", "--file", "x.toml", "--nic", "1gbit"), 2, "--nic and --file"),
        (("exec", "--", "true"), 125, "no lab 'default' is up"),
        (("exec", "vm-01"), 125, "no lab 'default' is up"),
        (("hosts",), 1, "no lab 'default' is up"),
        (("fault", "kill", "vm-01"), 1, "no lab 'default' is up"),
    ],
)
def test_errors_are_one_line(
    command_line: Run, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    """Tests that a mistake ends in its exit code and one line on stderr."""
    done = command_line(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
