"""What ``cloudcoll run`` loses to a daemon that is no help.

Times ``run --dry-run`` of a job of four hosts, in turns: without any daemon,
with a socket that nobody listens at, with one that answers garbage or talks
without end, and with a real daemon that is stopped (SIGSTOP).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.emulated import CLOUDCOLL
from benchmarks.record import ROOT, Figure, json_option, median_of, write_figures

LAUNCHER = "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        os.environ["CLOUDCOLL_HOME"] = home
        hosts = [f"127.0.0.{i} slots=1\n" for i in range(1, 5)]
        (folder / "hosts").write_text("".join(hosts))
        (folder / "mpirun").write_text(LAUNCHER)
        (folder / "mpirun").chmod(0o755)
        with contextlib.ExitStack() as stack:
            sockets = {
                "no daemon": folder / "none.sock",
                "nobody listens": stack.enter_context(deserted(folder)),
                "garbage": stack.enter_context(talking(folder, endless=False)),
                "without end": stack.enter_context(talking(folder, endless=True)),
                "stopped": stack.enter_context(stopped(folder)),
            }
            figures = compared(sockets, folder, options.repeats)
            write_figures(figures, options.json)


def compared(sockets: dict[str, Path], folder: Path, repeats: int) -> Iterator[Figure]:
    """Yield what each adds to the run without any daemon beside it."""
    taken: dict[str, list[float]] = {name: [] for name in sockets}
    for _ in range(repeats):
        for name, path in sockets.items():
            taken[name].append(seconds(path, folder))
    alone = taken["no daemon"]
    yield median_of("run with no daemon", alone, "s")
    for name, each in taken.items():
        if each is not alone:
            more = [a - b for a, b in zip(each, alone, strict=True)]
            yield median_of(f"run loses to a daemon, {name}", more, "s")
            most = f"run loses to a daemon, {name}, most of {repeats}"
            yield Figure(most, max(more), unit="s")


def seconds(path: Path, folder: Path) -> float:
    """Return how long a start takes with the daemon's socket at `path`."""
    argv = [*CLOUDCOLL, "run", "--dry-run", "--no-probe", str(folder / "mpirun")]
    argv += ["--hostfile", str(folder / "hosts"), "app"]
    begin = time.perf_counter()
    subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, "CLOUDCOLL_DAEMON": str(path)},
        check=True,
        capture_output=True,
        timeout=30,
    )
    return time.perf_counter() - begin


@contextlib.contextmanager
def deserted(folder: Path) -> Iterator[Path]:
    """Leave a socket as a killed daemon does."""
    path = folder / "deserted.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    yield path


@contextlib.contextmanager
def talking(folder: Path, *, endless: bool) -> Iterator[Path]:
    """Answer all that ask with noise."""
    path = folder / f"talking-{endless}.sock"

    def talk() -> None:
        while True:
            conn, _ = listener.accept()
            with conn, contextlib.suppress(OSError):
                conn.sendall(b"\0garbage\r\n" * 100)
                while endless:
                    conn.sendall(bytes(1 << 16))

    with socket.create_server(str(path), family=socket.AF_UNIX) as listener:
        threading.Thread(target=talk, daemon=True).start()
        yield path


@contextlib.contextmanager
def stopped(folder: Path) -> Iterator[Path]:
    """Start a daemon of these hosts, and stop it as soon as it listens."""
    path = folder / "stopped.sock"
    argv = [*CLOUDCOLL, "daemon", "--hostfile", str(folder / "hosts"), "--via", "local"]
    with subprocess.Popen([*argv, "--socket", str(path)], cwd=ROOT) as daemon:
        end = time.monotonic() + 60.0
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        daemon.send_signal(signal.SIGSTOP)
        try:
            yield path
        finally:
            daemon.kill()


if __name__ == "__main__":
    main()
