"""Signals of a prefix: each reaches the job once, and the job finds them as usual.

While a job runs, signals are blocked here and taken one by one. One that was sent
to this process alone is handed on. One that was sent to the whole process group,
by Ctrl-C or ``kill -TERM -PGID``, has reached the job already. No field of
``siginfo_t`` tells the two apart, so a `Witness` does: a process that stays in our
group, blocks the same signals and is asked which of them it got, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

AWAITED = FORWARDED | {signal.SIGCHLD}
"""Signals that are taken while a job runs."""

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""What ``_PySignal_Init`` of CPython ignores without a trace of what was before."""

HANDS_ON = frozenset({"ash", "bash", "busybox", "dash", "ksh", "sh", "systemd", "zsh"})
"""Programs whose children find ignored what they ignore themselves.

Shells by POSIX (``trap '' PIPE``), systemd by ``IgnoreSIGPIPE=``. Others, such as
sshd and Python's ``subprocess``, ignore SIGPIPE themselves and reset it for their
children."""


@dataclass(frozen=True)
class Dispositions:
    """How signals stood when this process was started.

    Attributes
    ----------
    blocked, ignored : frozenset of signal.Signals
        Of those that we, or Python, treat otherwise.
    """

    blocked: frozenset[signal.Signals]
    ignored: frozenset[signal.Signals]

    @classmethod
    def found(cls) -> Dispositions:
        """Return those of now, before anything is changed."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        ignored = _ignored_before_python()
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            ignored |= {signal.SIGCHLD}
        return cls(frozenset(map(signal.Signals, blocked)), ignored)

    def restore(self) -> None:
        """Let the program that comes next find them."""
        for number in (*IGNORED_BY_PYTHON, signal.SIGCHLD):
            ignored = number in self.ignored
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)


def _ignored_before_python() -> frozenset[signal.Signals]:
    """Return which of `IGNORED_BY_PYTHON` were ignored when this process started.

    Python has overwritten it, so the parent is asked as far as its children
    inherit what it ignores.
    """
    try:
        text = Path(f"/proc/{os.getppid()}/status").read_text(errors="replace")
    except (OSError, MemoryError):
        return frozenset()
    facts = dict(line.partition(":\t")[::2] for line in text.splitlines())
    if facts.get("Name", "") not in HANDS_ON:
        return frozenset()
    mask = int(facts.get("SigIgn", "0"), 16)
    return frozenset(n for n in IGNORED_BY_PYTHON if mask >> (n - 1) & 1)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Hold signals back so that they can be taken one by one.

    Where a parent had SIGCHLD ignored, the kernel would keep no exit code for us.
    A signal that another thread takes is handed to this one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    handlers = {
        number: signal.signal(number, _raise_again)
        for number in FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        # Whatever came after the end of the job was meant for the job.
        while signal.sigtimedwait(AWAITED, 0):
            pass
        for number, handler in handlers.items():
            # An ignored signal is one that the job's end has closed.
            if signal.getsignal(number) is _raise_again:
                signal.signal(number, handler or signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, children or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _raise_again(number: int, frame: object) -> None:
    """Raise a signal in this thread, where it is blocked and waited for."""
    signal.raise_signal(number)


def other_threads() -> bool:
    """Return whether any thread but this one may take our signals.

    Those of NumPy's BLAS do, which no Python knows of.
    """
    try:
        return len(os.listdir("/proc/self/task")) > 1
    except OSError:
        return True


class Witness:
    """A process of our group that shows which signals the whole group got.

    It blocks what we block and reads a pipe that nobody writes into, so that it
    ends with us, however we end.

    Raises
    ------
    OSError
        There can be no more processes or descriptors.
    """

    def __init__(self) -> None:
        self._pid = 0
        reading, self._writing = os.pipe()
        self._files = [
            (os.POSIX_SPAWN_DUP2, reading, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        self._reading = reading
        try:
            self._pid = self._start()
        except OSError:
            self.close()
            raise

    def _start(self) -> int:
        # Not called after us: `pkill cloudcoll` is meant for this process alone.
        argv = ("signal-witness", "-c", "read _")
        return os.posix_spawn(
            "/bin/sh", argv, {}, file_actions=self._files, setsigmask=AWAITED
        )

    def saw(self, number: int) -> bool:
        """Return whether the group got this signal, which is then forgotten.

        The kernel signals the younger processes of a group first: once we have
        one that was for all, the witness has it as well.
        """
        try:
            text = Path(f"/proc/{self._pid}/status").read_text(errors="replace")
            pending = int(text.partition("\nShdPnd:\t")[2].partition("\n")[0], 16)
        except (OSError, ValueError, MemoryError):
            # Without a witness each signal is taken for ours, and handed on.
            return False
        if not pending >> (number - 1) & 1:
            return False
        old, self._pid = self._pid, 0
        with contextlib.suppress(OSError, MemoryError):
            self._pid = self._start()
        _end(old)
        return True

    def close(self) -> None:
        """End the process."""
        for descriptor in (self._reading, self._writing):
            os.close(descriptor)
        if self._pid:
            _end(self._pid)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
