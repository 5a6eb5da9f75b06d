from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.errors import CloudcollError
from cloudcoll.launch.environment import (
    HOST_NUMBERS,
    MARK,
    placed_environment,
    write_environment,
)
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.launch.shim import RANKS as LIBRARY
from cloudcoll.launch.shim import RANKS_TABLE as TABLE
from cloudcoll.rankmap import RankMap

DEADLINE_S = 30
SHOW = ["env", "-0"]
EVEN = RankMap(("a.lan", "c.lan", "b.lan"), (2, 2, 2), snapshot="0123456789abcdef")


def start(
    program: list[str], env: Mapping[str, str], table: Path
) -> subprocess.CompletedProcess[str]:
    """Start a program under the shim."""
    shim = {"LD_PRELOAD": str(LIBRARY), TABLE: str(table), "PATH": os.environ["PATH"]}
    return subprocess.run(
        program,
        env={**shim, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def shown(output: str) -> dict[str, str]:
    """Return the variables of a job from what a program shows of all."""
    pairs = (entry.partition("=") for entry in output.split("\0") if entry)
    ours = {"LD_PRELOAD", "PATH", TABLE}
    return {name: value for name, _, value in pairs if name not in ours}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "table"
    path.write_text(write_environment(EVEN))
    return path


NUMBERS = st.sampled_from(["0", "1", "2", "3", "5", "6", "12", "2:3", "x", ""])
MASTERS = st.sampled_from(
    ["a", "A.LAN", "a.lan", "a.lan.example", "c", "127.0.0.1", "localhost", "::1"]
)
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK"), NUMBERS),
        **dict.fromkeys(("NNODES", "PET_NNODES"), st.sampled_from(["3", "1:3", "4"])),
        **dict.fromkeys(("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"), NUMBERS),
        **dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), MASTERS),
        "DMLC_TASK_ID": st.sampled_from(["0", "task with spaces", ""]),
        "TORCHELASTIC_USE_AGENT_STORE": st.sampled_from(["True", "False"]),
    },
)
NAMES = st.sampled_from(["a", "a.lan", "C.lan", "b.lan.example", "b", "d", "lan"])
SLOTS = st.lists(st.integers(1, 4), min_size=3, max_size=3)


ORDERS = st.sampled_from([EVEN.order, ("10.1.2.3", "c.lan", "b.lan")])
RANKED = {"RANK", "DMLC_TASK_ID", *HOST_NUMBERS}


@settings(deadline=None, max_examples=200)
@given(ENVIRONMENTS, NAMES, SLOTS, ORDERS, st.booleans())
def test_the_same_as_cloudcoll_exec(
    table: Path,
    env: dict[str, str],
    name: str,
    slots: list[int],
    order: tuple[str, ...],
    free: bool,
) -> None:
    """Tests that both rewrite the same variables to the same values, or none."""
    rank_map = RankMap(order, tuple(slots), snapshot=EVEN.snapshot)
    table.with_name("other").write_text(write_environment(rank_map))
    given = {**env, "CLOUDCOLL_HOST": name, "CLOUDCOLL_FREE_RANK0": str(int(free))}
    placed = {MARK: "none"} if RANKED & env.keys() else {}
    with contextlib.suppress(CloudcollError):  # the program starts unchanged
        placed = placed_environment(OwnHost(rank_map, table, name, free), env)
    ended = start(SHOW, given, table.with_name("other"))
    assert shown(ended.stdout) == {**given, **placed}
    assert ended.stderr.count("\n") == (placed.get(MARK) == "none")


JOB = {"RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "CLOUDCOLL_HOST": "c"}


@pytest.mark.parametrize(
    "program",
    [
        [sys.executable, "-c", "import os; print(os.environ['RANK'])"],
        ["sh", "-c", "echo $RANK"],
        ["bash", "-c", "echo $RANK"],
        ["bash", "-c", f"{sys.executable} -c \"import os; print(os.getenv('RANK'))\""],
        ["bash", "-c", 'sh -c "exec bash -c \\"echo \\$RANK\\""'],
    ],
)
def test_every_program_sees_it_once(table: Path, program: list[str]) -> None:
    """Tests that shells, their children and Python have the same rank."""
    ended = start(program, JOB, table)
    assert (ended.stdout, ended.stderr) == ("2\n", "")


def test_children_are_left_alone(table: Path) -> None:
    """Tests that a launcher's own ranks stay, on a host that was done before."""
    child = "RANK=7 DMLC_TASK_ID=4 env -0"
    seen = shown(start(["sh", "-c", child], JOB, table).stdout)
    assert (seen["RANK"], seen["DMLC_TASK_ID"], seen["NODE_RANK"]) == ("7", "4", "1")
    assert seen[MARK] == "0123456789ab"


def test_parents_without_ranks_are_left_alone(table: Path) -> None:
    """Tests that a launcher which sets ranks later has them rewritten then."""
    launcher = "RANK=0 LOCAL_RANK=1 env -0"
    env = {"CLOUDCOLL_HOST": "b"}
    ended = start(["sh", "-c", launcher], env, table)
    assert shown(ended.stdout)["RANK"] == "5"
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        ("", "is empty"),
        ("host a 2\n", "is no table of ranks"),
        ("mark x\nhost c two\n", "is no table of ranks"),
        ("mark x\nhost c 2\nwhat c 2\n", "is no table of ranks"),
        ("\x7fELF\x01\x02", "is no table of ranks"),
        (write_environment(EVEN).replace("c.lan", "a.lan"), "is not in"),
    ],
)
def test_a_bad_table(tmp_path: Path, text: str | None, said: str) -> None:
    """Tests that the program starts as it is, and its children are not told again."""
    path = tmp_path / "table"
    if text is not None:
        path.write_text(text)
    ended = start(["sh", "-c", "sh -c 'echo $RANK'; true"], JOB, path)
    assert ended.stdout == "0\n"
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


def test_what_it_says_is_plain(tmp_path: Path) -> None:
    """Tests that no name of a file or a host moves a cursor or begins a line."""
    odd = tmp_path / "\x1b]0;x\x07\nnone"
    told = start(["true"], JOB, odd).stderr
    assert told.endswith(
        "/\\x1b]0;x\\x07\\x0anone: No such file or directory; starting the program "
        "unchanged\n"
    )
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"NNODES": "4"},
        {"WORLD_SIZE": "8"},
        {"LOCAL_WORLD_SIZE": "3"},
        {"CLOUDCOLL_HOST": "elsewhere"},
    ],
)
def test_a_table_of_another_job(table: Path, other: dict[str, str]) -> None:
    """Tests that a job of other hosts starts as it is, with one line, once."""
    ended = start(["sh", "-c", "sh -c 'echo $RANK'; true"], {**JOB, **other}, table)
    assert ended.stdout == "0\n"
    assert ended.stderr.count("\n") == 1
    assert ("is not in" if "CLOUDCOLL_HOST" in other else "solve for") in ended.stderr
