from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudcoll import lab as labs
from cloudcoll.errors import UsageError

Done = subprocess.CompletedProcess[str]
Inside = Callable[..., Done]

MPIRUN = Path(sys.executable).with_name("mpirun")
SEND = """
import hashlib, socket, sys
data = hashlib.shake_128(b"wire").digest(8_000_000)
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=120) as stream:
    stream.sendall(data)
"""
RECEIVE = """
import hashlib, socket
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    stream, _ = server.accept()
digest = hashlib.sha256()
while data := stream.recv(1 << 20):
    digest.update(data)
print(digest.hexdigest())
"""


@pytest.fixture(autouse=True)
def running(shared_lab: Callable[..., labs.Lab]) -> labs.Lab:
    """One lab for the whole file: its tests change nothing in it."""
    return shared_lab(labs.quick((2, 1, 1), 50e6, 50e6, rtt=400e-6))


def ssh(lab: labs.Lab, *arguments: str) -> Done:
    return subprocess.run(
        [lab.ssh, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.lab
def test_a_host_has_its_own_name_and_address(running: labs.Lab, inside: Inside) -> None:
    """Tests that hostname, interfaces and /etc/hosts are the host's own."""
    for host in ("vm-01", "vm-04", "head"):
        assert inside(running, host, "hostname").stdout == f"{host}\n"
        script = "import socket,sys; print(socket.gethostbyname(sys.argv[1]))"
        address = inside(running, "vm-02", sys.executable, "-c", script, host).stdout
        links = inside(running, host, "ip", "-json", "address", "show", "eth0").stdout
        (link,) = json.loads(links)
        assert [a["local"] for a in link["addr_info"]] == [address.strip()]


@pytest.mark.lab
def test_a_program_keeps_directory_code_and_streams(
    running: labs.Lab, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that cwd, exit code, stdout and stderr are the program's."""
    monkeypatch.chdir(tmp_path)
    done = inside(running, "vm-01", "sh", "-c", "pwd; echo oops >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{tmp_path}\n")
    assert done.stderr == "oops\n"


@pytest.mark.lab
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["/nonesuch"], 127),
        (["/etc/hosts"], 126),
    ],
)
def test_exit_codes_of_what_cannot_exit_well(
    running: labs.Lab, inside: Inside, argv: list[str], code: int
) -> None:
    """Tests that signals give 128 + n, and a failed start 126 or 127."""
    assert inside(running, "vm-01", *argv).returncode == code


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_program(running: labs.Lab, number: signal.Signals) -> None:
    """Tests that a signal to the command is the program's to handle."""
    # A handler with pause() would sleep through a signal that came just before.
    script = (
        "import signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{number:d}])\n"
        "print('ready', flush=True)\n"
        f"sys.exit(42 if signal.sigwait([{number:d}]) == {number:d} else 1)"
    )
    argv, env = labs.exec_argv(running, "vm-01", [sys.executable, "-c", script])
    program = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        assert program.wait(30) == 42


@pytest.mark.lab
@pytest.mark.parametrize("by_ssh", [True, False])
def test_the_program_dies_with_its_client(running: labs.Lab, by_ssh: bool) -> None:
    """Tests that SIGKILL of the client outside ends the program inside."""
    script = "echo ready; exec sleep 600"
    argv, env = labs.exec_argv(running, "vm-01", ["sh", "-c", script])
    client = subprocess.Popen(
        [running.ssh, "vm-01", script] if by_ssh else argv,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    with client.stdout:
        assert client.stdout.readline() == "ready\n"
        client.kill()
        client.wait()
        # The program holds the other end: this returns when it is gone.
        assert client.stdout.read() == ""


@pytest.mark.lab
def test_an_unknown_host_is_named(running: labs.Lab) -> None:
    """Tests that exec and ssh both say what they do not know."""
    with pytest.raises(UsageError, match=r"no host 'vm-99' .*vm-01 to vm-04"):
        labs.exec_argv(running, "vm-99", ["true"])
    done = ssh(running, "vm-99", "true")
    assert (done.returncode, done.stdout) == (255, "")
    assert "vm-99" in done.stderr


@pytest.mark.lab
@pytest.mark.parametrize(
    "arguments",
    [
        ["vm-02", "hostname"],
        ["-o", "BatchMode=yes", "-p", "22", "-l", "me", "vm-02", "hostname"],
        ["-x", "-oConnectTimeout=3", "-T", "me@vm-02", "hostname"],
        ["vm-02", "PATH=/bin:/usr/bin ; export PATH ; hostname"],
        ["-q", "--", "vm-02", "sh", "-c", "'hostname'"],
    ],
)
def test_ssh_takes_what_openssh_takes(running: labs.Lab, arguments: list[str]) -> None:
    """Tests that options are skipped and the words reach a shell on the host."""
    done = ssh(running, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "vm-02\n", "")


@pytest.mark.lab
def test_ssh_works_from_inside(running: labs.Lab, inside: Inside) -> None:
    """Tests that plain ssh on a host is the lab's, and passes the exit code on."""
    done = inside(running, "vm-01", "ssh", "vm-03", "hostname; exit 5")
    assert (done.returncode, done.stdout) == (5, "vm-03\n")


@pytest.mark.lab
def test_the_lab_is_found_from_inside(running: labs.Lab, inside: Inside) -> None:
    """Tests that a program in the lab can ask for the lab and enter its hosts."""
    root = str(Path(__file__).parents[2])
    script = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "from cloudcoll import lab; from cloudcoll.lab import entry\n"
        f"found = lab.find({running.name!r})\n"
        "sys.exit(entry.run(found, 'vm-04', ['hostname']))"
    )
    done = inside(running, "vm-01", sys.executable, "-c", script)
    assert (done.stdout, done.stderr) == ("vm-04\n", "")


@pytest.mark.lab
def test_bytes_cross_the_racks_intact(running: labs.Lab, inside: Inside) -> None:
    """Tests that large segments and their checksums survive the delayed links."""
    source, target = running.groups[0][0], running.groups[1][0]
    argv, env = labs.exec_argv(running, target, [sys.executable, "-c", RECEIVE])
    receiver = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    port = receiver.stdout.readline().strip()
    sent = inside(running, source, sys.executable, "-c", SEND, target, port)
    assert sent.returncode == 0, sent.stderr
    expected = hashlib.sha256(hashlib.shake_128(b"wire").digest(8_000_000))
    assert receiver.communicate(timeout=120)[0].strip() == expected.hexdigest()


@pytest.mark.lab
def test_latency_is_added_between_racks_only(running: labs.Lab, inside: Inside) -> None:
    """Tests that packets between racks are never much faster than asked.

    No upper bound: how late a busy machine delivers is for the benchmark.
    """
    script = (
        "import socket, sys, time\n"
        "client = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n"
        "times = []\n"
        "for _ in range(50):\n"
        "    start = time.perf_counter()\n"
        "    client.send(b'x'); client.recv(1)\n"
        "    times.append(time.perf_counter() - start)\n"
        "print(min(times))"
    )
    echo = (
        "import socket\n"
        "server = socket.create_server(('', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "stream, _ = server.accept()\n"
        "while data := stream.recv(1): stream.send(data)"
    )
    argv, env = labs.exec_argv(
        running, running.groups[0][0], [sys.executable, "-c", echo]
    )
    server = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout:
        port = server.stdout.readline().strip()
        client = (sys.executable, "-c", script, running.groups[0][0], port)
        fastest = float(inside(running, running.groups[2][0], *client).stdout)
    server.wait(30)
    assert fastest >= 0.8 * 400e-6


@pytest.mark.lab
def test_mpi_runs_over_the_lab(running: labs.Lab, inside: Inside) -> None:
    """Tests that unchanged mpirun starts one rank a host and MPI sums over TCP.

    The ranks have all cores of this machine to share, not the first alone.
    """
    script = (
        "import os, socket\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "names = world.gather(socket.gethostname())\n"
        "total = world.allreduce(world.rank)\n"
        "cores = world.allreduce(len(os.sched_getaffinity(0)), MPI.MIN)\n"
        "if world.rank == 0: print(*names, total, cores)\n"
    )
    mpirun = (str(MPIRUN), "--hostfile", str(running.hostfile), "-np", "4")
    done = inside(running, "head", *mpirun, sys.executable, "-c", script)
    cores = len(os.sched_getaffinity(0))
    assert done.stdout == f"vm-01 vm-02 vm-03 vm-04 6 {cores}\n", done.stderr


@pytest.mark.lab
def test_temporary_files_are_the_hosts_own(running: labs.Lab, inside: Inside) -> None:
    """Tests that two hosts can have a temporary file of one name."""
    script = 'echo $HOSTNAME >> "$TMPDIR/same"; cat "$TMPDIR/same"'
    for host in ("vm-01", "vm-02"):
        assert inside(running, host, "sh", "-c", script).stdout == f"{host}\n"
        assert ssh(running, host, script).stdout == f"{host}\n" * 2
    assert not Path("/dev/shm/same").exists()


@pytest.mark.lab
def test_outside_is_not_inside(running: labs.Lab) -> None:
    """Tests that this process is not taken for one of the lab's."""
    assert not running.inside()
    assert running.alive()
    assert shutil.which("ssh", path=os.environ["PATH"]) != str(running.ssh)
