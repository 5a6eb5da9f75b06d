"""What every test runs under: its own state folder, 80 columns, no network."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from needs import QUIET, need_of, summary
from turns import AloneAtTheEnd, Place, Quiet

# Derandomised: a failure that one run finds, every run finds.
settings.register_profile(
    "cloudcoll",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
# For `make soak`: others each time, and more, of tests without a number of their own.
settings.register_profile(
    "soak", settings.get_profile("cloudcoll"), derandomize=False, max_examples=1000
)
settings.load_profile("cloudcoll")


@pytest.fixture(autouse=True)
def isolated(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give each test an empty state folder and an 80-column terminal."""
    home = tmp_path_factory.mktemp("state") / "cloudcoll"
    monkeypatch.setenv("CLOUDCOLL_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="module")
def small_search() -> Iterator[None]:
    """Let searches of a file try few orders, where how good they are is no question.

    Answers are a little slower than they could be; all that is promised of them holds.
    """
    # Not before: most tests need no solver.
    from cloudcoll.solve import finalists, search

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "EVALUATIONS", 4000)
        patch.setattr(finalists, "OF_A_HOST", 1)
        yield


@pytest.fixture
def patient_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let quick probes of this process wait for hosts that other tests keep waiting.

    They meet again as often as it takes, so that no pair's result is missing: such a
    test need not be alone. Next to no time is for more rounds until groups are sure.
    """
    from cloudcoll.probe import agents, extra_rounds, plan, runner

    quick = replace(
        plan.MODES["quick"], rtt_s=0.12, sure_s=extra_rounds.RESERVED_S + 0.5
    )
    monkeypatch.setitem(plan.MODES, "quick", quick)
    monkeypatch.setattr(plan, "REPEATED", 20.0)
    monkeypatch.setattr(runner, "REPEATS", 20)
    monkeypatch.setattr(agents, "START_SECONDS", 60.0)
    monkeypatch.setattr(runner, "GRACE_SECONDS", 30.0)


TURNS = "CLOUDCOLL_TURNS"
"""Names the folder by which processes of one run take turns."""


def pytest_configure(config: pytest.Config) -> None:
    """Make what the processes share that are about to start."""
    if config.getoption("numprocesses", None):
        folder = tempfile.TemporaryDirectory(prefix="cloudcoll-turns-")
        config.add_cleanup(folder.cleanup)
        os.environ[TURNS] = folder.name


def pytest_xdist_make_scheduler(
    config: pytest.Config, log: object
) -> AloneAtTheEnd | None:
    """Give one process all tests that run alone."""
    if config.getoption("dist") != "loadfile":
        return None
    return AloneAtTheEnd(config, log, Path(os.environ[TURNS]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with labs, end with what runs alone, of many cases call the later slow."""
    tried = set()
    for item in items:
        if item.get_closest_marker("many") and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if name in tried:
                item.add_marker("slow")
            tried.add(name)

    def place(item: pytest.Item) -> tuple[bool, bool]:
        found = item.get_closest_marker
        return found("alone") is not None, found("lab") is None

    items.sort(key=place)
    if "PYTEST_XDIST_WORKER" in os.environ:
        alone = [item for item in items if item.get_closest_marker("alone")]
        AloneAtTheEnd.tell(Path(os.environ[TURNS]), alone)


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of what is looked through for garbage."""
    gc.collect()
    gc.freeze()


PLACE = pytest.StashKey[Place]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Let other processes' tests run beside this one, or not."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    place = item.config.stash.setdefault(PLACE, Place(Path(os.environ[TURNS])))
    alone, next_alone = (
        one is not None and one.get_closest_marker("alone") is not None
        for one in (item, nextitem)
    )
    with place.test(alone, next_alone):
        return (yield)


MACHINE = Quiet()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what measures where other programs have the cores."""
    if item.get_closest_marker("alone") and not MACHINE.comes():
        QUIET.skip()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, object, object]:
    """End what a failed test leaves running, which tests after it would trip over."""
    # Fixtures end by themselves, and may be other tests', too.
    fixtures = {id(value) for value in item.funcargs.values()}
    for entry in call.excinfo.traceback if call.excinfo else ():
        for value in entry.locals.values():
            own = isinstance(value, subprocess.Popen) and id(value) not in fixtures
            if own and value.returncode is None:
                value.kill()
                value.wait()
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def own_temporary_files() -> Iterator[None]:
    """Give each of several processes that run tests a folder in place of /tmp.

    Agents lock an address there, and tests of all processes use the same addresses.
    So they do in the folder of the user's session, which they are not told of.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    # A short name, as paths of sockets are; other users may look inside.
    with (
        tempfile.TemporaryDirectory(prefix="cc") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        os.chmod(folder, 0o755)
        patch.setenv("TMPDIR", folder)
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        patch.setattr(tempfile, "tempdir", None)
        yield


def pytest_sessionstart() -> None:
    """Refuse connections that leave this machine, from here on."""
    sys.addaudithook(_loopback_only)
    # Users' Python has buffers, and keeps what it has compiled: so do the ones that
    # tests start.
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    # Open MPI 4.1 and 5 look for fast networks by libfabric, whose `btl` sleeps for a
    # second in each start of a job. There are none here.
    os.environ.update(OMPI_MCA_btl="^ofi", OMPI_MCA_mtl="^ofi")
    # A shell that starts us in the background ignores the first two, nohup the last;
    # children inherit that.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Say last what was not tried; fail where that is not allowed.

    It never is for a reason that `needs` does not have, nor, with
    `CLOUDCOLL_NO_SKIP`, for one that is no excuse.
    """
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return  # one of several processes: the first one has all reports
    skipped = [
        report.longrepr[2] if isinstance(report.longrepr, tuple) else "not run"
        for report in terminal.stats.get("skipped", [])
    ]
    for line in summary(skipped):
        terminal.write_line(line)
    if terminal.config.getoption("markexpr").endswith("and not slow"):
        terminal.write_line("Slow tests were left out: `make test-all` runs them, too.")
    strict = bool(os.environ.get("CLOUDCOLL_NO_SKIP"))
    wrong = [
        reason
        for reason in skipped
        if (need := need_of(reason)) is None or (strict and not need.excused)
    ]
    for reason in sorted(set(wrong)):
        terminal.write_line(f"{wrong.count(reason)} skipped, not allowed: {reason}")
    if wrong and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _loopback_only(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("socket.connect", "socket.sendto"):
        return
    address = args[1]
    if not isinstance(address, tuple) or not isinstance(address[0], str):
        return  # a path (AF_UNIX) or a netlink number stays on this machine
    try:
        local = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
    except ValueError:
        local = address[0] in ("localhost", "")
    if not local:
        raise RuntimeError(f"a test tried to reach {address[0]}: tests have no network")
