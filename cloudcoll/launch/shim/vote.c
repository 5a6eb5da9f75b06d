/* Make a shadow: all ranks of a communicator together, and only if all can. */
#include "shim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* MPICH has no more than 2048 communicators at a time, the application's too. */
#define MOST_ALIVE 256

struct shadow unmoved;

static atomic_long made, alive, bytes;

static size_t memory(int size)
{
	return sizeof(struct shadow) +
	       (size_t)size * (2 * sizeof(int) + 2 * sizeof(int64_t));
}

static struct shadow *allocate(int size)
{
	struct shadow *shadow = calloc(1, memory(size));

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

void end_shadow(struct shadow *shadow, int finalizing)
{
	if (!finalizing)
		mpi.Comm_free((word)&shadow->comm);
	atomic_fetch_sub(&alive, 1);
	atomic_fetch_sub(&bytes, (long)memory(shadow->size));
	discard(shadow);
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
static void explain(const char *reason, int alike, int size)
{
	static atomic_int said;
	int rank = -1;

	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	if (!debugging() && (rank != 0 || atomic_exchange(&said, 1)))
		return;
	if (reason)
		say("%s: running in the order given", reason);
	else
		say("only %d of %d ranks have the order that rank %d has: running in "
		    "the order given", alike, size, rank);
}

/* That there may be no communicators left is not the application's error. A split
 * can fail on some ranks and succeed on others, so what it did on all is agreed on;
 * what some have is then left, as freeing it would take all of them. */
static int split_together(word comm, int color, int key, word *made)
{
	unsigned char here, everywhere = 0;
	word handler = 0;
	int quiet = !mpi.Comm_get_errhandler(comm, (word)&handler);

	if (quiet)
		mpi.Comm_set_errhandler(comm, mpi.errors_return);
	here = mpi.Comm_split(comm, color, key, (word)made) ? 0 : 1;
	if (mpi.Allreduce((word)&here, (word)&everywhere, 1, mpi.byte, mpi.band, comm))
		everywhere = 0;
	if (quiet) {
		mpi.Comm_set_errhandler(comm, handler);
		mpi.Errhandler_free((word)&handler);
	}
	return everywhere;
}

/* Colors decide together with the split: whoever has no order, or another one,
 * ends up elsewhere, and everybody sees that some are missing: NULL. */
static struct shadow *split(word comm, int size, int order, int has_room)
{
	const struct order *own = own_order();
	struct shadow *shadow = NULL;
	int alike = 0;
	word twin = 0;

	if (has_room && atomic_load(&alive) < MOST_ALIVE)
		shadow = allocate(size);
	if (!split_together(comm, shadow ? own->color : 0, own->place[order], &twin)) {
		explain("a communicator could not be split", 0, size);
		discard(shadow);
		return NULL;
	}
	mpi.Comm_size(twin, (word)&alike);
	if (!shadow || !own->color || alike != size) {
		explain(!own->color ? own->reason : shadow ? NULL :
		        "no room for another shadow", alike, size);
		mpi.Comm_free((word)&twin);
		discard(shadow);
		return NULL;
	}
	shadow->comm = twin;
	if (!fill_tables(shadow, comm)) {
		mpi.Comm_free((word)&twin);
		discard(shadow);
		return &unmoved;
	}
	mpi.Comm_set_errhandler(twin, mpi.errors_return);
	if (mpi.Comm_c2f)
		shadow->fortran = (int)mpi.Comm_c2f(twin);
	atomic_fetch_add(&made, 1);
	atomic_fetch_add(&alive, 1);
	atomic_fetch_add(&bytes, (long)memory(size));
	return shadow;
}

/* How many ranks vote on a shadow; 0 where there is to be none, on all ranks. */
static int voters(word comm)
{
	int inter = 0, size = 0;

	mpi.Comm_test_inter(comm, (word)&inter);
	if (!inter)
		mpi.Comm_size(comm, (word)&size);
	return size > 1 && !own_order()->unwanted && in_world() && all_are_here() &&
	       of_one_world(comm, size) ? size : 0;
}

struct shadow *make_shadow(word comm, int order, int has_room)
{
	int size = voters(comm);

	return size ? split(comm, size, order, has_room) : NULL;
}

void tell_of_shadows(void)
{
	if (debugging() && atomic_load(&made))
		say("%ld shadow communicators were made; tables of %ld bytes are left",
		    atomic_load(&made), atomic_load(&bytes));
}
