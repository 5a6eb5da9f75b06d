from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcoll.launch import choose_inbox, shim
from cloudcoll.launch.leaf import Inbox
from cloudcoll.launch.roll import _World, calling_roll, variable
from cloudcoll.rankmap import RankMap

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKS = HERE / "nccl_checks.py"
DEADLINE_S = 120
CC = shutil.which("cc")
VALGRIND = shutil.which("valgrind")
SHARED = ["-shared", "-fPIC", "-fvisibility=hidden"]

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")


def build(target: Path, *arguments: str | Path) -> Path:
    """Compile what the tests load; return `target`."""
    assert CC
    flags = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([CC, *flags, "-o", target, *arguments], check=True, timeout=60)
    return target


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NCCL, under the name that programs ask for."""
    sources = sorted((HERE / "standin").glob("*.c"))
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    return build(library, *SHARED, "-Wl,-soname,libnccl.so.2", *sources)


class Job:
    """Processes that pose as hosts, one rank on each, or several."""

    def __init__(self, library: Path, processes: int, local: int = 1) -> None:
        self.processes = processes
        self.facts = {
            "JOB": f"/standin-{uuid.uuid4().hex[:12]}",
            "LOCAL": str(local),
            "SIZE": str(processes * local),
            "STANDIN": str(library),
            "LD_PRELOAD": str(shim.NCCL),
        }

    def start(self, process: int, *names: str, **env: str) -> subprocess.Popen[str]:
        """Start one process; `names` are of checks, all of them by default."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CLOUDCOLL")}
        first = str(process * int(self.facts["LOCAL"]))
        own = {"FIRST": first, "RANK": first, "CLOUDCOLL_HOST": f"h{process}"}
        return subprocess.Popen(
            [sys.executable, CHECKS, *names],
            env={**kept, **self.facts, **own, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_all(self, *names: str, **env: str) -> list[subprocess.Popen[str]]:
        """Start all processes alike."""
        return [self.start(i, *names, **env) for i in range(self.processes)]


def ended(started: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for the processes; return what each wrote to stderr. All succeed."""
    errors = []
    try:
        for process in started:
            out, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, out + err
            assert out.endswith(", 0 failed\n"), out + err
            errors.append(err)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return errors


TURNED = {"CLOUDCOLL_SHIM_ORDER": "h1,h0", "PLACES": "[1, 0]"}


@contextlib.contextmanager
def counted(told: str = "") -> Iterator[dict[str, str]]:
    """Call the roll, which has to tell so; yields the variable for the ranks."""
    found = choose_inbox()
    inbox, said = Inbox(("127.0.0.1",), found.port, found.token), list[str]()
    with calling_roll(inbox, said.append) as outcome:
        yield {shim.ROLL: variable(inbox)}
    assert (outcome() or "", said) == (told, [])


@pytest.mark.parametrize(
    ("order", "local"),
    [("h0", 1), ("h1,h0", 1), ("h2,h0,h1", 1), ("h1,h0", 2), ("h0,h2,h1,h3", 2)],
)
def test_checks_in_several_orders(standin: Path, order: str, local: int) -> None:
    """Tests all that NCCL promises, and that allreduces run in the order given."""
    hosts = order.split(",")
    count = len(hosts)
    places = [hosts.index(f"h{i}") for i in range(count) for _ in range(local)]
    env = {"CLOUDCOLL_SHIM_ORDER": order, "PLACES": str(places)}
    ended(Job(standin, count, local).start_all(**env))
    with counted() as roll:
        ended(Job(standin, count, local).start_all(**env, **roll))


@pytest.mark.parametrize(("missing", "local"), [(0, 1), (2, 1), (1, 2)])
def test_a_host_without_the_library(standin: Path, missing: int, local: int) -> None:
    """Tests that no check hangs, all run as given, and one line says so."""
    job, size = Job(standin, 3, local), 3 * local
    lack = ", ".join(str(missing * local + i) for i in range(local))
    told = (
        f"{local} of {size} ranks do without the preloaded library ({lack}): "
        "running in the order given"
    )
    with counted(told) as roll:
        env = {**roll, "CLOUDCOLL_SHIM_ORDER": "h2,h1,h0"}
        without = [{"LD_PRELOAD": ""} if i == missing else {} for i in range(3)]
        started = [job.start(i, **env, **without[i]) for i in range(3)]
        assert ended(started) == ["", "", ""]


def test_nobody_counts(standin: Path) -> None:
    """Tests that a job which is not answered runs as given, and waits only once."""
    found = choose_inbox()
    env = {shim.ROLL: f"t {found.port} 127.0.0.1", "CLOUDCOLL_SHIM_ORDER": "h1,h0"}
    first, second = ended(Job(standin, 2).start_all("several_at_a_time", **env))
    assert first == (
        "cloudcoll: cloudcoll run does not answer: running in the order given\n"
    )
    assert second == ""


def test_nothing_to_reorder_takes_no_memory(standin: Path) -> None:
    """Tests that ranks which are in order already get no shadow."""
    with counted() as roll:
        env = {**roll, "CLOUDCOLL_SHIM_ORDER": "h0,h1", "CLOUDCOLL_DEBUG": "1"}
        for said in ended(Job(standin, 2, local=2).start_all("an_allreduce", **env)):
            assert "of the shadow" not in said


def test_the_checks_say_the_same_without_the_shim(standin: Path) -> None:
    """Tests the stand-in and the checks themselves."""
    ended(Job(standin, 2, local=2).start_all(LD_PRELOAD=""))


@pytest.mark.parametrize(
    "places", ["", "1", "1,0,2", "x", "1,", "1*0,0", "1*99999999", "-1,0", "1,0 "]
)
def test_places_that_make_no_sense(
    standin: Path, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that roots stay, and allreduces follow the order all the same."""
    monkeypatch.setattr(_World, "places", places)
    with counted() as roll:
        env = {**TURNED, **roll}
        names = ["an_allreduce", "roots_stay"]
        assert ended(Job(standin, 2).start_all(*names, **env)) == ["", ""]


DISAGREE = "only 2 of 3 ranks have the order"


@pytest.mark.parametrize(
    ("odd", "change", "said"),
    [
        (1, {"CLOUDCOLL_SHIM_ORDER": ""}, DISAGREE),
        (1, {"CLOUDCOLL_SHIM_ORDER": "h0,h1,h2"}, DISAGREE),
        (1, {"CLOUDCOLL_EXACT": "1"}, DISAGREE),
        (1, {"CLOUDCOLL_HOST": "elsewhere"}, DISAGREE),
        (0, {"CLOUDCOLL_HOST": "elsewhere"}, "does not name this host"),
        (None, {"CLOUDCOLL_SHIM_ORDER": ""}, "CLOUDCOLL_SHIM_MAP is not set"),
        (None, {"CLOUDCOLL_SHIM_ORDER": "h0,h1,h0,h2,h2,h1"}, "this host twice"),
        (
            None,
            {"CLOUDCOLL_SHIM_ORDER": "", "CLOUDCOLL_SHIM_MAP": "/none"},
            "cannot read /none",
        ),
    ],
)
def test_without_a_common_order(
    standin: Path, odd: int | None, change: dict[str, str], said: str
) -> None:
    """Tests that a job runs as given, with one line of rank 0 that says why."""
    job, order = Job(standin, 3), {"CLOUDCOLL_SHIM_ORDER": "h2,h0,h1"}
    started = []
    with counted() as roll:
        for i in range(3):
            env = {**order, **change} if odd in (i, None) else order
            started.append(job.start(i, "an_allreduce", **env, **roll))
        first, *others = ended(started)
    assert first.count("\n") == 1
    assert said in first
    assert others == ["", ""]


def test_a_library_that_can_not_split(standin: Path, tmp_path: Path) -> None:
    """Tests that jobs of an old NCCL run as given, and hear it once."""
    sources = sorted((HERE / "standin").glob("*.c"))
    old = build(tmp_path / "libnccl.so.2", *SHARED, "-DWITHOUT_SPLIT", *sources)
    names = ["an_allreduce", "in_place", "roots_of_the_world", "every_way_to_begin"]
    job = Job(old, 2)
    first, second = ended(job.start_all(*names, CLOUDCOLL_SHIM_ORDER="h1,h0"))
    assert first.count("\n") == 1
    assert "no ncclCommSplit" in first
    assert not second


def test_sums_of_floats_keep_their_order(standin: Path) -> None:
    """Tests that integers and maxima are reordered all the same."""
    job = Job(standin, 2)
    ended(job.start_all("sums_of_floats_stay", **TURNED, CLOUDCOLL_EXACT="1"))


@pytest.mark.parametrize(
    "name", ["an_abort_of_both", "a_revocation_of_both", "a_survivor"]
)
def test_what_ends_both_communicators(standin: Path, name: str) -> None:
    """Tests an end while the shadow waits on the GPU behind what is stuck."""
    first, second = Job(standin, 2).start_all(name, **TURNED)
    try:
        ended([first])
    finally:
        ended([second])


def test_an_error_of_the_shadow_is_told(standin: Path) -> None:
    """Tests that ncclCommGetAsyncError speaks for the shadow as well."""
    ended(Job(standin, 2).start_all("an_error_of_the_shadow", **TURNED))


@pytest.fixture(scope="module")
def client(standin: Path) -> Path:
    """A program that is linked with the library; Python can load it as well."""
    target = standin.with_name("client")
    linked = ["-L", standin.parent, "-l:libnccl.so.2", "-Wl,-rpath,$ORIGIN"]
    return build(target, "-fPIC", HERE / "nccl_client.c", *map(str, linked))


def test_a_library_that_is_nobody_elses(standin: Path) -> None:
    """Tests that NCCL is found where Python loads it as part of a module."""
    linked = ["-L", str(standin.parent), "-l:libnccl.so.2", "-Wl,-rpath,$ORIGIN"]
    module = standin.with_name("module.so")
    build(module, "-shared", "-fPIC", HERE / "nccl_client.c", *linked)
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).allreduces(2))"
    done = subprocess.run(
        [sys.executable, "-c", code, module],
        env={
            "LD_PRELOAD": str(shim.NCCL),
            "CLOUDCOLL_SHIM_ORDER": "here,there",
            "CLOUDCOLL_HOST": "here",
            "CLOUDCOLL_DEBUG": "1",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is rank 1 of the shadow") == 2
    assert done.stderr.count("bytes of GPU memory") == 4


@pytest.mark.skipif(VALGRIND is None, reason="no valgrind")
def test_nothing_leaks(client: Path) -> None:
    """Tests that 1000 communicators, made and destroyed, leave no memory behind."""
    assert VALGRIND
    done = subprocess.run(
        [
            *(VALGRIND, "--error-exitcode=9", "--leak-check=full", "--quiet"),
            *("--errors-for-leak-kinds=definite,indirect", client, "1000"),
        ],
        env={
            "LD_PRELOAD": str(shim.NCCL),
            "CLOUDCOLL_SHIM_ORDER": "here,there",
            "CLOUDCOLL_HOST": "here",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 wrong\n"


TORCHRUN = Path(sys.executable).with_name("torchrun")

# What torchrun tells its ranks, as the program of the checks wants it.
RANKED = 'export FIRST="$RANK" SIZE="$WORLD_SIZE" LOCAL=1; exec "$@"'


@pytest.mark.skipif(not TORCHRUN.exists(), reason="no torchrun")
@pytest.mark.parametrize("lacking", [False, True])
def test_a_job_of_torchrun(standin: Path, tmp_path: Path, lacking: bool) -> None:
    """Tests the whole way: a map, cloudcoll run, torchrun, allreduces reordered.

    One host may be started without cloudcoll: then none reorders.
    """
    RankMap(("h1", "h0"), (1, 1)).save(tmp_path / "map")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = []
    for i in range(2):
        prefix = [sys.executable, "-m", "cloudcoll.cli", "run", "--inject", "shim"]
        torchrun = [
            *(str(TORCHRUN), "--nnodes=2", f"--node-rank={i}", "--no-python"),
            *("--master-addr=127.0.0.1", f"--master-port={port}"),
        ]
        program = ["sh", "-c", RANKED, "sh", sys.executable, str(CHECKS)]
        env = {
            "CLOUDCOLL_HOST": f"h{i}",
            "CLOUDCOLL_MAP": str(tmp_path / "map"),
            "JOB": f"/standin-{port}",
            "STANDIN": str(standin),
            "PLACES": "[0, 1]" if lacking else "[1, 0]",
        }
        started.append(
            subprocess.Popen(
                [*prefix * (not (lacking and i)), *torchrun, *program, "an_allreduce"],
                cwd=ROOT,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    first, _ = ended(started)
    assert first.count("1 of 2 ranks do without the preloaded library (1)") == lacking
