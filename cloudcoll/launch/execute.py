"""Run a launch plan so that nobody notices who started it.

The child inherits stdin, stdout, stderr and the terminal as they are. Signals
reach it, its exit code is passed on, and what it needed is gone afterwards.

`execute` raises only while no rank can have started, so that whoever catches its
error may start something else. Once the job may run, whatever fails beside it is
told, and the job is waited for.
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
from typing import NoReturn

from cloudcoll.errors import LaunchError
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.launch.readback import Check, OwnReadBack, ReadBack, reading_back
from cloudcoll.launch.roll import calling_roll
from cloudcoll.launch.signals import (
    AWAITED,
    FORWARDED,
    Dispositions,
    Witness,
    held_signals,
    other_threads,
)

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

THREADED_SECONDS = 0.1
"""The same where another thread may take the signal of the job's end."""

SETTLED_SECONDS = 10.0
"""Ranks that have not all reported by then are told of as not yet known."""

MAP_SECONDS = 30.0
"""The launcher has this long to say whether it can place the ranks."""

MAP_TRIES = 2
"""Whatever the system refuses once, such as a process, it may grant again."""

LOST = 125
"""Exit code of a job whose own the kernel did not keep for us."""

PR_SET_PDEATHSIG = 1
"""Of prctl(2): what a process gets when its parent is gone."""

Say = Callable[[str], None]


def launcher_version(program: str, seconds: float = VERSION_SECONDS) -> str:
    """Return what `program` prints when it is asked for its version.

    Raises
    ------
    LaunchError
        It can't be run (`NoLauncher`), or does not answer within `seconds`.
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
        # What may be another time, such as a fork without memory, is not certain.
        certain = isinstance(error, (FileNotFoundError, PermissionError))
        raised = NoLauncher if certain else LaunchError
        raise raised(_cannot_run(program, error)) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{program} --version did not answer") from error
    return answer.stdout.decode(errors="replace")


def _cannot_run(program: str, error: OSError) -> str:
    # There may be a script whose interpreter is gone.
    bare = isinstance(error, FileNotFoundError) and "/" not in program
    where = " (it is not on the PATH)" if bare and not shutil.which(program) else ""
    return f"cannot run {program}: {error.strerror}{where}"


class NoLauncher(LaunchError):
    """A launcher that is not there, or may not be run."""


@contextlib.contextmanager
def written_files(plan: LaunchPlan) -> Iterator[None]:
    """Have the plan's files there for the time of the context, or raise LaunchError.

    Their folder is made for this user alone and removed at the end.
    """
    made: list[Path] = []
    try:
        try:
            for folder in {Path(path).parent for path in plan.written}:
                folder.mkdir(mode=0o700)
                made.append(folder)
            for path, text in plan.written.items():
                with open(path, "x", opener=_private) as file:
                    file.write(text)
        except OSError as error:
            # Of a disk that is full no name is told.
            where = error.filename or " or ".join(plan.written)
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


class NotStarted(LaunchError):
    """The program of a plan can't be run, by an OSError of execve(2).

    Its exit code is that of ``env``: 127 where there is no such program, else 126.
    """

    def __init__(self, program: str, error: OSError) -> None:
        super().__init__(_cannot_run(program, error))
        self.exit_code = 127 if isinstance(error, FileNotFoundError) else 126


def execute(
    plan: LaunchPlan, *, strict: bool = False, stay: bool = False, say: Say = print
) -> int:
    """Run the plan and return its exit code, 128 + n after signal n.

    A plan without files, whose ranks are not asked where they are, takes this
    process over and does not return, unless `stay` is set.

    Parameters
    ----------
    strict : bool
        Stop a job whose order did not take, and return 125.
    stay : bool
        Return in any case.
    say : callable
        Takes a line about what happens.

    Raises
    ------
    LaunchError
        No rank was started: a file of the plan can't be written, the program can't
        be run (`NotStarted`), or the launcher says that it can't place the ranks.
    """
    # What can't be written, as on a full disk, is no reason to keep a job from running.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    found = Dispositions.found()
    if not (plan.needs_us or stay):
        _become(plan, found)
    with contextlib.ExitStack() as before:
        before.enter_context(written_files(plan))
        read_back = before.enter_context(reading_back(plan, say))
        before.enter_context(held_signals())
        witness = before.enter_context(contextlib.closing(Witness()))
        try:
            child = _spawn(plan, found)
        except OSError as error:
            raise NotStarted(plan.argv[0], error) from error
        cleanup = before.pop_all()
    # The job may run: nothing below raises but what says that no rank does.
    job = _Job(child.pid, plan, read_back, witness, say)
    code = job.accompany(strict)
    # Popen must not wait for what has been waited for.
    child.returncode = code
    refused = job.never_began and _cannot_map(plan, code, found)
    # A signal that came meanwhile asks for the end, not for another start.
    refused = refused and not signal.sigpending() & FORWARDED
    if not refused:
        # The job is over: what still comes was meant for it.
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN)
    try:
        cleanup.close()
    except Exception as error:
        job.tell(f"cannot clean up: {type(error).__name__}: {error}")
    if refused:
        raise LaunchError(
            f"{os.path.basename(plan.argv[0])} ended with {code}: it can't place ranks "
            "in this order and has started none"
        )
    return code


def _become(plan: LaunchPlan, found: Dispositions) -> NoReturn:
    """Let the command take this process over, or raise `NotStarted`."""
    found.restore()
    try:
        os.execvpe(plan.argv[0], plan.argv, {**os.environ, **plan.environment})
    except OSError as error:
        raise NotStarted(plan.argv[0], error) from error


def _spawn(plan: LaunchPlan, found: Dispositions) -> subprocess.Popen[bytes]:
    """Start the command; a SIGKILL that ends this process ends it as well."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        found.restore()

    return subprocess.Popen(
        plan.argv,
        env={**os.environ, **plan.environment},
        preexec_fn=prepare,
        close_fds=False,
        restore_signals=False,
    )


def _cannot_map(plan: LaunchPlan, code: int, found: Dispositions) -> bool:
    """Return whether the launcher refuses these places, so that no rank began.

    It is asked again to place the ranks without starting any (`LaunchPlan.maps_only`)
    and ends with the same code. Where it has no such option, nobody can tell a launch
    that failed from a job that did. Nothing is raised: the job would be started again.
    """
    if not plan.maps_only:
        return False
    for _ in range(MAP_TRIES):
        try:
            asked = subprocess.run(
                plan.maps_only,
                env={**os.environ, **plan.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=MAP_SECONDS,
                preexec_fn=found.restore,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        except Exception:
            continue
        return asked.returncode == code
    return False


class _Job:
    """A command that runs: its signals, its end, and whether the order took."""

    def __init__(
        self,
        pid: int,
        plan: LaunchPlan,
        read_back: ReadBack | OwnReadBack | None,
        witness: Witness,
        say: Say,
    ) -> None:
        self._pid = pid
        self._plan = plan
        self._read_back = read_back
        self._witness = witness
        self._say = say
        self._code: int | None = None
        self._signalled = False
        self._summary, self._awaited = plan.summary, False

    @property
    def never_began(self) -> bool:
        """Whether it failed unasked, and no rank was heard of where it would be."""
        if not self._code or self._read_back is None or self._signalled:
            return False
        try:
            return not self._read_back.heard
        except Exception:  # as of _cannot_map
            return False

    def tell(self, line: str) -> None:
        """Say a line, whatever becomes of it: words are no reason to leave a job."""
        with contextlib.suppress(Exception):
            self._say(line)

    def accompany(self, strict: bool) -> int:
        """Wait for the end and tell whether the order took; return the exit code.

        With `strict` a job whose order did not take is stopped. Nothing is raised:
        the job would be started again.
        """
        try:
            # Only now: forking beside a thread is not safe.
            with calling_roll(self._plan.roll, self.tell) as called:
                checks: dict[Check, str] = {}
                if self._plan.roll:
                    checks[called] = "all ranks take part"
                if self._plan.tuned:
                    checks[lambda: called.ran] = "the algorithms chosen run"
                if self._read_back:
                    checks[self._read_back] = self._read_back.agreed
                return self._watch(checks, strict)
        except Exception as error:
            self.tell(f"{type(error).__name__}: {error}; only waiting for the job now")
        self._look()
        while self._code is None:
            self._forward(IDLE_SECONDS)
            self._look()
        return self._code

    def _watch(self, checks: dict[Check, str], strict: bool) -> int:
        started = time.monotonic()
        while self._code is None:
            self._forward(POLL_SECONDS if checks else IDLE_SECONDS)
            self._look()
            for check, agreed in list(checks.items()):
                if (wrong := self._asked(check)) is None:
                    continue
                del checks[check]
                self._settle(wrong or agreed, wrong)
                if wrong and strict:
                    self._stop()
                    return LaunchError.exit_code
            if self.never_began:
                # No rank began: what the order should gain is no news then.
                self._summary = ""
            waited = time.monotonic() - started
            if self._summary and (self._code is not None or waited > SETTLED_SECONDS):
                goes_on = self._code is None
                self._settle("where the ranks run is not known" + " yet" * goes_on)
                self._awaited = goes_on
            if waited > READ_BACK_SECONDS:
                checks.clear()
        return self._code

    def _asked(self, check: Check) -> str | None:
        """Return what a check finds; one that fails finds nothing, in the end."""
        try:
            return check()
        except OSError as error:
            self._settle(words := f"cannot tell where the ranks run: {error}", words)
            return ""

    def _settle(self, found: str, wrong: str = "") -> None:
        """Say what was found, behind the plan's summary as long as that is unsaid.

        What only confirms the plan is news once: there, or where it was not known yet.
        """
        if self._summary:
            self.tell(f"{self._summary}; {found}")
        elif wrong or self._awaited:
            self.tell(found)
        self._summary, self._awaited = "", False

    def _forward(self, seconds: float) -> None:
        """Wait for a signal, at most `seconds`, and hand it to the child."""
        if seconds > THREADED_SECONDS and other_threads():
            seconds = THREADED_SECONDS
        info = signal.sigtimedwait(AWAITED, seconds)
        if info is None or info.si_signo not in FORWARDED:
            return
        self._signalled = True
        together = os.getpgid(self._pid) == os.getpgrp()
        if not (self._witness.saw(info.si_signo) and together):
            # It may be another user's, as after setuid: nobody could have sent it.
            with contextlib.suppress(PermissionError):
                os.kill(self._pid, info.si_signo)

    def _look(self) -> None:
        """Take the child's exit code, 128 + n after signal n, once it has ended."""
        if self._code is not None:
            return
        try:
            done, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            self.tell(f"the job has ended, its exit code is lost: taken as {LOST}")
            self._code = LOST
            return
        if done:
            code = os.waitstatus_to_exitcode(status)
            self._code = code if code >= 0 else 128 - code

    def _stop(self) -> None:
        """End the child, if it runs, by SIGTERM and then by SIGKILL."""
        deadline = time.monotonic() + STOP_SECONDS
        if self._code is None:
            os.kill(self._pid, signal.SIGTERM)
        while self._code is None and time.monotonic() < deadline:
            signal.sigtimedwait({signal.SIGCHLD}, POLL_SECONDS)
            self._look()
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
