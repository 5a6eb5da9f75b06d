"""A lab on a machine whose clock is set back while packets are on their way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudcoll import lab as labs

# Of two hosts, of which packets to and from one wait in a queue, too.
HOSTS = """
nic = "100mbit"
rtt = "20ms"
[[group]]
hosts = 1
[[group]]
hosts = 1
queue = "codel"
"""
# Once there is a file, the clock that people set is a minute behind the one that the
# kernel stamps packets with.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (clock == CLOCK_REALTIME && access(SET, F_OK) == 0)
        now->tv_sec -= 60;
    return code;
}
"""
SERVER = """
import socket
with socket.create_server(("", 7001)) as server:
    print("ready", flush=True)
    stream, _ = server.accept()
    while data := stream.recv(1 << 16):
        stream.sendall(data)
"""
CLIENT = """
import socket, sys, threading
from pathlib import Path
with socket.create_connection(("vm-02", 7001)) as stream:
    def send():
        stream.sendall(bytes(1 << 18))
        Path(sys.argv[1]).touch()
        stream.sendall(bytes(1 << 18))
        stream.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    print(sum(iter(lambda: len(stream.recv(1 << 16)), 0)))
"""


@pytest.mark.lab
def test_what_is_on_its_way_arrives(
    lab: Callable[[labs.LabSpec], labs.Lab],
    inside: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests a stream through wires, with queues and without, and back."""
    source, library, is_set, spec = (
        tmp_path / name for name in ("clock.c", "clock.so", "set", "hosts.toml")
    )
    spec.write_text(HOSTS)
    source.write_text(CLOCK)
    how = ["-shared", "-fPIC", f'-DSET="{is_set}"', "-o"]
    subprocess.run(["cc", *how, library, source, "-ldl"], check=True, timeout=60)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        where = lab(labs.read_spec(spec))
    argv, env = labs.exec_argv(where, "vm-02", [sys.executable, "-c", SERVER])
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            done = inside(where, "vm-01", sys.executable, "-c", CLIENT, str(is_set))
        finally:
            server.kill()
    assert is_set.exists()
    assert done.stdout == f"{2 << 18}\n", done.stderr
