"""The programs that time MPI, in Python and in C: the same lines in and out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from mpis import EACH, MPIS, STARTS, Mpi, newest
from needs import TORCH

from cloudcoll import programs
from cloudcoll.bench.job import MPI_PROGRAM, BenchPlan, JobOutput, Row, run_bench
from cloudcoll.bench.native import compile_bench, find_mpicc, mpi_program
from cloudcoll.bench.result import OPERATIONS
from cloudcoll.errors import CloudcollError, LaunchError
from probes.timing import whose_turn

HERE = Path(__file__).parent
RANKS = 3
ORDERS = {"given": [0, 1, 2], "Räcks": [2, 0, 1]}
# A size ends early where two repeats take the same time: not with a `least` of 2.
PACE = {"repeats": 2, "least": 1, "seconds": 60.0, "min_seconds": 0.0, "narrow": 0.0}
SPEC = {"op": "allreduce", "orders": ORDERS, "sizes": [8, 4000], "reference": "given"}
each_program = pytest.mark.parametrize("backend", ["mpi4py", "c"])
# Where both share what is tested: ranks in Python take ten times as long to start.
the_slow_one_too = pytest.mark.parametrize(
    "backend", [pytest.param("mpi4py", marks=pytest.mark.slow), "c"]
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home") / "cloudcoll"


@pytest.fixture(autouse=True)
def compiled_once(isolated: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests have one state folder: the program in C is kept there."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(home))


def job(mpi: Mpi, backend: str, **spec: Any) -> BenchPlan:
    """Return a job of three ranks on this machine."""
    mpirun = str(mpi.prefix / "bin" / "mpirun")
    env = {"PATH": mpi.environment()["PATH"]}
    argv = (mpirun, *mpi.options, "-n", str(RANKS), *mpi_program(backend, mpirun, env))
    return BenchPlan(argv, {**SPEC, **PACE, **spec}, ("here",) * RANKS, 1)


def run(mpi: Mpi, backend: str, env: dict[str, str], **spec: Any) -> JobOutput:
    """Return what a job printed, of another one where PRRTE did not end it."""
    plan = job(mpi, backend, **spec)
    for _ in range(STARTS):
        found = run_bench(plan, mpi.environment(**env), 120.0)
        if not found.failure.endswith("is done but has not ended"):
            break
    return found


@pytest.mark.parametrize("mpi", newest(EACH))
@each_program
def test_orders_take_turns(
    mpi: Mpi, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests whose turn it is, that every result is right, and pieces."""
    monkeypatch.setattr(programs, "PIECE", 50)
    orders = ORDERS | {"back": [2, 1, 0]}
    # On a busy machine either size may seem to need nearly all of the time.
    found = run(mpi, backend, {}, orders=orders, repeats=4, least=4)
    turns = [(row["bytes"], row["repeat"], row["order"]) for row in found.rows]
    assert turns == [
        (size, repeat, list(orders)[whose_turn(repeat, turn, 3)])
        for size in (8, 4000)
        for repeat in range(4)
        for turn in range(3)
    ]
    assert {row["wrong"] for row in found.rows} == {0}
    assert (found.failure, found.left_out) == ("", {})


@pytest.mark.parametrize("op", sorted(OPERATIONS.keys() - {SPEC["op"]}))
@the_slow_one_too
def test_every_collective(backend: str, op: str) -> None:
    """Tests that each is right in every order."""
    found = run(MPIS[0], backend, {}, op=op, sizes=[12 * RANKS, 4008], least=2)
    assert [row["wrong"] for row in found.rows] == [0] * 2 * 2 * 2
    assert {row["op"] for row in found.rows} == {op}


@pytest.mark.slow
@TORCH.mark
def test_every_collective_of_gloo() -> None:
    """Tests that each is right in every order."""
    spec = {**SPEC, **PACE, "sizes": [12 * RANKS, 4008]}
    jobs = [json.dumps({**spec, "op": op}) + "\n" for op in OPERATIONS]
    done = subprocess.run(
        [sys.executable, str(HERE / "gloo_ranks.py"), str(HERE.parents[1])],
        input="".join(jobs),
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in map(json.loads, done.stdout.splitlines()) if "op" in row]
    assert [row["wrong"] for row in rows] == [0] * len(OPERATIONS) * 2 * 2 * 2
    assert list(dict.fromkeys(row["op"] for row in rows)) == list(OPERATIONS)


@the_slow_one_too
@pytest.mark.parametrize(
    ("pace", "rows"),
    [
        # Every ratio is known well enough: the least of which a median is known.
        ({"repeats": 9, "narrow": 1e9}, 6),
        # No time at all: each order once.
        ({"repeats": 9, "seconds": 0.0}, 1),
        ({"repeats": 9, "narrow": 1e9, "reference": "faster"}, 9),
    ],
)
def test_a_size_ends_early(backend: str, pace: dict[str, Any], rows: int) -> None:
    """Tests what ends it: ratios that are known, the box of time, neither."""
    found = run(MPIS[0], backend, {}, sizes=[8], **pace)
    assert len(found.rows) == rows * len(ORDERS)
    assert found.failure == ""


@the_slow_one_too
def test_sizes_without_time_are_spared(backend: str) -> None:
    """Tests that the smallest is measured once where there is no time at all."""
    found = run(MPIS[0], backend, {}, sizes=[8, 4000, 8000], seconds=0.0, repeats=3)
    assert found.spared == (4000, 8000)
    assert [row["bytes"] for row in found.rows] == [8, 8]


@the_slow_one_too
@pytest.mark.parametrize("keys", [[0, 1], [0, 1, 3]])
def test_an_order_that_cannot_start_is_left_out_alone(
    backend: str, keys: list[int]
) -> None:
    """Tests that the others are measured, and that it is said."""
    found = run(MPIS[0], backend, {}, orders={"worse": keys, **ORDERS}, sizes=[8])
    assert found.left_out == {"worse": "its keys are no permutation of 3 ranks"}
    assert {row["order"] for row in found.rows} == set(ORDERS)


@the_slow_one_too
def test_no_order_at_all(backend: str) -> None:
    """Tests that a job without an order that starts says which and why."""
    with pytest.raises(CloudcollError, match="nothing was measured: order given: its"):
        run(MPIS[0], backend, {}, orders={"given": [1]})


@each_program
def test_wrong_results_are_counted(backend: str, tmp_path: Path) -> None:
    """Tests a library that alters one element on one rank."""
    spoil = Path(__file__).with_name("spoil.c")
    library = tmp_path / "spoil"
    mpicc = str(MPIS[0].prefix / "bin" / "mpicc")
    subprocess.run([mpicc, "-shared", "-fPIC", "-o", library, spoil], check=True)
    found = run(MPIS[0], backend, {"LD_PRELOAD": str(library)}, least=2)
    assert [row["wrong"] for row in found.rows] == [1] * 8


@pytest.mark.many
@pytest.mark.parametrize("mpi", newest(EACH))
def test_each_order_is_told_its_own(
    mpi: Mpi, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tests that variables are set for an order's communicator, calls, and no other.

    Open MPI looks at them when a communicator is made, MPICH at each call.
    """
    library = mpi.compile(tmp_path / "told", HERE / "told.c", shared=True)
    variable = "coll_tuned_allreduce_algorithm"
    more = {"coll_tuned_use_dynamic_rules": 1}
    if "mpich" in mpi.name:
        variable, more = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", {}
    found = run(
        mpi,
        "c",
        {"LD_PRELOAD": library, "TOLD": variable},
        sizes=[4000],
        least=2,
        settings={"Räcks": {variable: 3, **more}},
    )
    assert found.left_out == {}
    assert {row["wrong"] for row in found.rows} == {0}
    told = [
        line.split()[1:]
        for line in capfd.readouterr().err.splitlines()
        if line.startswith("told: ")
    ]
    assert [value for when, value in told if when == "split"] == ["0", "3"]
    # Begun and warmed up one by one, then measured twice, the other first.
    calls = [value for when, value in told if when == "call"]
    assert calls == ["0", "3", "0", "3", "0", "3", "3", "0"]


@pytest.mark.parametrize("mpi", newest(EACH))
def test_an_order_with_an_unknown_variable_is_left_out(mpi: Mpi) -> None:
    """Tests that one whose algorithm can't be set is named, not measured as another."""
    found = run(mpi, "c", {}, sizes=[8], settings={"given": {"no_such_one": 3}})
    assert found.left_out == {"given": "the library has no variable no_such_one"}
    assert {row["order"] for row in found.rows} == {"Räcks"}


def test_numbers_of_named_values() -> None:
    """Tests that MPICH's names for algorithms are the numbers that it takes."""
    found = next((mpi for mpi in MPIS if mpi.name == "mpich==5.0"), None)
    if found is None:
        found = MPIS[0]
        variable, value = "coll_tuned_allreduce_algorithm", "ring"
        environment = {f"OMPI_MCA_{variable}": value}
    else:
        variable, value = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring"
        environment = {variable: value}
    (program,) = job(found, "c").argv[-1:]
    for env, known in (({}, "0"), (environment, None)):
        done = subprocess.run(
            [program, "--settings", variable, "no_such_one"],
            env=found.environment(**env),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        first, second = done.stdout.split()
        assert second == "none"
        assert (first == known) if known else int(first) > 0


@the_slow_one_too
def test_a_rank_killed_in_the_middle(backend: str) -> None:
    """Tests that what was measured before is kept, and that the end is told."""

    def kill(row: Row, left: float) -> None:
        if row["repeat"] == 0 and row["order"] == "given":
            started = psutil.Process().children(recursive=True)
            ranks = [process for process in started if not process.children()]
            ranks[-1].kill()

    # More than a pipe holds: a job that nobody listens to would not end by itself.
    plan = job(MPIS[0], backend, repeats=10**6, sizes=[8])
    found = run_bench(plan, MPIS[0].environment(), 60.0, kill)
    assert 1 <= len(found.rows) < 10**6
    assert "ended" in found.failure


def test_the_program_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that it is kept, and is all that is."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path))
    mpicc = str(MPIS[0].prefix / "bin" / "mpicc")
    program = compile_bench(mpicc)
    made = program.stat()
    assert compile_bench(mpicc).stat() == made
    assert [path.name for path in program.parent.iterdir()] == [program.name]


def test_a_program_of_others_is_not_run(tmp_path: Path) -> None:
    """Tests one that everybody may change, and a folder where anybody may put one."""
    mpicc = str(MPIS[0].prefix / "bin" / "mpicc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(tmp_path / "home"))
        program = compile_bench(mpicc)
        program.write_text("#!/bin/sh\necho evil\n")
        program.chmod(0o777)
        compile_bench(mpicc)
        assert b"evil" not in program.read_bytes()
        program.parent.chmod(0o777)
        with pytest.raises(LaunchError, match="everybody may write to"):
            compile_bench(mpicc)


def test_c_stands_in_for_mpi4py(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests what is taken by default, with mpi4py and without."""
    env = {"MPICC": compiler(tmp_path, "mpicc"), "PATH": str(tmp_path)}
    monkeypatch.setattr("cloudcoll.bench.native.compile_bench", Path)
    monkeypatch.setitem(sys.modules, "mpi4py", ModuleType("mpi4py"))
    sys.modules["mpi4py"].__spec__ = ModuleSpec("mpi4py", None)
    assert mpi_program(None, "mpirun", env) == MPI_PROGRAM
    assert mpi_program("c", "mpirun", env) == (env["MPICC"],)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert mpi_program(None, "mpirun", env) == (env["MPICC"],)
    assert mpi_program("mpi4py", "mpirun", env) == MPI_PROGRAM


def test_mpi4py_of_another_mpi_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests that ranks of a launcher from elsewhere are not left to hang."""
    monkeypatch.setattr("cloudcoll.bench.native.compile_bench", Path)
    monkeypatch.setitem(sys.modules, "mpi4py", ModuleType("mpi4py"))
    sys.modules["mpi4py"].__spec__ = ModuleSpec("mpi4py", None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    own = compiler(tmp_path / "venv" / "bin", "mpirun")
    other = compiler(tmp_path / "usr", "mpirun")
    srun = compiler(tmp_path / "usr", "srun")
    mpicc = compiler(tmp_path / "usr", "mpicc")
    assert mpi_program(None, other, {}) == MPI_PROGRAM
    compiler(tmp_path / "venv" / "lib", "libmpi.so.40")
    assert mpi_program(None, other, {}) == (mpicc,)
    assert mpi_program("mpi4py", other, {}) == MPI_PROGRAM
    assert mpi_program(None, other, {"MPI4PY_LIBMPI": "libmpi.so"}) == MPI_PROGRAM
    for starter in (own, srun, "no-such-mpirun"):
        assert mpi_program(None, starter, {}) == MPI_PROGRAM


def compiler(folder: Path, name: str, ends: int = 0) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\nexit {ends}\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_is_of_the_launchers_mpi(tmp_path: Path) -> None:
    """Tests that what stands beside the launcher goes before PATH, MPICC before all."""
    env = {"PATH": str(tmp_path / "usr")}
    mpirun = compiler(tmp_path / "opt", "mpirun")
    with pytest.raises(LaunchError, match="neither"):
        find_mpicc(mpirun, env)
    usr = compiler(tmp_path / "usr", "mpicc")
    assert find_mpicc(mpirun, env) == usr
    opt = compiler(tmp_path / "opt", "mpicc")
    assert find_mpicc(mpirun, env) == opt
    debian = compiler(tmp_path / "opt", "mpirun.mpich")
    mpich = compiler(tmp_path / "opt", "mpicc.mpich")
    assert find_mpicc(debian, env) == mpich
    assert find_mpicc(mpirun, {**env, "MPICC": mpich}) == mpich


@pytest.mark.parametrize(
    ("ends", "words"), [(0, "left no program"), (1, "did not compile the bench")]
)
def test_a_compiler_that_fails(tmp_path: Path, ends: int, words: str) -> None:
    """Tests that its failure is one line with a way out."""
    with pytest.raises(LaunchError, match=f"{tmp_path}/mpicc {words}"):
        compile_bench(compiler(tmp_path, "mpicc", ends))
    with pytest.raises(LaunchError, match="cannot run /nowhere/mpicc: No such file"):
        compile_bench("/nowhere/mpicc")
