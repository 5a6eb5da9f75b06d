"""Random faults around ``cloudcoll run``: how often a job starts, ends, and hangs.

Each case is a job of a stand-in launcher, a rank map or none, and one to three faults:
signals at some moment to ``run`` or its group, an ignored SIGCHLD, a full or missing
disk, closed descriptors, limits, an odd environment, a dead daemon, a wrong map, a
launcher that refuses the order, and an error at some system call of ours. The job has
to start once, at most once if a signal came, and to end with its own code and output.

Python starts once and each case in a fork of it. Ends in 1 if a case went wrong;
``--only N`` repeats case N alone:

    python tests/soak/run_faults.py --cases 10000
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # forks have no threads

import cloudcoll.cli.run
from cloudcoll.cli import commands
from cloudcoll.rankmap import RankMap

HANG_S = 20.0
"""A job of at most 0.4 s that takes longer hangs."""

REFUSES = 213
"""Exit code of a launcher that can't place ranks, as Open MPI 5 has it."""

MARKS = 9
"""Descriptor on which a job says S when it starts and T when a signal comes."""

NAMES = ("a", "b", "c", "d")
VERSIONS = {
    "mpirun": "mpirun (Open MPI) 5.0.11",
    "mpiexec": "HYDRA build details:\n    Version:   4.3.2",
    "mpirun4": "mpirun (Open MPI) 4.1.8",
    "wrapper": "the site has its own",
}
LAUNCHER = """#!/bin/sh
[ "$*" = --version ] && {{ printf '%s\\n' '{version}'; exit; }}
case " $* " in *"{refused}"*) exit {refuses};; *" --do-not-launch "*) exit 0;; esac
for word; do case $word in --output-proctable=*) table=${{word#*=}};; esac; done
printf S >&9
[ -z "$table" ] || printf '%s' '{rows}' >"$table"
while [ "$1" != sh ] && [ "$1" != {job} ]; do shift; done
export OMPI_COMM_WORLD_RANK=0 PMI_RANK=0
exec "$@"
"""
QUICK = "#!/bin/sh\nprintf '%s' '{output}'; printf err >&2; exit {code}\n"
WAITS = "#!/bin/sh\nprintf '%s' '{output}'; sleep 0.3; exit {code}\n"
COUNTS = """#!/bin/sh
trap 'printf T >&9' {signals}
printf '%s' '{output}'
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done
exit {code}
"""
ERRORS = [
    *(OSError(number, os.strerror(number)) for number in (
        errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EMFILE, errno.EACCES,
        errno.ENETUNREACH, errno.ENOMEM, errno.EROFS,
    )),
    MemoryError(),
]  # fmt: skip
THREAD = "_thread.start_new_thread"
NO_THREAD = RuntimeError("can't start new thread")
"""What Python makes of a kernel that refuses a thread."""
AUDITED = (
    *("open", "os.mkdir", "os.listdir", "os.rename", "os.remove", "os.rmdir"),
    *("os.posix_spawn", "subprocess.Popen", "shutil.rmtree", "fcntl.flock"),
    *("socket.__new__", "socket.bind", "socket.sendto", "socket.connect"),
    THREAD,
)
"""Where `fails_at` may raise: what a kernel can refuse."""


@dataclass
class Case:
    """One job with its faults, and what came of it."""

    number: int
    argv: list[str]
    code: int
    output: str
    env: dict[str, str]
    faults: list[str] = field(default_factory=list)
    in_child: list[Callable[[], object]] = field(default_factory=list)
    closed: tuple[int, ...] = ()
    sent: int = 0
    to_group: bool = False
    after_s: float = 0.0

    def wrong(self, ended: Ended) -> str:
        """Return what went wrong, empty if nothing."""
        if ended.status is None:
            return "hangs"
        starts, told = ended.marks.count("S"), ended.marks.count("T")
        if starts > 1:
            return f"started {starts} times"
        if told > (self.sent > 0):
            return f"{told} signals in place of one"
        by_signal = (128 + self.sent, -self.sent) if self.sent else ()
        # A launcher that refused the order is not followed by another after a signal.
        unstarted = (*by_signal, REFUSES) if self.sent else ()
        if starts == 0 and ended.status not in unstarted:
            return f"not started, exit code {ended.status}"
        if starts and ended.status not in (self.code, *by_signal):
            return f"exit code {ended.status} in place of {self.code}"
        whole = not starts or 1 in self.closed or ended.status != self.code
        if not whole and ended.output != self.output:
            return f"output {ended.output[:40]!r}"
        return ""


@dataclass(frozen=True)
class Ended:
    """What a case left: its code (-n after signal n, None if it hangs) and words."""

    status: int | None
    marks: str
    output: str
    words: str


class Place:
    """Folders, launchers and maps that all cases share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.full = folder / "full"
        (folder / "hosts").write_text("".join(f"{name} slots=1\n" for name in NAMES))
        RankMap(tuple("acbd"), (1,) * 4, predicted={"given": 2.0}).save(folder / "map")
        RankMap(tuple("acbe"), (1,) * 4).save(folder / "other")
        RankMap(tuple("cabd"), (1,) * 4).save(folder / "moved")
        (folder / "damaged").write_text('{"schema": 1, "order": ["a"')
        self.dead = folder / "dead.sock"
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(self.dead))


def make(number: int, place: Place, folder: Path) -> Case:
    """Return a case of this number, with its launcher and job in `folder`."""
    source = random.Random(number)
    kind = source.choice(list(VERSIONS))
    body = source.choice((QUICK, QUICK, WAITS, COUNTS))
    code = source.choice((0, 0, 1, 3, 77, 213, 255))
    output = "x" * source.choice((0, 1, 5000, 200_000 if body == QUICK else 10))
    sent = source.choice((0, *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
    sent = source.choice((0, sent, signal.SIGUSR1, signal.SIGQUIT))
    job = folder / "job"
    names = "HUP INT QUIT USR1 TERM"
    job.write_text(body.format(output=output[:100_000], code=code, signals=names))
    output = output[:100_000]
    refused = source.choice(("--map-by seq", "no such word", "no such word"))
    launcher = folder / kind.rstrip("4")
    right = source.choice((0, 1, -1))
    rows = "".join(
        f"(rank, host, exe, pid) = ({rank}, {host}, app, 1)\n"
        for rank, host in enumerate("acbd"[::right] if right else "")
    )
    launcher.write_text(
        LAUNCHER.format(
            version=VERSIONS[kind], refused=refused, refuses=REFUSES, rows=rows, job=job
        )
    )
    for program in (launcher, job):
        program.chmod(0o755)
    maps = ("map", "map", "map", "other", "moved", "damaged", "")
    named = source.choice(maps)
    options = ["--map", str(place.folder / named)] if named else ["--no-probe"]
    options += source.choice(([], [], [], ["--inject", "shim"], ["--inject", "none"]))
    options += source.choice(([], [], ["--profile", str(folder / "profile")], ["-v"]))
    argv = ["cloudcoll", "run", *options, str(launcher)]
    argv += ["--hostfile" if kind != "mpiexec" else "-f", str(place.folder / "hosts")]
    env = {**os.environ, "CLOUDCOLL_HOME": str(folder / "home"), "TMPDIR": str(folder)}
    case = Case(number, [*argv, str(job)], code, output, env)
    # Where names of folders that are no paths end.
    case.in_child.append(lambda: os.chdir(folder))
    if sent:
        case.sent, case.to_group = sent, source.random() < 0.5
        case.after_s = source.uniform(0, 0.3)
        case.faults.append(f"signal {sent} {'to the group ' * case.to_group}")
    for fault in source.sample(FAULTS, source.choice((0, 1, 1, 2, 3))):
        fault(case, source, place)
        case.faults.append(fault.__name__)
    return case


def ignores_children(case: Case, source: random.Random, place: Place) -> None:
    """A parent that lets the kernel reap."""
    case.in_child.append(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))


def ignores_signals(case: Case, source: random.Random, place: Place) -> None:
    """As under nohup."""
    case.in_child.append(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    if case.sent == signal.SIGHUP:
        case.sent = 0


def blocks_signals(case: Case, source: random.Random, place: Place) -> None:
    """A parent that blocks some."""
    blocked = {signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD}
    case.in_child.append(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked))


def other_threads(case: Case, source: random.Random, place: Place) -> None:
    """Threads that may take what is sent to the process, as NumPy's do."""

    def start() -> None:
        for _ in range(3):
            waits = threading.Event().wait
            threading.Thread(target=waits, daemon=True).start()

    case.in_child.append(start)


def full_disk(case: Case, source: random.Random, place: Place) -> None:
    """No room for files of the plan, or for the state folder."""
    name = source.choice(("TMPDIR", "CLOUDCOLL_HOME"))
    case.env[name] = str(place.full / "home" if name != "TMPDIR" else place.full)


def no_folder(case: Case, source: random.Random, place: Place) -> None:
    """A folder that is not there, or cannot be one."""
    name = source.choice(("TMPDIR", "CLOUDCOLL_HOME"))
    case.env[name] = source.choice(("/proc/at/all", "/dev/null/x", "a\nb", ""))


def closed_files(case: Case, source: random.Random, place: Place) -> None:
    """Standard files that are closed."""
    case.closed = tuple(source.sample((0, 1, 2), source.choice((1, 2, 3))))


def few_files(case: Case, source: random.Random, place: Place) -> None:
    """As few descriptors as our own part may run into, and a job never."""
    most = source.randrange(24, 48)
    limit = (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    case.in_child.append(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))


def no_file_size(case: Case, source: random.Random, place: Place) -> None:
    """Files that may not grow."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    limit = (0, hard)
    case.in_child.append(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))


def odd_environment(case: Case, source: random.Random, place: Place) -> None:
    """Variables that mean something to us, to Python or to nobody."""
    odd = {
        "HOME": "/proc/nowhere",
        "CLOUDCOLL_RSH": "false",
        "CLOUDCOLL_MAP": "/none",
        "CLOUDCOLL_HOST": "nobody",
        "PYTHONIOENCODING": "ascii",
        "LANG": "xx_XX",
        "COLUMNS": "0",
        "SLURM_JOB_ID": "12",
        "OMPI_MCA_coll": "^tuned",
        "BASH_FUNC_module%%": "() {  echo; }",
        "\udcff": "\udcfe",
        "LARGE": "x" * 100_000,
    }
    for name in source.sample(sorted(odd), 4):
        case.env[name] = odd[name]


def dead_daemon(case: Case, source: random.Random, place: Place) -> None:
    """A socket of a daemon at which nobody listens, or no socket."""
    case.env["CLOUDCOLL_DAEMON"] = str(source.choice((place.dead, "/dev/null")))


def no_folder_here(case: Case, source: random.Random, place: Place) -> None:
    """A working directory that was removed."""

    def remove() -> None:
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)

    case.in_child.append(remove)


def fails_at(case: Case, source: random.Random, place: Place) -> None:
    """An error at some call of ours that a kernel can refuse, once."""
    error, left = source.choice(ERRORS), [source.randrange(1, 40)]

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event in AUDITED:
            left[0] -= 1
            if left[0] == 0:
                raise NO_THREAD if event == THREAD else error

    callback = cloudcoll.cli.run.command.callback
    assert callback is not None
    run: Callable[..., Any] = callback

    def arm(*args: Any, **options: Any) -> Any:
        sys.addaudithook(refuse)
        return run(*args, **options)

    case.in_child.append(lambda: setattr(cloudcoll.cli.run.command, "callback", arm))


FAULTS = (
    *(ignores_children, ignores_signals, blocks_signals, full_disk, no_folder),
    *(closed_files, few_files, no_file_size, odd_environment, dead_daemon),
    *(no_folder_here, other_threads, fails_at, fails_at, fails_at),
)


def execute(case: Case) -> Ended:
    """Run a case and return what came of it."""
    pipes = [os.pipe() for _ in range(3)]
    pid = os.fork()
    if not pid:
        _become(case, [writing for _, writing in pipes])
    for _, writing in pipes:
        os.close(writing)
    reading = {ours: bytearray() for ours, _ in pipes}
    status, start = None, time.monotonic()
    send_at = start + case.after_s if case.sent else None
    open_ = set(reading)
    while open_ or status is None:
        now = time.monotonic()
        if send_at and now >= send_at:
            send_at = None
            _send(case, pid)
        if now - start > HANG_S:
            break
        for ready in select.select(list(open_), [], [], 0.005)[0]:
            data = os.read(ready, 1 << 16)
            reading[ready] += data
            if not data:
                open_.discard(ready)
        if status is None:
            done, found = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(found) if done else None
            if done:
                send_at = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        os.waitpid(pid, 0)
    elif open_:
        status = None  # something of the job is left
    for ours in reading:
        os.close(ours)
    marks, output, words = (bytes(text).decode("latin-1") for text in reading.values())
    return Ended(status, marks, output, words)


def _send(case: Case, pid: int) -> None:
    """Send the signal of a case, unless its process has no group of its own yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if case.to_group else os.kill)(pid, case.sent)


def _become(case: Case, writing: Sequence[int]) -> NoReturn:
    """Be `cloudcoll run` in the child, with the faults of the case."""
    code = 99
    try:
        os.setsid()
        for descriptor, target in zip(writing, (MARKS, 1, 2), strict=True):
            os.dup2(descriptor, target, inheritable=True)
        os.closerange(MARKS + 1, 256)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.environ.clear()
        os.environ.update(case.env)
        sys.argv = case.argv
        for prepare in case.in_child:
            prepare()
        for number in case.closed:
            os.close(number)
            setattr(sys, ("stdin", "stdout", "stderr")[number], None)
        code = commands.run(None)
    except KeyboardInterrupt as stop:
        code = 128 + getattr(stop, "number", signal.SIGINT)
    except BaseException:
        with contextlib.suppress(OSError, AttributeError):
            traceback.print_exc()
    finally:
        os._exit(code)


def campaign(numbers: range, only: int | None) -> int:
    """Run cases, or one of them; say what went wrong, and return how often."""
    wrong, seen = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        place = Place(Path(scratch))
        os.mkdir(place.full)
        _fill(place.full)
        for number in [only] if only is not None else numbers:
            folder = place.folder / f"case-{number}"
            folder.mkdir()
            case = make(number, place, folder)
            ended = execute(case)
            seen.update(name.split()[0] for name in case.faults or ["none"])
            if fault := case.wrong(ended):
                wrong[fault.split(" in ")[0]] += 1
                print(f"case {number}: {fault}; {', '.join(case.faults)}", flush=True)
                print(f"  {' '.join(case.argv[1:])}\n  {ended.words[-600:]}")
            elif only is not None:
                print(ended, case.argv, case.faults)
            shutil.rmtree(folder, ignore_errors=True)
        os.system(f"umount {place.full} 2>/dev/null")
    print(f"{len(numbers)} cases; faults: {dict(seen)}")
    print(f"went wrong: {dict(wrong) or 'none'}")
    return wrong.total()


def _fill(folder: Path) -> None:
    """Make a disk without room of a folder; without root it is one that can't be."""
    if os.geteuid() == 0:
        os.system(f"mount -t tmpfs -o size=4k,nr_inodes=2 none {folder}")
        with contextlib.suppress(OSError):
            (folder / "filled").write_bytes(b"x" * 8192)
    else:
        folder.chmod(0o500)


def main() -> int:
    """Run the campaign, shared by the cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, with all it said")
    options = parser.parse_args()
    if options.only is not None:
        return 1 if campaign(range(1), options.only) else 0
    jobs = os.cpu_count() or 1
    workers = []
    for job in range(jobs):
        pid = os.fork()
        if not pid:
            last = options.first + options.cases
            wrong = campaign(range(options.first + job, last, jobs), None)
            sys.stdout.flush()
            os._exit(1 if wrong else 0)
        workers.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
