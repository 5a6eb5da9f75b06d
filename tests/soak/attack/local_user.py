"""Another user of a host: locks, sockets, secrets, programs that are setuid."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import test_unix
from driven import KEY, WAIT, Driven
from test_preloaded import LIBRARIES, PROGRAM

from attack.kit import (
    KEPT,
    LIMIT_S,
    STRANGER,
    argv,
    attack,
    by_stranger,
    hold,
    program,
    refused,
    stranger,
)
from cloudcoll.daemon.servers import served
from cloudcoll.launch import shim
from cloudcoll.launch.wrapper import own_addresses
from cloudcoll.rankmap import RankMap
from probes import agent

US = 23456
ADDRESS = "127.0.0.9"
AGENT_AS_US = """
import os, sys
sys.path.insert(0, sys.argv[1])
import fcntl
from probes import agent
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
"""


def squat(mode: int) -> str:
    """Have a stranger take folder and lock before a user's probe does."""
    from cloudcoll.programs import BOOTSTRAP

    own = Path(os.environ["TMPDIR"]) / f"cloudcoll-{US}"

    def take() -> None:
        os.umask(0)
        own.mkdir(mode=0o777)
        file = (own / agent.lock_name(ADDRESS)).open("w")
        os.chmod(file.name, mode)
        file.write("1 \x1b[31mevil")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        KEPT.append(file)

    command = [sys.executable, "-c", AGENT_AS_US.format(uid=US) + BOOTSTRAP]
    with stranger(take):
        driven = Driven(argv=[*command, os.environ["PYTHONPATH"]])
        try:
            told = driven.prepare(force=False, address=ADDRESS)
        finally:
            driven.close()
    hold(told["type"] == "ports", f"the probe is refused: {told}")
    hold("evil" not in told["unlocked"], "its text is passed on")
    return f"probed, and told: {told['unlocked'].rpartition(': ')[2]}"


@attack(root=True)
def block_probes_by_a_closed_lock() -> str:
    """Take the name of a user's lock first, with a file that is mode 600."""
    return squat(0o600)


@attack(root=True)
def block_probes_by_an_open_lock() -> str:
    """Take the name of a user's lock first, with a locked file for everybody."""
    return squat(0o666)


@attack(root=True)
def lead_a_lock_elsewhere() -> str:
    """Have a probe truncate a file, by a link where its lock would be."""
    dear = Path("dear")
    dear.write_text("dear")
    own = Path(os.environ["TMPDIR"]) / f"cloudcoll-{os.geteuid()}"

    def link() -> None:
        os.umask(0)
        own.mkdir()
        (own / agent.lock_name(ADDRESS)).symlink_to(dear.resolve())

    by_stranger(link)
    driven = Driven()
    try:
        told = driven.prepare(force=False, address=ADDRESS)
    finally:
        driven.close()
    hold(dear.read_text() == "dear", "the file was changed")
    return f"untouched; {told['unlocked'].rpartition(': ')[2]}"


@attack(root=True)
def read_the_session_key() -> str:
    """Read a probe's key from the agent's arguments, environment, memory or files."""
    driven = Driven()
    try:
        driven.prepare()
        pid = driven.process.pid

        def look() -> list[str]:
            found = []
            for name in ("cmdline", "environ", "mem", "fd/0"):
                try:
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        seen = file.read(1 << 20)
                except OSError:
                    continue
                if KEY.encode() in seen or bytes.fromhex(KEY) in seen:
                    found.append(name)
            return found

        found = by_stranger(look)
    finally:
        driven.close()
    hold(not found, f"the key is in {found}")
    return "neither arguments nor anything that others can read has it"


MPIEXEC = """#!/bin/sh
[ "$*" = --version ] && printf 'HYDRA build details:\\n    Version: 4.3.2\\n' && exit
while [ $# -gt 0 ] && [ "${1##*/}" != sh ]; do shift; done
for rank in 0 1; do PMI_RANK=$rank "$@" & done
wait
"""
"""Starts the first two of six ranks, both of them here, where they are wanted."""

HEXES = re.compile(r"[0-9a-f]{16,}")


def job(strict: bool) -> tuple[subprocess.Popen[str], Path]:
    """Start a job of two ranks that ends once there is a file; return both."""
    name = socket.gethostname()
    Path("mpiexec").write_text(MPIEXEC)
    Path("mpiexec").chmod(0o755)
    Path("hosts").write_text(f"{name}:2\nvm-2:2\nvm-3:2\n")
    RankMap((name, "vm-3", "vm-2"), (2, 2, 2)).save(Path("map.json"))
    go = Path("go")
    words = ["--strict"] if strict else []
    code = f"echo up; while [ ! -e {go.resolve()} ]; do sleep 0.05; done"
    command = ["./mpiexec", "-f", "hosts", "sh", "-c", code]
    process = subprocess.Popen(
        argv("run", "-v", *words, "--map", "map.json", *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    for _ in range(2):
        if process.stdout.readline() != "up\n":
            raise AssertionError(process.stderr and process.stderr.read())
    return process, go


def pry() -> dict[str, Any]:
    """Return what a stranger finds of the job in /proc: ports, words, variables."""
    ports, words, environs = set(), set(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            said = (folder / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        ports |= {int(port) for port in re.findall(r"\bp=(\d+)", said)}
        if "PMI_RANK" in said or "mpiexec" in said:
            words |= set(HEXES.findall(said))
        if "sleep 0.05" in said and os.stat(folder).st_uid != os.getuid():
            try:
                environs += b"CLOUDCOLL" in (folder / "environ").read_bytes()
            except OSError:
                continue
    return {"ports": sorted(ports), "words": sorted(words), "environs": environs}


def lie(told: dict[str, Any], address: str) -> Callable[[], int]:
    """Return what reports ranks on another host, with all that was found."""

    def say() -> int:
        sent = 0
        tokens = [*told["words"], "", "0" * 16]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for port in told["ports"]:
                for token in tokens:
                    for text in (
                        f"{token} at 2 evil-host",
                        f"{token} 2 evil-host",
                        f"{token[:16]} {token[:16]} at 2 evil-host",
                        f"{token} at 3 \x1b]0;owned\x07",
                    ):
                        sock.sendto(text.encode(), (address, port))
                        sent += 1
        return sent

    return say


def strike_a_job(strict: bool) -> str:
    """Pry and lie while a job runs, and see how it ends."""
    process, go = job(strict)
    try:
        told = by_stranger(pry)
        addresses = {*own_addresses(), "127.0.0.1"}
        sent = sum(by_stranger(lie(told, address)) for address in addresses)
        time.sleep(0.5)  # the reports are looked at now and then
        go.touch()
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    hold(told["ports"], "no listener was found: nothing was tried")
    hold(not told["environs"], "a stranger read the ranks' variables")
    hold("evil-host" not in err and "\x1b" not in err, f"believed: {err}")
    hold(process.returncode == 0, f"exit code {process.returncode}: {err}")
    last = err.splitlines()[-1] if err else "nothing said"
    ports, words = len(told["ports"]), len(told["words"])
    return f"{ports} port, {words} secret words, {sent} lies; job ended in 0: {last}"


@attack(root=True)
def kill_a_strict_job() -> str:
    """Find token and port in command lines, and report that a rank is elsewhere."""
    return strike_a_job(strict=True)


@attack(root=True)
def forge_where_ranks_run() -> str:
    """The same with a job that is not strict: hide a wrong order, print escapes."""
    return strike_a_job(strict=False)


@attack(root=True)
def take_all_places_of_the_daemon() -> str:
    """Hold every connection to a daemon for all users, so that others get none."""
    path = Path("sock").resolve()
    with (
        served(path, lambda: test_unix.EMPTY, all_users=True),
        test_unix.as_user(STRANGER, test_unix.HOG, path) as hog,
    ):
        assert hog.stdout
        assert hog.stdout.readline() == "here\n"
        with test_unix.as_user(STRANGER + 1, test_unix.ASKER, path) as asker:
            answered = int(asker.communicate(timeout=LIMIT_S)[0])
    hold(answered == 20, f"only {answered} of 20 questions were answered")
    return "20 of 20 questions of another user answered"


@attack(root=True)
def ask_a_private_daemon() -> str:
    """Connect to the socket of another user's daemon, made under umask 0."""
    os.umask(0)
    path = Path("sock").resolve()

    def ask() -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(path))
                sock.sendall(b"GET /v1/status HTTP/1.0\r\n\r\n")
                sock.settimeout(WAIT / 2)
                return sock.recv(100).decode()
            except OSError as error:
                return type(error).__name__

    with served(path, lambda: test_unix.EMPTY, all_users=False):
        told = str(by_stranger(ask))
    hold("HTTP" not in told, f"it answered: {told}")
    return told


@attack()
def have_a_daemon_delete_a_file() -> str:
    """Name a file, a folder and a link as the daemon's socket."""
    dear = Path("dear")
    dear.write_text("dear")
    Path("link").symlink_to(dear.resolve())
    Path("folder").mkdir()
    Path("hosts").write_text("127.0.9.1\n127.0.9.2\n")
    told = []
    for name in ("dear", "link", "folder"):
        words = ("--hostfile", "hosts", "--via", "local", "--socket", name)
        done = program("daemon", *words)
        hold(done.returncode == 2, f"{name}: exit code {done.returncode}")
        told.append(done.stderr.strip())
    hold(dear.read_text() == "dear", "the file is gone")
    hold(Path("link").is_symlink(), "the link is gone")
    hold(Path("folder").is_dir(), "the folder is gone")
    return told[0]


@attack(root=True)
def pose_as_the_daemon() -> str:
    """Put a socket where a user's `run` asks its daemon, and answer hostile maps."""
    path, asked = Path("home/daemon.sock"), Path("home/asked").resolve()
    Path("home").chmod(0o777)
    name = socket.gethostname()
    hostile = {"schema": 1, "order": ["-oProxyCommand=touch owned", "x\ny slots=8"]}
    body = json.dumps({**hostile, "slots": [1, 1]}).encode()

    def pose() -> None:
        import threading

        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path.resolve()))
        path.chmod(0o666)
        listener.listen()

        def serve() -> None:
            while True:
                conn, _ = listener.accept()
                with conn:
                    conn.recv(4096)
                    asked.touch()
                    conn.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

        threading.Thread(target=serve, daemon=True).start()

    Path("mpirun").write_text(
        '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || '
        'echo "ran $@"\n'
    )
    Path("mpirun").chmod(0o755)
    Path("hosts").write_text(
        "".join(f"{one} slots=1\n" for one in (name, "vm-2", "vm-3", "vm-4"))
    )
    with stranger(pose):
        run = ("run", "--no-probe", "./mpirun", "--hostfile", "hosts", "app")
        done = program(*run)
    hold(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    hold("Proxy" not in done.stdout and "slots=8" not in done.stdout, done.stdout)
    hold(not Path("owned").exists(), "a command ran")
    believed = "it was asked" if asked.exists() else "it was not asked"
    return f"{believed}; {done.stdout.strip()}; {done.stderr.strip()[:200]}"


@attack(root=True)
def preload_into_a_setuid_program() -> str:
    """Preload CloudColl's libraries into a program that is setuid."""
    Path("show.c").write_text(PROGRAM)
    subprocess.run(["cc", "-o", "show", "show.c"], check=True)
    env = {
        "LD_PRELOAD": ":".join(map(str, LIBRARIES)),
        "PATH": os.environ["PATH"],
        "RANK": "0",
        "LOCAL_RANK": "0",
        "CLOUDCOLL_HOST": "c",
        shim.ORDER: "c,a",
    }
    own = os.statvfs(".").f_flag & os.ST_NOSUID
    if own:
        return "not tried: this folder is mounted with nosuid"
    Path("show").chmod(0o755 | stat.S_ISUID)

    def run() -> list[str]:
        done = subprocess.run(["./show"], env=env, capture_output=True, text=True)
        return [done.stdout, done.stderr]

    out, err = by_stranger(run)
    hold(out == "0\n", f"its rank was rewritten: {out}")
    return f"not reached: {out.strip()} {err.strip()[:100]}"


@attack(root=True)
def hostile_variables_of_libraries() -> str:
    """Give the preloaded libraries variables with escapes, formats and megabytes."""
    Path("show.c").write_text(PROGRAM)
    subprocess.run(["cc", "-o", "show", "show.c"], check=True)
    odd = [
        "%n%n%s%s",
        "\x1b]0;owned\x07",
        "a," * 60_000,
        "-1",
        "c,a\nevil",
        "/dev/zero",
    ]
    names = {shim.ORDER, "RANK", "CLOUDCOLL_HOST", "CLOUDCOLL_MAP", "CLOUDCOLL_RANKS"}
    names |= {"CLOUDCOLL_SHIM_ROLL", "CLOUDCOLL_SHIM_KEY", "CLOUDCOLL_PROFILE"}
    usual = {"RANK": "0", "CLOUDCOLL_HOST": "c", shim.ORDER: "c,a"}
    preload = ":".join(map(str, LIBRARIES))
    count = 0
    for name in sorted(names):
        for value in odd:
            env = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload, **usual}
            done = subprocess.run(
                ["./show"], env={**env, name: value}, capture_output=True, timeout=5
            )
            count += 1
            hold(done.returncode >= 0, f"{name}={value[:30]!r} ends it by a signal")
            hold(b"\x1b" not in done.stderr, f"{name}: an escape is printed")
    return f"{count} environments: no crash, no escape"


@attack()
def hostile_rsh() -> str:
    """Name a remote shell whose words a shell would take for commands."""
    for rsh in (
        "ssh; touch owned",
        "$(touch owned)",
        "`touch owned`",
        "ssh\ntouch owned",
    ):
        done = program("probe", "-w", "vm-[1-2]", "--quick", CLOUDCOLL_RSH=rsh)
        hold(done.returncode in (1, 2, 3), f"{rsh!r}: exit code {done.returncode}")
        hold(not Path("owned").exists(), f"{rsh!r} ran a command")
    return "no shell reads it: " + done.stderr.splitlines()[0][:120]


@attack(root=True)
def change_a_config_of_a_daemon() -> str:
    """Have a daemon read options from a file that others can write, or own."""
    Path("hosts").write_text("127.0.9.1\n127.0.9.2\n")
    config = Path("daemon.toml")
    config.write_text('hostfile = "hosts"\nvia = "local"\nonce = true\n')
    ends = []
    for mode, owner in ((0o666, 0), (0o664, 0), (0o644, STRANGER)):
        os.chown(config, owner, owner)
        config.chmod(mode)
        done = program("daemon", "--config", config)
        hold(done.returncode == 2, f"mode {mode:o} of {owner}: {done.returncode}")
        ends.append(done.stderr.strip().splitlines()[-1])
    return ends[0]


@attack(root=True)
def trace_an_agent() -> str:
    """Attach to an agent or send it signals, as another user."""
    driven = Driven()
    try:
        driven.prepare()
        pid = driven.process.pid
        signals = by_stranger(refused(lambda: os.kill(pid, 9)))
        memory = by_stranger(refused(lambda: os.open(f"/proc/{pid}/mem", 0)))
        files = by_stranger(refused(lambda: os.listdir(f"/proc/{pid}/fd")))
        assert driven.process.poll() is None
    finally:
        driven.close()
    hold(signals and memory and files, f"{signals} {memory} {files}")
    return "signals, memory and descriptors are refused"
