"""Run a launch plan so that nobody notices who started it.

The child inherits stdin, stdout, stderr and the terminal as they are. Signals
reach it, its exit code is passed on, and what it needed is gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.launch.readback import Check, reading_back
from cloudcoll.launch.roll import calling_roll

VERSION_SECONDS = 5.0
"""The launcher has this long to answer ``--version``."""

READ_BACK_SECONDS = 600.0
"""A start that takes longer is not compared with its plan."""

STOP_SECONDS = 10.0
"""A job that has to stop gets this long before it is killed."""

POLL_SECONDS = 0.02
"""Between two looks at the table of ranks."""

IDLE_SECONDS = 3600.0
"""Between two looks at the job when a signal has to come first anyway."""

FORWARDED = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
"""Signals that are meant for the job."""

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the program should find as usual."""

PR_SET_PDEATHSIG = 1
"""Of prctl(2): what a process gets when its parent is gone."""

SI_KERNEL = 0x80
"""``si_code`` of a signal from the terminal, which the child gets as well."""

Say = Callable[[str], None]


def launcher_version(program: str, seconds: float = VERSION_SECONDS) -> str:
    """Return what `program` prints when it is asked for its version.

    Raises
    ------
    LaunchError
        It can't be run, or does not answer within `seconds`.
    """
    try:
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"cannot run {program}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{program} --version did not answer") from error
    return answer.stdout.decode(errors="replace")


@contextlib.contextmanager
def written_files(plan: LaunchPlan) -> Iterator[None]:
    """Have the plan's files there for the time of the context.

    Their folder is made for this user alone and removed at the end.

    Raises
    ------
    LaunchError
        They can't be written.
    """
    made: list[Path] = []
    try:
        try:
            for folder in {Path(path).parent for path in plan.files}:
                folder.mkdir(mode=0o700)
                made.append(folder)
            for path, text in plan.files.items():
                with open(path, "x", opener=_private) as file:
                    file.write(text)
        except OSError as error:
            # Of a disk that is full no name is told.
            where = error.filename or " or ".join(plan.files)
            raise LaunchError(
                f"cannot write {where}: {error.strerror} (choose another place with "
                "TMPDIR)"
            ) from error
        yield
    finally:
        for folder in made:
            # The job is over: what can't be removed is no reason to fail it.
            shutil.rmtree(folder, ignore_errors=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def execute(plan: LaunchPlan, *, strict: bool = False, say: Say = print) -> int:
    """Run the plan and return its exit code, 128 + n after signal n.

    A plan without files, whose ranks are not asked where they are, takes this
    process over and does not return.

    Parameters
    ----------
    plan : LaunchPlan
    strict : bool
        Stop a job whose order did not take, and return 125.
    say : callable
        Takes the line about an order that did not take.

    Raises
    ------
    LaunchError
        A file of the plan can't be written; nothing was started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if not plan.needs_us:
        for number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(plan.argv[0], plan.argv, {**os.environ, **plan.env})
        except OSError as error:
            return _not_started(plan, error, say)
    with (
        written_files(plan),
        reading_back(plan, say) as check,
        _held_signals() as mask,
    ):
        try:
            child = _spawn(plan, mask)
        except OSError as error:
            return _not_started(plan, error, say)
        # Only now: forking beside a thread is not safe.
        with calling_roll(plan.roll, say) as heard:
            checks = [heard, *([check] if check else [])]
            child.returncode = _wait(child.pid, checks, strict, say)
        return child.returncode


def _not_started(plan: LaunchPlan, error: OSError, say: Say) -> int:
    """Say why the program can't be run; exit codes as those of ``env``."""
    say(f"cannot run {plan.argv[0]}: {error.strerror}")
    return 127 if isinstance(error, FileNotFoundError) else 126


@contextlib.contextmanager
def _held_signals() -> Iterator[set[signal.Signals]]:
    """Hold signals back so that they can be taken one by one.

    Yields the mask that was in force before.
    """
    waited_for = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        # Whatever came after the end of the job was meant for the job.
        while signal.sigtimedwait(waited_for, 0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(plan: LaunchPlan, mask: set[signal.Signals]) -> subprocess.Popen[bytes]:
    """Start the command; a SIGKILL that ends this process ends it as well."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    env = {**os.environ, **plan.env}
    # Popen gives the signals back that Python ignores.
    return subprocess.Popen(plan.argv, env=env, preexec_fn=prepare, close_fds=False)


def _wait(pid: int, checks: list[Check], strict: bool, say: Say) -> int:
    """Wait for the child, hand signals on, tell what was not as planned."""
    started = time.monotonic()
    status = None
    while status is None:
        _forward(pid, POLL_SECONDS if checks else IDLE_SECONDS)
        status = _exit_code(pid)
        for check in tuple(checks):
            if (wrong := check()) is None:
                continue
            checks.remove(check)
            if wrong:
                say(wrong)
            if wrong and strict:
                _stop(pid, status)
                return LaunchError.exit_code
        if time.monotonic() - started > READ_BACK_SECONDS:
            checks.clear()
    return status


def _forward(pid: int, seconds: float) -> None:
    """Wait for a signal, at most `seconds`, and hand it to the child."""
    waited_for = FORWARDED | {signal.SIGCHLD}
    info = signal.sigtimedwait(waited_for, seconds)
    if info and info.si_signo in FORWARDED and info.si_code != SI_KERNEL:
        os.kill(pid, info.si_signo)


def _exit_code(pid: int) -> int | None:
    """Return the child's exit code, 128 + n after signal n, None if it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _stop(pid: int, status: int | None) -> None:
    """End the child, if it runs, by SIGTERM and then by SIGKILL."""
    deadline = time.monotonic() + STOP_SECONDS
    if status is None:
        os.kill(pid, signal.SIGTERM)
    while status is None and time.monotonic() < deadline:
        signal.sigtimedwait({signal.SIGCHLD}, POLL_SECONDS)
        status = _exit_code(pid)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
