/* Shadows of a communicator, one for each order: made once, kept as its
 * attribute, freed with it.
 *
 * Making one is collective, so it happens where the standard lets a collective
 * synchronise, in blocking ones and where persistent ones are made: a correct
 * program comes there in the same order on all ranks of a communicator. No lock
 * is held meanwhile, since another thread may be at the same point with another
 * communicator. */
#include "shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* What a communicator has as its attribute; NULL is not tried yet. */
struct twins {
	const struct shadow *of[MOST_ORDERS];
};

/* Of a communicator that stays as it is. It takes no memory, so that a rank which
 * has none can remember how the vote ended. */
static struct twins unchanged = {{[0 ... MOST_ORDERS - 1] = &unmoved}};

static int keyval;
static atomic_int has_keyval, finalizing;

/* The communicator that this thread used last. What freed one since then may
 * have freed this one, and its handle may be another one's now; and what gave
 * one its twins may have given them to this one. */
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

static int forget(word comm, int key, struct twins *twins, void *extra)
{
	(void)comm, (void)key, (void)extra;
	atomic_fetch_add(&generation, 1);
	for (int i = 0; i < MOST_ORDERS; i++) {
		struct shadow *shadow = (struct shadow *)twins->of[i];

		if (shadow && shadow != &unmoved)
			end_shadow(shadow, no_more_calls());
	}
	if (twins != &unchanged)
		free(twins);
	return 0;
}

static int make_keyval(void)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&making);
	if (!has_keyval)
		has_keyval = !mpi.Comm_create_keyval((word)copy_nothing,
		                                     (word)forget, (word)&keyval, 0);
	pthread_mutex_unlock(&making);
	return has_keyval;
}

void renew_shadows(void)
{
	has_keyval = 0;
	atomic_fetch_add(&generation, 1);
}

static struct twins *kept(word comm, struct twins *twins, unsigned long since)
{
	last.comm = comm;
	last.generation = since;
	last.twins = twins;
	return twins;
}

/* Try to make a shadow, and return what the communicator has after that. Memory
 * is taken before the vote: what a rank lacks is heard by all. */
static struct twins *grown(word comm, struct twins *before, int order)
{
	struct twins *twins = before ? before : calloc(1, sizeof *twins);
	const struct shadow *shadow = make_shadow(comm, order, !!twins);

	if (!shadow && !before) {
		free(twins);
		twins = &unchanged;
	}
	/* Who has not the same orders may be about to ask for another one: one
	 * vote is for all. */
	for (int i = 0; i < MOST_ORDERS; i++)
		if (!twins->of[i] && (!shadow || i == order))
			twins->of[i] = shadow ? shadow : &unmoved;
	if (twins == before)
		return twins;
	mpi.Comm_set_attr(comm, keyval, (word)twins);
	return kept(comm, twins, atomic_fetch_add(&generation, 1) + 1);
}

/* What a communicator has; NULL is nothing yet. */
static struct twins *look_up(word comm)
{
	unsigned long now = atomic_load(&generation);
	struct twins *twins;
	int flag = 0;

	load_library();
	if (mpi.missing || same(comm, mpi.comm_null))
		return &unchanged;
	if ((!has_keyval && !make_keyval()) ||
	    mpi.Comm_get_attr(comm, keyval, (word)&twins, (word)&flag))
		return &unchanged;
	return kept(comm, flag ? twins : NULL, now);
}

const struct shadow *shadow_of(word comm, enum creation creation, int order)
{
	struct twins *twins = last.twins;
	const struct shadow *shadow;

	if (last.comm != comm || last.generation != atomic_load(&generation))
		twins = look_up(comm);
	if (creation == CREATE && (!twins || !twins->of[order]))
		twins = grown(comm, twins, order);
	shadow = twins ? twins->of[order] : NULL;
	return shadow == &unmoved ? NULL : shadow;
}

const struct shadow *rooted(const struct shadow *shadow, word *root)
{
	int rank = (int)*root;

	if (!shadow || rank < 0 || rank >= shadow->size)
		return NULL;
	*root = shadow->place[rank];
	return shadow;
}

int told(word comm, word on, int code)
{
	if (code && on != comm)
		mpi.Comm_call_errhandler(comm, code);
	return code;
}

#pragma GCC visibility push(default)

/* Who waits in a collective does so on a shadow. */
int MPIX_Comm_revoke(word comm)
{
	const struct twins *twins = look_up(comm);
	int code = IF_KNOWN(Comm_revoke, comm, comm);

	for (int i = 0; twins && !code && i < MOST_ORDERS; i++)
		if (twins->of[i] && twins->of[i] != &unmoved)
			mpi.Comm_revoke(twins->of[i]->comm);
	return code;
}

#pragma GCC visibility pop

void close_shadows(void)
{
	void *twins;
	int flag = 0;

	load_library();
	tell_of_shadows();
	if (has_keyval)
		mpi.Comm_get_attr(mpi.comm_world, keyval, (word)&twins, (word)&flag);
	if (flag)
		mpi.Comm_delete_attr(mpi.comm_world, keyval);
	atomic_store(&finalizing, 1);
}
