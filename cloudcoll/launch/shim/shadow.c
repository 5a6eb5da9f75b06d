/* Shadows of a communicator, one for each order: made once, kept as its
 * attribute, freed with it.
 *
 * Making one is collective, so it happens in blocking collectives only: a
 * correct program makes these in the same order on all ranks of a communicator
 * and survives that they synchronise. No lock is held meanwhile, since another
 * thread may be at the same point with another communicator. */
#include "shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* MPICH has no more than 2048 communicators at a time, the application's too. */
#define MOST_ALIVE 256

/* Stands for "stays as it is". */
static struct shadow none;

/* What a communicator has as its attribute; NULL is not tried yet. */
struct twins {
	const struct shadow *of[MOST_ORDERS];
};

static int keyval;
static int has_keyval;
static atomic_int finalizing;
static atomic_long made, alive, bytes;

/* The communicator that this thread used last. What freed one since then may
 * have freed this one, and its handle may be another one's now. */
static atomic_ulong generation = 1;
static __thread struct {
	word comm;
	unsigned long generation;
	struct twins *twins;
} last __attribute__((tls_model("initial-exec")));

/* A duplicate gets a shadow of its own when it needs one. */
static int copy_nothing(word comm, int key, void *extra, void *in, void *out,
                        int *flag)
{
	(void)comm, (void)key, (void)extra, (void)in, (void)out;
	*flag = 0;
	return 0;
}

static int no_more_calls(void)
{
	int finalized = 0;

	mpi.Finalized((word)&finalized);
	return finalized || atomic_load(&finalizing);
}

static size_t memory(int size)
{
	return sizeof(struct shadow) +
	       (size_t)size * (2 * sizeof(int) + 2 * sizeof(int64_t));
}

static struct shadow *allocate(int size)
{
	struct shadow *shadow = NULL;

	if (atomic_load(&alive) < MOST_ALIVE)
		shadow = calloc(1, memory(size));
	if (!shadow)
		return NULL;
	shadow->size = size;
	shadow->blocks = (int64_t *)(shadow + 1);
	shadow->place = (int *)(shadow->blocks + 2 * size);
	shadow->rank = shadow->place + size;
	/* Reserved now, so that whether it is there is part of the vote. */
	shadow->room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shadow->room == MAP_FAILED) {
		free(shadow);
		return NULL;
	}
	return shadow;
}

static void discard(struct shadow *shadow)
{
	if (shadow)
		munmap(shadow->room, ROOM);
	free(shadow);
}

static int forget(word comm, int key, struct twins *twins, void *extra)
{
	(void)comm, (void)key, (void)extra;
	atomic_fetch_add(&generation, 1);
	for (int i = 0; i < MOST_ORDERS; i++) {
		struct shadow *shadow = (struct shadow *)twins->of[i];

		if (!shadow || shadow == &none)
			continue;
		if (!no_more_calls())
			mpi.Comm_free((word)&shadow->comm);
		atomic_fetch_sub(&alive, 1);
		atomic_fetch_sub(&bytes, (long)memory(shadow->size));
		discard(shadow);
	}
	free(twins);
	return 0;
}

static void make_keyval(void)
{
	has_keyval = !mpi.Comm_create_keyval((word)copy_nothing, (word)forget,
	                                     (word)&keyval, 0);
}

/* Fill both tables; return whether any rank has another place. */
static int fill_tables(struct shadow *shadow, word comm)
{
	word here = 0, there = 0;
	int moved = 0, size = shadow->size;

	for (int i = 0; i < size; i++)
		shadow->place[i] = i;
	mpi.Comm_group(comm, (word)&here);
	mpi.Comm_group(shadow->comm, (word)&there);
	mpi.Group_translate_ranks(there, size, (word)shadow->place, here,
	                          (word)shadow->rank);
	mpi.Group_free((word)&here);
	mpi.Group_free((word)&there);
	for (int i = 0; i < size; i++) {
		moved |= shadow->rank[i] != i;
		shadow->place[shadow->rank[i]] = i;
	}
	return moved;
}

/* One line for the job: from rank 0, the first time. */
static void explain(word comm, const char *reason, int alike, int size)
{
	static atomic_int said;
	int initialized = 0, rank = -1;

	mpi.Initialized((word)&initialized);
	mpi.Comm_rank(initialized ? mpi.comm_world : comm, (word)&rank);
	if (!debugging() && (rank != 0 || atomic_exchange(&said, 1)))
		return;
	if (reason)
		say("%s: running in the order given", reason);
	else
		say("only %d of %d ranks have the order that rank %d has: running in "
		    "the order given", alike, size, rank);
}

/* That there may be no communicators left is not the application's error. */
static int split_quietly(word comm, int color, int key, word *made)
{
	word handler = 0;
	int code;

	if (mpi.Comm_get_errhandler(comm, (word)&handler))
		return mpi.Comm_split(comm, color, key, (word)made);
	mpi.Comm_set_errhandler(comm, mpi.errors_return);
	code = mpi.Comm_split(comm, color, key, (word)made);
	mpi.Comm_set_errhandler(comm, handler);
	mpi.Errhandler_free((word)&handler);
	return code;
}

/* Colors decide together with the split: whoever has no order, or another one,
 * ends up elsewhere, and everybody sees that some are missing: NULL. */
static struct shadow *split(word comm, int size, int order)
{
	const struct order *own = own_order();
	struct shadow *shadow = allocate(size);
	int alike = 0;
	word twin = 0;

	if (split_quietly(comm, shadow ? own->color : 0, own->place[order], &twin)) {
		discard(shadow);
		return NULL;
	}
	mpi.Comm_size(twin, (word)&alike);
	if (!shadow || !own->color || alike != size) {
		explain(comm, !own->color ? own->reason : shadow ? NULL :
		        "no room for another shadow", alike, size);
		mpi.Comm_free((word)&twin);
		discard(shadow);
		return NULL;
	}
	shadow->comm = twin;
	if (!fill_tables(shadow, comm)) {
		mpi.Comm_free((word)&twin);
		discard(shadow);
		return &none;
	}
	mpi.Comm_set_errhandler(twin, mpi.errors_return);
	if (mpi.Comm_c2f)
		shadow->fortran = (int)mpi.Comm_c2f(twin);
	return shadow;
}

static const struct shadow *create(word comm, int order)
{
	struct shadow *shadow = &none;
	int inter = 0, size = 0;

	mpi.Comm_test_inter(comm, (word)&inter);
	if (!inter)
		mpi.Comm_size(comm, (word)&size);
	if (size > 1 && !own_order()->unwanted && all_are_here() &&
	    of_one_world(comm, size))
		shadow = split(comm, size, order);
	if (shadow && shadow != &none) {
		atomic_fetch_add(&made, 1);
		atomic_fetch_add(&alive, 1);
		atomic_fetch_add(&bytes, (long)memory(size));
	}
	return shadow;
}

static struct twins *look_up(word comm)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned long now = atomic_load(&generation);
	struct twins *twins = NULL;
	int flag = 0;

	load_library();
	if (mpi.missing || same(comm, mpi.comm_null))
		return NULL;
	pthread_once(&once, make_keyval);
	if (!has_keyval ||
	    mpi.Comm_get_attr(comm, keyval, (word)&twins, (word)&flag))
		return NULL;
	if (!flag) {
		twins = calloc(1, sizeof *twins);
		if (!twins)
			return NULL;
		mpi.Comm_set_attr(comm, keyval, (word)twins);
	}
	last.comm = comm;
	last.generation = now;
	last.twins = twins;
	return twins;
}

const struct shadow *shadow_of(word comm, enum creation creation, int order)
{
	struct twins *twins = last.twins;
	const struct shadow *shadow;

	if (last.comm != comm || last.generation != atomic_load(&generation))
		twins = look_up(comm);
	if (!twins)
		return NULL;
	shadow = twins->of[order];
	if (!shadow && creation == CREATE) {
		shadow = twins->of[order] = create(comm, order);
		/* Who has not the same orders may be about to ask for another one:
		 * one vote is for all. */
		for (int i = 0; !shadow && i < MOST_ORDERS; i++)
			twins->of[i] = &none;
	}
	return shadow == &none ? NULL : shadow;
}

word rooted(const struct shadow *shadow, word comm, word *root)
{
	int rank = (int)*root;

	if (!shadow || rank < 0 || rank >= shadow->size)
		return comm;
	*root = shadow->place[rank];
	return shadow->comm;
}

int told(word comm, word on, int code)
{
	if (code && on != comm)
		mpi.Comm_call_errhandler(comm, code);
	return code;
}

void close_shadows(void)
{
	void *twins;
	int flag = 0;

	load_library();
	if (debugging() && atomic_load(&made))
		say("%ld shadow communicators were made; tables of %ld bytes are left",
		    atomic_load(&made), atomic_load(&bytes));
	if (has_keyval)
		mpi.Comm_get_attr(mpi.comm_world, keyval, (word)&twins, (word)&flag);
	if (flag)
		mpi.Comm_delete_attr(mpi.comm_world, keyval);
	atomic_store(&finalizing, 1);
}
