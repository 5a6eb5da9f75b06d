from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from mpis import EACH, MPIS, TRACER, Mpi, newest, traced

from cloudcoll.launch import shim
from cloudcoll.profile import Profile, load_profile

PROGRAM = Path(__file__).with_name("profiled.c")
RANKS = 4
WORLD, EVEN, ODD = (0, 1, 2, 3), (0, 2), (1, 3)

each_mpi = pytest.mark.parametrize("mpi", newest(EACH))
ORDERS = {"given": "-", "other": "h0,h2,h3,h1"}
each_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)

# Ranks pose as hosts.
POSE = (
    'export CLOUDCOLL_HOST="h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" '
    f'LD_PRELOAD="{shim.LIBRARY}$BEHIND"; exec "$@"'
)


def profiled(
    mpi: Mpi, folder: Path, program: list[str], **env: str
) -> subprocess.CompletedProcess[str]:
    env.setdefault("CLOUDCOLL_PROFILE", str(folder / "profile.json"))
    return mpi.mpirun(RANKS, "sh", "-c", POSE, "sh", *program, **env)


def counted(profile: Profile) -> dict[tuple[str, tuple[int, ...], int], float]:
    """Return how often each collective was called in which group, by bytes."""
    calls = profile.calls
    assert all(one.calls == int(one.calls) for one in calls)
    return {(one.collective, one.group, one.size): one.calls for one in calls}


# What runs in the order of hosts, persistent ones, too, and what does not.
MOVED = (
    *("Allreduce", "Reduce", "Barrier", "Reduce_scatter_block"),
    *("Allreduce_init", "Reduce_init", "Bcast_init", "Barrier_init"),
)
LEFT = "Alltoall"


@pytest.mark.many
@pytest.mark.parametrize("mpi", EACH)
@each_order
def test_a_known_program(mpi: Mpi, order: str, tmp_path: Path) -> None:
    """Tests that the calls a C program makes run in the order, and are counted."""
    program = mpi.compile(tmp_path / "program", PROGRAM)
    tracer = mpi.compile(tmp_path / "tracer", TRACER, shared=True)
    env = {"BEHIND": f":{tracer}", "CLOUDCOLL_SHIM_ORDER": order}
    ended = profiled(mpi, tmp_path, [program], **env)
    assert ended.returncode == 0
    assert "cloudcoll" not in ended.stderr
    given = tuple(f"h{rank}" for rank in WORLD)
    hosts = given if order == "-" else tuple(order.split(","))
    assert traced(ended.stderr, RANKS) == {LEFT: given} | dict.fromkeys(MOVED, hosts)
    profile = load_profile(tmp_path / "profile.json")
    assert profile.ranks == RANKS
    alone = {("allreduce", (rank,), 4): 1 for rank in WORLD}
    assert counted(profile) == alone | {
        ("allreduce", WORLD, 1000): 5,
        ("allreduce", WORLD, 4): 1,
        ("bcast", EVEN, 800): 4,
        ("bcast", ODD, 800): 4,
        ("allgather", EVEN, 80): 1,
        ("allgather", ODD, 80): 1,
        ("allgather", WORLD, 1 + 2 + 3 + 4): 1,
        ("reduce", WORLD, 14): 1,
        ("alltoall", WORLD, 160): 1,
        ("reduce_scatter", WORLD, 4 * (1 + 2 + 3 + 4)): 1,
        ("reduce_scatter", WORLD, 4 * 64 * RANKS): 1,
        ("barrier", WORLD, 0): 2,
        ("allreduce", WORLD, 12): 1,
        ("bcast", WORLD, 5): 1,
        ("reduce", WORLD, 36): 1,
    }
    assert all(0 < one.least <= one.seconds for one in profile.calls)
    assert 0 < profile.share <= 1


@pytest.mark.parametrize("asks", [0, 1])
def test_a_profile_that_some_want(asks: int, tmp_path: Path) -> None:
    """Tests a variable that one rank alone has: rank 0, or another."""
    program = MPIS[0].compile(tmp_path / "program", PROGRAM)
    rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
    only = f'[ "{rank}" = {asks} ] || unset CLOUDCOLL_PROFILE; exec "$0"'
    ended = profiled(MPIS[0], tmp_path, ["sh", "-c", only, program])
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "profile.json").exists()
    assert ended.stderr.count("some ranks have no CLOUDCOLL_PROFILE") == 1


# What the shim keeps with each communicator whose calls it counts.
KEYS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int PMPI_Comm_create_keyval(intptr_t a, intptr_t b, intptr_t c, intptr_t d)
{
	int (*real)(intptr_t, intptr_t, intptr_t, intptr_t) =
		(int (*)(intptr_t, intptr_t, intptr_t, intptr_t))
			dlsym(RTLD_NEXT, "PMPI_Comm_create_keyval");

	fprintf(stderr, "keyval\\n");
	return real(a, b, c, d);
}
"""


def test_nothing_is_counted_where_nobody_wants_it(tmp_path: Path) -> None:
    program = MPIS[0].compile(tmp_path / "program", PROGRAM)
    (tmp_path / "keys.c").write_text(KEYS)
    keys = MPIS[0].compile(tmp_path / "keys", tmp_path / "keys.c", shared=True)
    run = partial(profiled, MPIS[0], tmp_path, [program])
    env = {"BEHIND": f":{keys}", "CLOUDCOLL_SHIM_ORDER": "-"}
    made = run(**env, CLOUDCOLL_PROFILE="").stderr.count("keyval")
    assert run(**env).stderr.count("keyval") == made + RANKS


THREADS = """
#include <mpi.h>
#include <pthread.h>

static void *call(void *comm)
{
	int one = 1, sum;

	for (int i = 0; i < 100000; i++)
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *(MPI_Comm *)comm);
	return NULL;
}

int main(void)
{
	pthread_t all[4];
	MPI_Comm comms[4];
	int level;

	MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	for (int i = 0; i < 4; i++)
		MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
	for (int i = 0; i < 4; i++)
		pthread_create(&all[i], NULL, call, &comms[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	return MPI_Finalize();
}
"""


def test_threads_that_call_at_a_time(tmp_path: Path) -> None:
    """Tests that no call of any thread is missing."""
    source, profile = tmp_path / "threads.c", tmp_path / "profile.json"
    source.write_text(THREADS)
    program = MPIS[0].compile(tmp_path / "program", source)
    # Not by a launcher: it would bind all threads to one core.
    ended = subprocess.run(
        [program],
        env=MPIS[0].environment(
            LD_PRELOAD=str(shim.LIBRARY),
            CLOUDCOLL_SHIM_ORDER="-",
            CLOUDCOLL_PROFILE=str(profile),
        ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one.calls for one in load_profile(profile).calls] == [400000]


PYTHON = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
out = np.empty(1000)
for _ in range(7):
    world.Allreduce(np.ones(1000), out)
assert (out == world.size).all()
backwards = world.Split(0, -world.rank)
backwards.Bcast(out, root=1)
backwards.Ireduce_scatter_block(np.ones((4, 2)), out[:2]).Wait()
blocks = np.empty((4, 2))
world.Alltoallv(np.ones((4, 2)), blocks)
world.Iallgather(out[:2], blocks).Wait()
world.Barrier()
"""


@pytest.mark.many
@each_mpi
def test_a_known_program_of_python(mpi: Mpi, tmp_path: Path) -> None:
    """Tests that it has the calls of mpi4py, with or without large counts."""
    program = [sys.executable, "-c", PYTHON]
    ended = profiled(mpi, tmp_path, program, CLOUDCOLL_SHIM_ORDER=ORDERS["other"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert counted(load_profile(tmp_path / "profile.json")) == {
        ("allreduce", WORLD, 8000): 7,
        ("bcast", WORLD[::-1], 8000): 1,
        ("reduce_scatter", WORLD[::-1], 64): 1,
        ("alltoall", WORLD, 64): 1,
        ("allgather", WORLD, 64): 1,
        ("barrier", WORLD, 0): 1,
    }


@pytest.mark.parametrize(
    ("path", "why"),
    [("/none/x.json", "cannot write /none/x.json"), ("pipe", "no file")],
)
def test_a_profile_that_can_not_be_written(path: str, why: str, tmp_path: Path) -> None:
    """Tests that the job ends as ever, with one line, and a device stays one."""
    os.mkfifo(pipe := tmp_path / "pipe")
    program = [sys.executable, "-c", PYTHON]
    ended = profiled(MPIS[0], tmp_path, program, CLOUDCOLL_PROFILE=str(tmp_path / path))
    said = [line for line in ended.stderr.splitlines() if "no profile" in line]
    assert ended.returncode == 0
    assert len(said) == 1
    assert why in said[0]
    assert pipe.is_fifo()
