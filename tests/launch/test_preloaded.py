"""Programs that a preloaded library meets by chance: no output, and no failure."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import MUSL, SETUID

from cloudcoll.launch import shim
from cloudcoll.launch.environment import write_environment
from cloudcoll.rankmap import RankMap

DEADLINE_S = 60
LIBRARIES = [shim.LIBRARY, shim.NCCL, shim.RANKS]
NOBODY = 65534

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	const char *rank = getenv("RANK");

	puts(rank ? rank : "none");
	return 0;
}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users can read, too, with a program and a table in it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "show.c").write_text(PROGRAM)
        (path / "table").write_text(write_environment(RankMap(("a", "c"), (2, 2))))
        yield path


def build(folder: Path, name: str, *flags: str, compiler: str = "cc") -> Path:
    """Compile the program that shows its rank."""
    target = folder / name
    argv = [compiler, *flags, "-o", str(target), str(folder / "show.c")]
    subprocess.run(argv, check=True, timeout=DEADLINE_S)
    return target


def shown(
    folder: Path,
    program: list[str | Path],
    preload: list[Path] = LIBRARIES,
    user: int | None = None,
) -> tuple[int, str, str]:
    """Start a program with rank 0 on the second host, under all libraries."""
    env = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": ":".join(map(str, preload)),
        "RANK": "0",
        "LOCAL_RANK": "0",
        "CLOUDCOLL_HOST": "c",
        shim.ORDER: "c,a",
        shim.RANKS_TABLE: str(folder / "table"),
    }
    ended = subprocess.run(
        program,
        env=env,
        user=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_plain_program(folder: Path) -> None:
    """Tests that its rank is rewritten, and that nothing else is to be seen."""
    assert shown(folder, [build(folder, "plain")]) == (0, "2\n", "")


def test_a_static_program(folder: Path) -> None:
    """Tests that it is not reached."""
    assert shown(folder, [build(folder, "static", "-static")]) == (0, "0\n", "")


@MUSL.mark
def test_a_program_of_musl(folder: Path) -> None:
    """Tests that a library which was built for glibc does no harm there."""
    program = build(folder, "musl", compiler="musl-gcc")
    assert shown(folder, [program]) == (0, "2\n", "")


def test_nothing_but_the_c_library_is_needed() -> None:
    """Tests it for all: what a loader does not find ends any program."""
    for library in LIBRARIES:
        dynamic = subprocess.run(
            ["readelf", "-d", library], capture_output=True, text=True, check=True
        ).stdout
        assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"]


def honours_setuid(folder: Path) -> bool:
    status = Path("/proc/self/status").read_text()
    mounted = os.statvfs(folder).f_flag & os.ST_NOSUID
    return os.geteuid() == 0 and "NoNewPrivs:\t0" in status and not mounted


def test_a_setuid_program(folder: Path) -> None:
    """Tests that the loader keeps the libraries out of it."""
    if not honours_setuid(folder):
        SETUID.skip()
    program = build(folder, "setuid")
    program.chmod(0o755 | stat.S_ISUID)
    assert shown(folder, [program], user=NOBODY) == (0, "0\n", "")


def test_a_thousand_children(folder: Path) -> None:
    """Tests that whatever a shell starts starts."""
    build(folder, "child")
    loop = 'i=0; while [ $i -lt 1000 ]; do "$0" || exit 9; i=$((i+1)); done'
    code, out, err = shown(folder, ["sh", "-c", loop, str(folder / "child")])
    assert (code, out, err) == (0, "2\n" * 1000, "")


@pytest.mark.parametrize("program", ["python", "bash", "sh"])
def test_children_without_mpi(folder: Path, program: str) -> None:
    """Tests shells and Python, and what they start."""
    inner = f"{sys.executable} -c \"import os; print(os.environ['RANK'])\""
    code = f"import os; os.execvp('sh', ['sh', '-c', {inner!r}])"
    argv = (
        [sys.executable, "-c", code] if program == "python" else [program, "-c", inner]
    )
    assert shown(folder, [*argv]) == (0, "2\n", "")


@pytest.mark.parametrize("wrong", ["missing", "32 bits", "text"])
def test_a_library_that_can_not_be_loaded(folder: Path, wrong: str) -> None:
    """Tests that the program starts as it is; the loader itself says why."""
    path = folder / wrong.replace(" ", "-")
    content = bytearray(shim.RANKS.read_bytes())
    content[4] = 1  # EI_CLASS
    if wrong != "missing":
        path.write_bytes(content if wrong == "32 bits" else b"no library")
    code, out, err = shown(folder, [build(folder, "plain")], [path])
    assert (code, out) == (0, "0\n")
    assert err.startswith("ERROR: ld.so: object")
    assert err.count("\n") == 1
