/* The processes that were started together: their beginning and their end. */
#include "roll.h"
#include "shim.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranks at a time: whether all belong to one world must not hang on memory. */
#define SOME 256

static char profile[PATH_MAX]; /* a copy: programs change their environment */
static int64_t began; /* 0 where nothing can be counted */
static int all_here, left;
static atomic_int sessions; /* that are open */

static int is_spawned(void)
{
	word parent = mpi.comm_null;

	mpi.Comm_get_parent((word)&parent);
	return !same(parent, mpi.comm_null);
}

/* Of variables that are the same in all processes of a world, and
 * tell what they are about to do together. */
static uint32_t world_digest(void)
{
	static const char *const names[] = {
		"CLOUDCOLL_SHIM_ORDER", "CLOUDCOLL_SHIM_MAP", "CLOUDCOLL_PROFILE",
		"CLOUDCOLL_TUNE", "CLOUDCOLL_TUNED", "PMIX_NAMESPACE",
	};
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *text = getenv(names[i]);

		hash = mixed_text(hash, text ? text : "");
	}
	return hash;
}

/* Whether MPI_Init has made a world that MPI_Finalize has not ended. */
static int there_is_a_world(void)
{
	int begun = 0, over = 0;

	mpi.Initialized((word)&begun);
	mpi.Finalized((word)&over);
	return begun && !over;
}

static struct caller *called; /* while there may be something to tell */

void call_roll(int rank, int ranks)
{
	static int over;
	enum outcome outcome;
	int early = mpi.Initialized && !there_is_a_world();
	char world[32];

	if (!is_counted() || over++)
		return;
	/* Before MPI_Init some may still have to be started. */
	snprintf(world, sizeof world, "%s%08x", early ? "starting-" : "",
	         world_digest());
	called = begin_roll(world, rank, ranks, -1);
	if (early)
		be_patient(called);
	while ((outcome = await_roll(called, INT_MAX)) == WAITING)
		continue;
	all_here = outcome == ALL_HERE;
	if (outcome == NO_ANSWER && (!rank || debugging()))
		say("cloudcoll run does not answer: running in the order given");
}

void report(int rank, const char *wrong)
{
	if (rank)
		return;
	if (called)
		tell_roll(called, wrong);
	else if (*wrong)
		say("%s", wrong);
}

int all_are_here(void)
{
	return all_here || !is_counted();
}

static void explain_missing(void)
{
	int rank = 0;

	if (mpi.Comm_rank)
		mpi.Comm_rank(mpi.comm_world, (word)&rank);
	if (!rank)
		say("%s has no %s: running in the order given", mpi.file, mpi.missing);
}

void enter_world(void)
{
	static int entered;
	const char *path;
	int rank = -1;

	load_library();
	if (entered++)
		return;
	if (mpi.missing) {
		explain_missing();
		return;
	}
	own_order(); /* before the program changes its environment */
	if (is_spawned())
		return;
	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	call_roll(rank, members_of(mpi.comm_world));
	tune_after_init();
	path = getenv("CLOUDCOLL_PROFILE");
	profiling = path && path[0] && all_are_here() &&
	            snprintf(profile, sizeof profile, "%s", path) < PATH_MAX;
	began = now_ns();
}

/* By hand a variable may not get to all hosts. That is asked in the end, as in
 * MPI_Init Open MPI 5 may die of what it is sent (open-mpi/ompi#13559). */
static int all_want_it(void)
{
	enum { WANTED = 1, UNWANTED = 2 };
	unsigned char here = profiling ? WANTED : UNWANTED, everywhere;
	int rank = 0;

	if (is_counted())
		return profiling;
	if (mpi.Allreduce((word)&here, (word)&everywhere, 1, mpi.byte, mpi.band,
	                  mpi.comm_world))
		return 0;
	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	if (!rank && !everywhere)
		say("some ranks have no CLOUDCOLL_PROFILE: no profile (mpirun -x and "
		    "mpiexec -genv pass it on)");
	return everywhere == WANTED;
}

void leave_world(void)
{
	load_library();
	if (left++)
		return;
	end_roll(called);
	called = NULL;
	if (began && all_want_it())
		write_profile(profile, began);
	profiling = 0;
	close_shadows();
}

/* Without a world MPI ends with the last session, and may begin anew. */
static void begin_anew_if_over(void)
{
	if (!sessions && !there_is_a_world())
		renew_shadows();
}

int in_world(void)
{
	return !left && there_is_a_world();
}

int members_of(word comm)
{
	int size = 0;

	mpi.Comm_size(comm, (word)&size);
	return size;
}

int peers_of(word comm)
{
	int inter = 0, size = 0;

	mpi.Comm_test_inter(comm, (word)&inter);
	if (!inter)
		return members_of(comm);
	mpi.Comm_remote_size(comm, (word)&size);
	return size;
}

int world_ranks(word comm, int size, int *ranks)
{
	int all = 1, own[SOME], found[SOME];
	word here = 0, world = 0;

	mpi.Comm_group(comm, (word)&here);
	mpi.Comm_group(mpi.comm_world, (word)&world);
	for (int at = 0; at < size; at += SOME) {
		int n = size - at < SOME ? size - at : SOME;

		for (int i = 0; i < n; i++)
			own[i] = at + i;
		mpi.Group_translate_ranks(here, n, (word)own, world, (word)found);
		for (int i = 0; i < n; i++)
			all &= found[i] >= 0; /* MPI_UNDEFINED is not */
		if (ranks)
			memcpy(ranks + at, found, sizeof *ranks * (size_t)n);
	}
	mpi.Group_free((word)&here);
	mpi.Group_free((word)&world);
	return all;
}

int of_one_world(word comm, int size)
{
	return world_ranks(comm, size, NULL);
}

#pragma GCC visibility push(default)

int MPI_Init(word argc, word argv)
{
	int code;

	load_library();
	tune_before_init();
	code = mpi.Init(argc, argv);
	if (!code)
		enter_world();
	return code;
}

int MPI_Init_thread(word argc, word argv, word required, word provided)
{
	int code;

	load_library();
	tune_before_init();
	code = mpi.Init_thread(argc, argv, required, provided);
	if (!code)
		enter_world();
	return code;
}

int MPI_Session_init(word info, word handler, word session)
{
	int code;

	load_library();
	if (!mpi.Session_init)
		return ERR_UNSUPPORTED;
	begin_anew_if_over();
	atomic_fetch_add(&sessions, 1);
	code = mpi.Session_init(info, handler, session);
	if (code)
		atomic_fetch_sub(&sessions, 1);
	return code;
}

int MPI_Session_finalize(word session)
{
	int code;

	load_library();
	if (!mpi.Session_finalize)
		return ERR_UNSUPPORTED;
	code = mpi.Session_finalize(session);
	if (!code)
		atomic_fetch_sub(&sessions, 1);
	begin_anew_if_over();
	return code;
}

int MPI_Finalize(void)
{
	leave_world();
	return mpi.Finalize(0);
}
