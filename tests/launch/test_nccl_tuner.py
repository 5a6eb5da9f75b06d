"""The tuner plugin for NCCL, driven by a program as NCCL drives it (tuner.c)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import needs
import pytest
from nccl_job import DEADLINE_S, HERE, build, counted

from cloudcoll.launch import choose_inbox, roll, shim
from cloudcoll.libraries.nccl import CHOICES, Choice, read_choices

PLUGIN = Path(shim.__file__).parent / "nccl" / "tuner" / "plugin"
FUNCTIONS = ["broadcast", "reduce", "allgather", "reducescatter", "allreduce"]
ALGORITHMS = {"-": -1, "tree": 0, "ring": 1, "pat": 6}
SIZES = [0, *(1 << shift for shift in range(2, 44, 3))]
CHECKED = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"]
RANKS, NODES = 8, 4
ROWS = (
    "broadcast 0 - 2,allgather 4096 pat 0,allreduce 0 tree 0,allreduce 32768 - 0,"
    "allreduce 1000000 ring 4,allreduce 100000000000 tree 32"
)
LONGEST = ",".join(
    f"{name} {size * size} {['ring', 'tree', '-'][size % 3]} {size % 33}"
    for name, count in zip(FUNCTIONS, (1, 2, 3, 4, 54), strict=True)
    for size in range(count)
)
"""As many rows as a table may have."""


Ended = tuple[list[str], str]
"""What a rank chooses, a line each, and what it says."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that drives the plugin."""
    return build(tmp_path_factory.mktemp("tuner") / "driver", HERE / "tuner.c")


def sealed(table: str) -> str:
    """Return a table behind its digest, FNV-1a of 64 bits."""
    digest = 14695981039346656037
    for byte in table.encode():
        digest = (digest ^ byte) * 1099511628211 % (1 << 64)
    return f"{digest:016x} {table}"


def table_of(rows: str, ranks: int = RANKS, nodes: int = NODES) -> str:
    return sealed(f"{ranks} {nodes},{rows}")


def start(
    driver: Path,
    table: str | None,
    *words: str,
    ranks: int = RANKS,
    nodes: int = NODES,
    algorithms: int = 7,
    under: list[str] | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start one rank of the driver."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CLOUDCOLL")}
    given = {} if table is None else {"CLOUDCOLL_NCCL_TABLE": table}
    arguments = *map(str, (driver, PLUGIN, ranks, nodes, algorithms)), *words
    return subprocess.Popen(
        [*(under or []), *arguments],
        env={**kept, **given, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Ended:
    """Return what is chosen, a line each, and what is said. Nothing is wrong."""
    with process:
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, out + err
    *lines, last = out.splitlines()
    assert last == "0 wrong", out
    return lines, err


def drive(driver: Path, table: str | None, *words: str, **how: Any) -> Ended:
    """Run the driver as `start` does."""
    return ended(start(driver, table, *words, **how))


def expected(rows: str, algorithms: int = 7) -> list[str]:
    """Return what all versions but 2 choose by rows."""
    found = []
    for number, name in enumerate(FUNCTIONS):
        own = [row.split() for row in rows.split(",") if row.split()[0] == name]
        for size in SIZES:
            held = [row for row in own if int(row[1]) <= size]
            algorithm, channels = held[-1][2:] if held else ("-", "0")
            taken = ALGORITHMS[algorithm]
            if taken >= algorithms or (algorithm, channels) == ("-", "0"):
                continue
            found += [
                f"{number} {size} without {without}: {taken} {channels}"
                for without in range(-1, 7)
                if without != taken or algorithm == "-"
            ]
    return [f"v{version} {line}" for version in range(3, 7) for line in found]


@pytest.mark.parametrize("rows", [ROWS, LONGEST])
@pytest.mark.parametrize("algorithms", [6, 7])
def test_every_version_chooses_by_the_table(
    driver: Path, rows: str, algorithms: int
) -> None:
    """Tests versions 2 to 6: 2 leaves all to NCCL, 3 to 6 do as the table says.

    NCCL 2.22 has no PAT. The driver counts as wrong what differs between ranks, what
    is impossible, and a protocol that is not NCCL's.
    """
    found = drive(driver, table_of(rows), algorithms=algorithms)
    assert found == (expected(rows, algorithms), "")


@needs.VALGRIND.mark
@pytest.mark.parametrize(
    ("ranks", "nodes"), [(RANKS, NODES), (8000, 1000)], ids=["few", "many"]
)
@pytest.mark.slow
def test_memory_stays_whole(driver: Path, ranks: int, nodes: int) -> None:
    """Tests that nothing is read or written beyond what NCCL hands over."""
    table = table_of(LONGEST, ranks, nodes)
    found = drive(driver, table, ranks=ranks, nodes=nodes, under=CHECKED)
    assert found == (expected(LONGEST), "")


@needs.VALGRIND.mark
@pytest.mark.parametrize("table", [None, table_of(ROWS)[:-1]])
def test_memory_stays_whole_without_a_table(driver: Path, table: str | None) -> None:
    """Tests the same where there is nothing to choose by."""
    found, _ = drive(driver, table, under=CHECKED)
    assert found == []


BROKEN = {
    "empty": "8 4,",
    "one rank": f"1 1,{ROWS}",
    "no function": "8 4,5 ring 0",
    "unknown function": "8 4,alltoall 0 ring 0",
    "unknown algorithm": "8 4,allreduce 0 nvls 0",
    "protocol": "8 4,allreduce 0 ring 0 simple",
    "functions out of order": "8 4,allreduce 0 ring 0,broadcast 0 ring 0",
    "function in two parts": "8 4,reduce 0 ring 0,allreduce 0 ring 0,reduce 9 ring 0",
    "sizes fall": "8 4,allreduce 5 ring 0,allreduce 4 tree 0",
    "one size twice": "8 4,allreduce 5 ring 0,allreduce 5 tree 0",
    "negative": "8 4,allreduce -5 ring 0",
    "more than 15 digits": "8 4,allreduce 1000000000000000 ring 0",
    "too many channels": "8 4,allreduce 0 ring 33",
    "without channels": "8 4,allreduce 0 ring",
    "a row too many": f"8 4,{LONGEST},allreduce 1000000 ring 0",
    "nodes missing": "8,allreduce 0 ring 0",
    "more behind": "8 4,allreduce 0 ring 0;",
}


def test_what_is_no_table(driver: Path) -> None:
    """Tests that a table is taken whole or not at all, with one line."""
    said = "cloudcoll: NCCL's own algorithms run: CLOUDCOLL_NCCL_TABLE is no table\n"
    whole = table_of(ROWS)
    cut = [whole[:length] for length in range(1, len(whole), 7)]
    changed = [whole.replace("ring", "tree"), whole.replace(" ", "  ", 1)]
    for table in (*map(sealed, BROKEN.values()), *cut, *changed, whole + " " * 5000):
        assert drive(driver, table) == ([], said), table


def test_only_the_job_it_was_made_for(driver: Path) -> None:
    """Tests that communicators of other sizes stay NCCL's; 0 nodes are any."""
    assert drive(driver, table_of(ROWS), ranks=RANKS + 1) == ([], "")
    assert drive(driver, table_of(ROWS), nodes=NODES + 1) == ([], "")
    everywhere = table_of(ROWS, nodes=0)
    assert drive(driver, everywhere, nodes=NODES + 1) == (expected(ROWS), "")


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_PROTO"])
def test_settings_of_the_user_win(driver: Path, name: str) -> None:
    """Tests that what the user says holds, with one line."""
    found, said = drive(driver, table_of(ROWS), env={name: "ring"})
    assert found == []
    assert said == (
        "cloudcoll: NCCL's own algorithms run: your own NCCL_ALGO or NCCL_PROTO holds\n"
    )


def test_choices_are_told(driver: Path) -> None:
    """Tests that CLOUDCOLL_DEBUG=1 tells each range once, and where it is not taken."""
    rows = "allgather 0 pat 0,allreduce 0 ring 0"
    _, said = drive(driver, table_of(rows), algorithms=6, env={"CLOUDCOLL_DEBUG": "1"})
    told = re.findall(
        r"cloudcoll: NCCL (\w+) of \d+ bytes: ([\w-]+), chosen (\w+)", said
    )
    assert len(told) == said.count("\n")
    assert set(told) == {("allreduce", "ring", "ring"), ("allreduce", "-", "ring")}
    assert drive(driver, table_of(rows), env={"CLOUDCOLL_DEBUG": "0"})[1] == ""


@pytest.mark.alone
def test_a_decision_takes_no_time(driver: Path) -> None:
    """Tests that it takes at most 200 ns, the driver's own figures included."""
    (line,), _ = drive(driver, table_of(LONGEST), "time")
    assert int(line.removesuffix(" ns")) <= 200


PLACED = {"PMI_RANK": "0", "PMI_SIZE": str(RANKS)}
BY_TORCHRUN = {"RANK": "0", "WORLD_SIZE": str(RANKS)}
SPLIT = "reduce 0 ring 0,allreduce 0 tree 0,allreduce 32768 ring 0"
"""Rows for each of which the driver marks the algorithm as impossible, not at last."""


def split_choices() -> list[Choice]:
    """Return what NCCL takes by `SPLIT`, where that is possible."""
    return [
        Choice(RANKS, NODES, name, size, "tree" if tree and size < 32768 else "ring")
        for name, tree in (("reduce", False), ("allreduce", True))
        for size in SIZES
    ]


@pytest.mark.parametrize(
    "under", [None, pytest.param(CHECKED, marks=needs.VALGRIND.mark)], ids=str
)
def test_what_is_taken_is_logged(
    driver: Path, tmp_path: Path, under: list[str] | None
) -> None:
    """Tests that rank 0 appends what costs least, and that choices stay the same."""
    log = tmp_path / "choices"
    env = {**PLACED, CHOICES: str(log)}
    expected_ = expected(SPLIT), ""
    assert drive(driver, table_of(SPLIT), env=env, under=under) == expected_
    found = read_choices(log)
    named = [one for one in found if one.collective in ("reduce", "allreduce")]
    assert sorted(named) == sorted(split_choices())
    # The rest is NCCL's own, of which only what it offers is logged.
    assert {one.name for one in found} <= {"tree", "ring", "pat"}
    assert {one.collective for one in found} > {one.collective for one in named}
    before = log.read_text()
    assert drive(driver, table_of(SPLIT), env=env) == expected_
    assert log.read_text().startswith(before)
    assert log.read_text().count("choices") == 1
    assert read_choices(log) == found


@pytest.mark.parametrize("more", [{}, {**PLACED, "PMI_RANK": "3"}], ids=["", "mpirun"])
def test_ranks_of_torchrun_log(
    driver: Path, tmp_path: Path, more: dict[str, str]
) -> None:
    """Tests that its rank 0 writes, also where another launcher started torchrun."""
    log = tmp_path / "choices"
    drive(driver, None, env={**BY_TORCHRUN, **more, CHOICES: str(log)})
    assert {one.ranks for one in read_choices(log)} == {RANKS}


@pytest.mark.parametrize(
    "place",
    [{**PLACED, "PMI_RANK": "1"}, {**BY_TORCHRUN, **PLACED, "RANK": "1"}, {}],
    ids=["mpi", "torchrun", "nobody"],
)
def test_only_rank_0_logs(driver: Path, tmp_path: Path, place: dict[str, str]) -> None:
    """Tests that others write nothing, nor a rank that knows no number."""
    log = tmp_path / "choices"
    env = {**place, CHOICES: str(log)}
    assert drive(driver, table_of(SPLIT), env=env) == (expected(SPLIT), "")
    assert not log.exists()


def test_logged_without_a_table(driver: Path, tmp_path: Path) -> None:
    """Tests that NCCL's own choices are logged where none is ours."""
    log = tmp_path / "choices"
    assert drive(driver, None, env={**PLACED, CHOICES: str(log)}) == ([], "")
    assert {one.collective for one in read_choices(log)} == {
        *("allreduce", "allgather", "bcast", "reduce", "reduce_scatter")
    }


def test_a_log_that_can_not_be_written(driver: Path, tmp_path: Path) -> None:
    """Tests one line, and that choices stay the same."""
    path = str(tmp_path / "none" / "choices")
    found = drive(driver, table_of(SPLIT), env={**PLACED, CHOICES: path})
    said = (
        f"cloudcoll: NCCL's choices are not logged: {path}: No such file or directory"
    )
    assert found == (expected(SPLIT), said + "\n")


@pytest.mark.alone
def test_a_logged_decision_takes_no_time(driver: Path, tmp_path: Path) -> None:
    """Tests the same 200 ns where calls are logged: most are as the last was."""
    env = {**PLACED, CHOICES: str(tmp_path / "choices")}
    (line,), _ = drive(driver, table_of(LONGEST), "time", env=env)
    assert int(line.removesuffix(" ns")) <= 200


JOB = 3
ALIKE = table_of(ROWS, JOB, JOB)


def run_job(driver: Path, odd: str, heard: dict[str, str]) -> list[Ended]:
    """Start one rank on each of some nodes, of which rank 1 is another than the rest.

    ``missing`` does not start, ``table`` has another, ``settings`` its own.
    """
    started = []
    for rank in range(JOB):
        env = {"PMI_RANK": str(rank), "PMI_SIZE": str(JOB), **heard}
        if (rank, odd) == (1, "missing"):
            continue
        if (rank, odd) == (1, "settings"):
            env["NCCL_ALGO"] = "ring"
        other = table_of("allreduce 0 ring 0", JOB, JOB)
        table = other if (rank, odd) == (1, "table") else ALIKE
        started.append(start(driver, table, ranks=JOB, nodes=JOB, env=env))
    return [ended(process) for process in started]


def test_all_ranks_have_the_table(driver: Path) -> None:
    """Tests that a job in which all are alike chooses by its table."""
    with counted() as heard:
        assert run_job(driver, "", heard) == [(expected(ROWS), "")] * JOB


@pytest.mark.parametrize("odd", ["missing", "table", "settings"])
def test_one_rank_is_another(
    driver: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that nobody chooses where one would not, and one line says so."""
    monkeypatch.setattr(roll, "QUIET_S", 1.0)
    lack = "{} of 3 ranks do without the tuner's table ({}): NCCL's own algorithms run"
    first, second = lack.format(1, "1"), lack.format(2, "0, 2")
    with counted(first, *([second] if odd == "table" else [])) as heard:
        ranks = run_job(driver, odd, heard)
    assert ranks == [([], "")] * (JOB - (odd == "missing"))


def test_nobody_counts(driver: Path) -> None:
    """Tests that nothing is chosen where nobody says that all are alike."""
    env = {shim.ROLL: f"- {choose_inbox().port} 127.0.0.1", "PMI_SIZE": "2"}
    first = start(driver, ALIKE, env={**env, "PMI_RANK": "0"})
    second = start(driver, ALIKE, env={**env, "PMI_RANK": "1"})
    said = "cloudcoll: NCCL's own algorithms run: cloudcoll run does not answer\n"
    assert [ended(first), ended(second)] == [([], said), ([], "")]


def test_ranks_without_a_number(driver: Path) -> None:
    """Tests that a rank which can't be counted says so and chooses nothing."""
    found = drive(driver, ALIKE, env={shim.ROLL: "- 1 127.0.0.1"})
    said = "cloudcoll: NCCL's own algorithms run: no variable tells a rank its number\n"
    assert found == ([], said)
