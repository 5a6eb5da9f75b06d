from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import needs
import pytest
from nccl_job import (
    DEADLINE_S,
    HERE,
    TURNED,
    Job,
    build,
    build_standin,
    counted,
    ended,
)

from cloudcoll.launch import shim

VALGRIND = shutil.which("valgrind")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NCCL, under the name that programs ask for."""
    return build_standin(tmp_path_factory.mktemp("nccl"))


@pytest.mark.many
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


def test_the_checks_say_the_same_without_the_shim(standin: Path) -> None:
    """Tests the stand-in and the checks themselves."""
    ended(Job(standin, 2, local=2).start_all(LD_PRELOAD=""))


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
        (
            None,
            {"CLOUDCOLL_SHIM_ORDER": "", "CLOUDCOLL_SHIM_MAP": "/\x1b\n\u202e"},
            r"cannot read /\x1b\x0a\xe2\x80\xae",
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
    old = build_standin(tmp_path, "-DWITHOUT_SPLIT")
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


@needs.VALGRIND.mark
@pytest.mark.slow
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
