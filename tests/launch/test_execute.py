from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from ports import own_port

from cloudcoll.errors import LaunchError
from cloudcoll.launch import (
    LaunchPlan,
    NoLauncher,
    launcher_version,
    written_files,
)
from cloudcoll.launch.execute import _cannot_map
from cloudcoll.launch.signals import IGNORED_BY_PYTHON, Dispositions, Witness

ROOT = Path(__file__).parents[2]

RUN = """
import json, sys
from cloudcoll.errors import LaunchError
from cloudcoll.launch import LaunchPlan, execute
from cloudcoll.launch.wrapper import Inbox
from cloudcoll.launch.openmpi import read_table
from cloudcoll.launch.plan import RankTable
from cloudcoll.launch.seal import PUBLIC
argv, files, table, strict, env, maps_only, port, summary = json.loads(sys.argv[1])
listed = RankTable(table, read_table) if table else None
roll = Inbox(("127.0.0.1",), port, PUBLIC) if port else None
plan = LaunchPlan(
    tuple(argv),
    files,
    ("a", "b"),
    listed,
    env=env,
    maps_only=tuple(maps_only),
    roll=roll,
    summary=summary,
)
say = lambda line: print(line, file=sys.stderr)
try:
    sys.exit(execute(plan, strict=strict, say=say))
except LaunchError as error:
    say(error)
    sys.exit(error.exit_code)
"""

COUNT_INTERRUPTS = """
import os, signal, sys, termios
count = 0
def interrupted(number, frame):
    global count
    count += 1
    os.write(1, b"interrupted\\n")  # not by print, which it may interrupt
signal.signal(signal.SIGINT, interrupted)
# Else a terminal drops what is printed while it sends the signal.
modes = termios.tcgetattr(0)
modes[3] |= termios.NOFLSH
termios.tcsetattr(0, termios.TCSANOW, modes)
os.write(1, b"up\\n")
while sys.stdin.readline() != "done\\n":
    pass
print("interrupts:", count)
"""


class Wrapper:
    """Starts plans in a process of their own, as a shell would."""

    def __init__(self, folder: Path) -> None:
        self.files = {str(folder / "job" / "hosts.seq"): "a\n"}
        self.table = str(folder / "job" / "ranks")

    def command(
        self,
        *argv: str,
        files: bool = True,
        table: bool = False,
        strict: bool = False,
        env: Mapping[str, str] | None = None,
        maps_only: Sequence[str] = (),
        port: int = 0,
        summary: str = "",
    ) -> list[str]:
        written, shown = self.files if files else {}, self.table if table else ""
        plan = [argv, written, shown, strict, env or {}, maps_only, port, summary]
        return [sys.executable, "-c", RUN, json.dumps(plan)]

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*argv, **options),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def wrapper(tmp_path: Path) -> Wrapper:
    return Wrapper(tmp_path)


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)],
)
def test_exit_code(wrapper: Wrapper, script: str, code: int, files: bool) -> None:
    """Tests that the exit code is passed on, 128 + n after signal n."""
    ended = wrapper.run("sh", "-c", script, files=files)
    # Without files the program took our place, and died by the signal itself.
    expected = -9 if code == 137 and not files else code
    assert ended.returncode == expected
    assert ended.stdout == ended.stderr == ""


@pytest.mark.parametrize("files", [True, False])
def test_program_that_cannot_start(
    wrapper: Wrapper, tmp_path: Path, files: bool
) -> None:
    """Tests that the exit codes are those of env, and the reason is told."""
    missing = wrapper.run("no-such-program", files=files)
    assert missing.returncode == 127
    where = "No such file or directory (it is not on the PATH)"
    assert missing.stderr == f"cannot run no-such-program: {where}\n"
    plain = tmp_path / "plain"
    plain.write_text("text\n")
    assert wrapper.run(str(plain), files=files).returncode == 126


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_signals_reach_the_child(wrapper: Wrapper, tmp_path: Path, name: str) -> None:
    """Tests that a signal sent to us ends the child, and nothing stays behind."""
    process = subprocess.Popen(
        wrapper.command("sh", "-c", "ulimit -c 0; echo up; exec sleep 60"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"up\n"
        number = getattr(signal, name)
        process.send_signal(number)
        assert process.wait(timeout=120) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_kill_reaches_the_child(wrapper: Wrapper) -> None:
    """Tests that the child does not outlive us when we are killed."""
    process = subprocess.Popen(
        wrapper.command("sh", "-c", "echo up; exec sleep 60"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"up\n"
        process.kill()
        # Its end of the pipe is closed.
        assert process.communicate(timeout=120)[0] == b""


def test_terminal_interrupt_comes_once(wrapper: Wrapper) -> None:
    """Tests that Ctrl-C at a terminal reaches the child once, not twice."""
    terminal = "import pty, sys; pty.spawn(sys.argv[1:])"
    command = wrapper.command(sys.executable, "-c", COUNT_INTERRUPTS)
    process = subprocess.Popen(
        [sys.executable, "-c", terminal, *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        lines = (line.strip().removeprefix("^C") for line in process.stdout)
        assert next(lines) == "up"
        for text, answer in (("\x03", "interrupted"), ("done\n", "interrupts: 1")):
            process.stdin.write(text)
            process.stdin.flush()
            assert answer in iter(lines)


@pytest.mark.parametrize("files", [True, False])
def test_variables_are_set(wrapper: Wrapper, files: bool) -> None:
    """Tests that the plan's variables go over those inherited, which stay."""
    show = ("sh", "-c", 'echo $CLOUDCOLL_TEST; test -n "$PATH"')
    env = {"CLOUDCOLL_TEST": "new value"}
    ended = wrapper.run(*show, files=files, env=env)
    assert (ended.returncode, ended.stdout) == (0, "new value\n")


def test_streams_are_inherited(wrapper: Wrapper) -> None:
    """Tests that stdin and a megabyte of output pass unchanged."""
    text = "0123456789abcdef" * 65536
    ended = subprocess.run(
        wrapper.command("sh", "-c", "cat; echo word >&2"),
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout == text
    assert ended.stderr == "word\n"


def test_signals_are_as_usual(wrapper: Wrapper) -> None:
    """Tests that the child finds no signal ignored or blocked because of us."""
    show = ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"]
    plain = subprocess.run(show, capture_output=True, text=True, timeout=120)
    for files in (True, False):
        ended = wrapper.run(*show, files=files)
        assert signal_masks(ended.stdout) == signal_masks(plain.stdout)


def signal_masks(status: str) -> list[int]:
    """Return the masks without 32 and 33, which the C library keeps to itself."""
    own = 3 << 31
    return [int(line.split()[1], 16) & ~own for line in status.splitlines()]


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("name", ["PIPE", "XFSZ", "HUP"])
def test_ignored_signals_stay_ignored(wrapper: Wrapper, name: str, files: bool) -> None:
    """Tests that what a shell has ignored is ignored in the job, and no more."""
    show = ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"]
    # Something after it, or the shell would become the program.
    ignoring = ["sh", "-c", f"trap '' {name}; \"$@\"; exit $?", "sh"]
    seen = [
        subprocess.run(
            [*ignoring, *command], cwd=ROOT, capture_output=True, text=True, timeout=120
        ).stdout
        for command in (show, wrapper.command(*show, files=files))
    ]
    plain, ours = map(signal_masks, seen)
    assert plain[1] >> (getattr(signal, f"SIG{name}") - 1) & 1
    assert ours == plain


@pytest.mark.parametrize("files", [True, False])
def test_an_ignored_sigchld_loses_no_exit_code(wrapper: Wrapper, files: bool) -> None:
    """Tests that a parent which has no use for it costs no code, and passes it on."""
    show = ("grep", "^SigIgn:", "/proc/self/status", "no such file")
    ended = subprocess.run(
        wrapper.command(*show, files=files),
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert int(ended.stdout.split()[1], 16) >> (signal.SIGCHLD - 1) & 1


COUNT = """
import signal
counts = {signal.SIGINT: 0, signal.SIGUSR2: 0}
signal.pthread_sigmask(signal.SIG_BLOCK, counts)
print("up", flush=True)
while True:
    number = signal.sigwait(counts)
    counts[number] += 1
    if number == signal.SIGUSR2:
        print("interrupts:", counts[signal.SIGINT], flush=True)
"""


def test_a_signal_to_the_group_comes_once(wrapper: Wrapper) -> None:
    """Tests that kill -INT -PGID reaches the job once, as kill -INT PID does."""
    process = subprocess.Popen(
        wrapper.command(sys.executable, "-c", COUNT),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "up\n"
            for count, send in enumerate(
                (os.killpg, os.kill, os.killpg, os.killpg, os.kill), 1
            ):
                send(process.pid, signal.SIGINT)
                # Taken one by one, by rising number: whoever has this had the other.
                process.send_signal(signal.SIGUSR2)
                assert process.stdout.readline() == f"interrupts: {count}\n"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


LATE = """
import os, signal, sys
from cloudcoll.launch import LaunchPlan, execute
code = execute(LaunchPlan((*sys.argv[1:],)), say=print, stay=True)
os.kill(os.getpid(), signal.SIGTERM)
sys.exit(code)
"""


def test_a_signal_that_comes_late_was_for_the_job() -> None:
    """Tests that one sent when the job is over leaves us its exit code."""
    command = [sys.executable, "-c", LATE, "sh", "-c", "exit 7"]
    assert subprocess.run(command, timeout=60).returncode == 7


def test_a_table_that_cannot_be_read(tmp_path: Path, wrapper: Wrapper) -> None:
    """Tests that the job goes on and ends as it would, and one line says why."""
    wrapper.table = "/proc/self/mem"  # whose first page is an I/O error
    ran = tmp_path / "ran"
    job = ("sh", "-c", f"echo >> {ran}; cat; exit 4")
    ended = wrapper.run(*job, table=True, strict=True, summary="order b a")
    assert (ended.returncode, ran.read_text()) == (4, "\n")
    assert ended.stderr == (
        "order b a; cannot tell where the ranks run: [Errno 5] Input/output error\n"
    )


def test_without_a_route_to_ourselves(tmp_path: Path, wrapper: Wrapper) -> None:
    """Tests that a network namespace whose loopback is down costs no second start."""
    ran = tmp_path / "ran"
    command = wrapper.command("sh", "-c", f"echo >> {ran}; exit 4", port=4000)
    alone = ["unshare", "--net", "--map-root-user"]
    ended = subprocess.run([*alone, *command], cwd=ROOT, stderr=-1, timeout=120)
    assert (ended.returncode, ran.read_text(), ended.stderr) == (4, "\n", b"")


def test_no_more_threads(tmp_path: Path, wrapper: Wrapper) -> None:
    """Tests that ranks which nobody can answer run all the same, once."""
    ran = tmp_path / "ran"
    command = wrapper.command("sh", "-c", f"echo >> {ran}; exit 4", port=4000)
    broken = "import threading; threading.Thread.start = None; "
    command[2] = broken + command[2]
    ended = subprocess.run(command, cwd=ROOT, stderr=-1, text=True, timeout=120)
    assert (ended.returncode, ran.read_text()) == (4, "\n")
    assert "only waiting for the job now" in ended.stderr


@pytest.mark.parametrize(
    ("job", "maps", "code", "said"),
    [
        ("exit 213", "exit 213", 125, "sh ended with 213: it can't place ranks"),
        ("exit 213", "exit 0", 213, ""),
        ("exit 7", "exit 213", 7, ""),
        ("exit 0", "exit 0", 0, ""),
    ],
)
def test_a_launcher_that_cannot_place_ranks(
    wrapper: Wrapper, job: str, maps: str, code: int, said: str
) -> None:
    """Tests that one has started none only if it fails alike without starting any."""
    maps_only = ("sh", "-c", maps)
    ended = wrapper.run("sh", "-c", job, table=True, maps_only=maps_only)
    assert (ended.returncode, ended.stderr[: len(said) or None]) == (code, said)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("printf '{row}\\n' > {table}; exit 213", ""),
        ("kill -TERM $PPID; sleep 1; exit 213", ""),
        ("mkdir {table}; exit 213", "cannot tell where the ranks run: "),
    ],
)
def test_a_job_that_began_is_not_started_again(
    wrapper: Wrapper, job: str, said: str
) -> None:
    """Tests ranks which were heard of or may have been, and a job told to stop."""
    row = "(rank, host, exe, pid) = (0, a, app, 1)"
    script = "trap : TERM; " + job.format(row=row, table=wrapper.table)
    maps_only = ("sh", "-c", "exit 213")
    ended = wrapper.run("sh", "-c", script, table=True, maps_only=maps_only)
    assert (ended.returncode, ended.stderr[: len(said) or None]) == (213, said)


def test_what_is_said_of_an_order(wrapper: Wrapper) -> None:
    """Tests that one line says which order, and that its ranks are in place."""
    right = TABLE.format("a", "b", wrapper.table, 0)
    ended = wrapper.run("sh", "-c", right, table=True, summary="order a b")
    assert ended.stderr == "order a b; all 2 ranks are in place\n"
    wrong = TABLE.format("b", "a", wrapper.table, 0)
    ended = wrapper.run("sh", "-c", wrong, table=True, summary="order a b")
    assert ended.stderr == (
        "order a b; the order did not take: rank 0 runs on b, planned on a\n"
    )
    ended = wrapper.run("true", table=True, summary="order a b")
    assert ended.stderr == "order a b; where the ranks run is not known\n"


def test_nothing_is_promised_of_a_job_that_never_began(wrapper: Wrapper) -> None:
    """Tests a launcher that ends in an error before any rank is heard of."""
    ended = wrapper.run("sh", "-c", "exit 3", table=True, summary="order a b")
    assert (ended.returncode, ended.stderr) == (3, "")


ROW = "(rank, host, exe, pid) = (%s, %s, app, 1)"
TABLE = f"printf '{ROW}\\n' 0 {{}} 1 {{}} > {{}}; exec sleep {{}}"


def test_mismatch_is_told(wrapper: Wrapper) -> None:
    """Tests that an order that did not take is told, and the job goes on."""
    right = TABLE.format("a", "b", wrapper.table, 0)
    wrong = TABLE.format("b", "a", wrapper.table, 0)
    assert wrapper.run("sh", "-c", right, table=True).stderr == ""
    ended = wrapper.run("sh", "-c", f"({wrong}); exit 5", table=True)
    message = "the order did not take: rank 0 runs on b, planned on a\n"
    assert (ended.returncode, ended.stderr) == (5, message)


def test_strict_stops_the_job(wrapper: Wrapper) -> None:
    """Tests that --strict ends a job whose order did not take, with 125."""
    wrong = TABLE.format("b", "a", wrapper.table, 60)
    ended = wrapper.run("sh", "-c", wrong, table=True, strict=True)
    assert ended.returncode == 125
    right = TABLE.format("a", "b", wrapper.table, 0)
    assert wrapper.run("sh", "-c", right, table=True, strict=True).returncode == 0


def test_a_silent_roll_keeps_no_table_waiting(wrapper: Wrapper) -> None:
    """Tests ranks that never report, in places that the table says are wrong."""
    wrong = TABLE.format("b", "a", wrapper.table, 60)
    begun = time.monotonic()
    ended = wrapper.run("sh", "-c", wrong, table=True, strict=True, port=own_port())
    assert (ended.returncode, time.monotonic() - begun < 30) == (125, True)


def with_limits(command: list[str], **seconds: float) -> list[str]:
    """Return a wrapper's command in which some of the time limits are others."""
    limits = "; ".join(f"execute.{name} = {value}" for name, value in seconds.items())
    # Of the same name is the function that the package has.
    module = "import cloudcoll.launch, sys; execute = sys.modules['{}']"
    before = f"{module.format('cloudcoll.launch.execute')}; {limits}\n"
    return [*command[:2], before + command[2], *command[3:]]


@pytest.mark.parametrize(
    ("trap", "limits", "said"),
    [("echo ended; exit", {}, "ended\n"), ("", {"STOP_SECONDS": 0.1}, "")],
)
def test_a_job_gets_time_to_stop(
    wrapper: Wrapper, trap: str, limits: dict[str, float], said: str
) -> None:
    """Tests that --strict ends a job by SIGTERM, and by SIGKILL if that is no use."""
    wrong = TABLE.format("b", "a", wrapper.table, 0).replace("exec", "")
    job = f"trap '{trap}' TERM; {wrong}; while :; do sleep 0.1; done"
    ended = subprocess.run(
        with_limits(
            wrapper.command("sh", "-c", job, table=True, strict=True), **limits
        ),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (125, said)


@pytest.mark.parametrize(
    ("hosts", "seconds", "found"),
    [
        ("ab", 60.0, "all 2 ranks are in place\n"),
        ("ba", 60.0, "the order did not take: rank 0 runs on b, planned on a\n"),
        ("ba", 0.0, ""),
    ],
)
def test_what_is_said_in_time(
    wrapper: Wrapper, hosts: str, seconds: float, found: str
) -> None:
    """Tests that a job is told of before its end, and compared at its start alone."""
    table = TABLE.format(*hosts, wrapper.table, 1)
    command = wrapper.command("sh", "-c", f"read _; {table}", table=True, summary="up")
    process = subprocess.Popen(
        with_limits(command, SETTLED_SECONDS=0.0, READ_BACK_SECONDS=seconds),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        late = "up; where the ranks run is not known yet\n"
        assert process.stderr.readline() == late
        assert process.communicate("\n", timeout=120)[1] == found
    assert process.returncode == 0


def test_no_table_no_word(wrapper: Wrapper) -> None:
    """Tests that a job without a table ends as if nobody had looked."""
    ended = wrapper.run("true", table=True, strict=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_files_are_private_and_go_away(tmp_path: Path) -> None:
    """Tests that the files are for this user alone, and only for a while."""
    path = tmp_path / "job" / "hosts.seq"
    plan = LaunchPlan(("true",), {str(path): "a\n"})
    with written_files(plan):
        assert path.read_text() == "a\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Tests that a folder that can't be made, or is there already, is refused."""
    (tmp_path / "job").mkdir()
    for folder in ("job", "no/where"):
        plan = LaunchPlan(("true",), {str(tmp_path / folder / "f"): "a\n"})
        with (
            pytest.raises(LaunchError, match=r"cannot write .* TMPDIR"),
            written_files(plan),
        ):
            pass
    # What was there before is not ours to remove.
    assert os.listdir(tmp_path) == ["job"]


def test_version(tmp_path: Path) -> None:
    """Tests that a launcher is asked for its version, or told why it can't be."""
    program = tmp_path / "mpirun"
    program.write_text('#!/bin/sh\necho "mpirun (Open MPI) 5.0.11 $*"\n')
    program.chmod(0o755)
    assert launcher_version(str(program)) == "mpirun (Open MPI) 5.0.11 --version\n"
    with pytest.raises(LaunchError, match="cannot run no-such: No such file"):
        launcher_version("no-such")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_a_parent_that_can_not_be_looked_at(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that nothing is then taken to be ignored, and the job may start."""

    def refuse(*words: object, **options: object) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not Dispositions.found().ignored & set(IGNORED_BY_PYTHON)


@pytest.mark.parametrize("error", [OSError(11, "try again"), MemoryError()])
@pytest.mark.parametrize("times", [1, 2])
def test_a_launcher_that_can_not_be_asked_at_once(
    error: Exception, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that it is asked twice, and that a job is not started again by an error."""
    left, run = [error] * times, subprocess.run

    def refuse(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        if left:
            raise left.pop()
        done: subprocess.CompletedProcess[str] = run(*words, **options)
        return done

    monkeypatch.setattr(subprocess, "run", refuse)
    plan = LaunchPlan(("mpirun",), maps_only=("sh", "-c", "exit 213"))
    assert _cannot_map(plan, 213, Dispositions.found()) == (times == 1)


def test_a_launcher_that_is_not_on_the_path() -> None:
    """Tests that only a name is looked for there."""
    with pytest.raises(
        LaunchError, match=r"run no-such: .* \(it is not on the PATH\)$"
    ):
        launcher_version("no-such")
    with pytest.raises(LaunchError, match=r"run /no/such: No such file or directory$"):
        launcher_version("/no/such")


def test_a_fork_without_memory_is_no_missing_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that what may go well another time is an error like others."""

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(LaunchError, match="cannot run mpirun: Resource") as raised:
        launcher_version("mpirun")
    assert not isinstance(raised.value, NoLauncher)


def test_a_witness_that_has_no_successor_was_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a signal to all counts as one though no process is left to start."""
    before = set(psutil.Process().children())
    with contextlib.closing(Witness()) as witness:
        (process,) = set(psutil.Process().children()) - before
        process.send_signal(signal.SIGUSR1)

        def refused(*_: object, **__: object) -> int:
            raise BlockingIOError(errno.EAGAIN, "no more processes")

        monkeypatch.setattr(os, "posix_spawn", refused)
        assert not witness.saw(signal.SIGUSR2)
        assert witness.saw(signal.SIGUSR1)
        assert not witness.saw(signal.SIGUSR1)
        assert set(psutil.Process().children()) == before
