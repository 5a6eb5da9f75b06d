/* One shadow per communicator: made with it, and gone with it.
 *
 * NCCL's ranks are at one point together when a communicator is made, and at no
 * other: a collective may be part of a CUDA graph that is being captured, where
 * nothing can be made. */
#include "nccl.h"
#include "../order.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shadow *all;

/* Two threads may ask at once how far things are; nothing waits meanwhile. */
static pthread_mutex_t passing = PTHREAD_MUTEX_INITIALIZER;

/* The communicator that this thread used last. What took one off the list
 * since then may have taken this one, and its address may be another's now. */
static atomic_ulong generation = 1;
static __thread struct {
	comm_t comm;
	unsigned long generation;
	struct shadow *shadow;
} last __attribute__((tls_model("initial-exec")));

struct shadow *remember(comm_t parent, comm_t *slot)
{
	struct shadow *shadow = calloc(1, sizeof *shadow);

	if (!shadow)
		return NULL;
	shadow->parent = parent;
	shadow->slot = slot;
	pthread_mutex_lock(&lock);
	shadow->next = all;
	all = shadow;
	pthread_mutex_unlock(&lock);
	return shadow;
}

static struct shadow *look_up(comm_t comm)
{
	unsigned long now = atomic_load(&generation);
	struct shadow *shadow;

	pthread_mutex_lock(&lock);
	for (shadow = all; shadow && shadow->comm != comm;)
		shadow = shadow->next;
	pthread_mutex_unlock(&lock);
	if (shadow) {
		last.comm = comm;
		last.generation = now;
		last.shadow = shadow;
	}
	return shadow;
}

struct shadow *find_shadow(comm_t comm)
{
	if (last.comm == comm && last.generation == atomic_load(&generation))
		return last.shadow;
	return comm ? look_up(comm) : NULL;
}

void take_off(struct shadow *shadow)
{
	struct shadow **at = &all;

	pthread_mutex_lock(&lock);
	while (*at && *at != shadow)
		at = &(*at)->next;
	if (*at)
		*at = shadow->next;
	atomic_fetch_add(&generation, 1);
	pthread_mutex_unlock(&lock);
}

void free_shadow(struct shadow *shadow)
{
	if (shadow)
		free(shadow->place);
	free(shadow);
}

int appeared(struct shadow *shadow)
{
	comm_t comm = *shadow->slot;

	pthread_mutex_lock(&lock);
	shadow->comm = comm;
	pthread_mutex_unlock(&lock);
	if (!comm) {
		take_off(shadow);
		free_shadow(shadow);
	}
	return comm != NULL;
}

/* One line for the job: from the first rank of the world, the first time. */
static void explain(const struct shadow *shadow, int alike)
{
	static const char *const names[] = {
		"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
	};
	static atomic_int said;
	const char *world = NULL;

	for (size_t i = 0; !world && i < sizeof names / sizeof *names; i++)
		world = getenv(names[i]);
	if (own_order()->unwanted ||
	    (!debugging() && (shadow->rank || (world && atoi(world)) ||
	                      atomic_exchange(&said, 1))))
		return;
	if (!nccl.CommSplit)
		say("this NCCL has no ncclCommSplit (2.18 has): running in the order "
		    "given");
	else if (!own_order()->color)
		say("%s: running in the order given", own_order()->reason);
	else
		say("only %d of %d ranks have the order that rank %d has: running in "
		    "the order given", alike, shadow->size, shadow->rank);
}

/* Colors decide together with the split: whoever has no order, or another one,
 * ends up elsewhere, and everybody sees that some are missing. The same for
 * where the ranks are: if each is where the plan has it, the plan is right. */
static int color_of(struct shadow *shadow)
{
	const struct world *world = own_world();
	const struct order *own = own_order();

	if (!own->color)
		return NO_COLOR;
	if (world->count == shadow->size &&
	    world->place[shadow->rank] == own->place)
		shadow->place = ranks_by_place(world);
	/* What makes it positive stays, and the bit that says `exact`. */
	return own->color ^ (shadow->place ? (int)(world->digest & 0x3ffffffe) : 0);
}

result_t begin_split(struct shadow *shadow)
{
	result_t code = nccl.CommCount(shadow->comm, &shadow->size);

	if (!code)
		code = nccl.CommUserRank(shadow->comm, &shadow->rank);
	shadow->state = SPLIT;
	if (code || shadow->size < 2 || !nccl.CommSplit)
		return code;
	/* Without a configuration of its own it has that of the application's. */
	return nccl.CommSplit(shadow->comm, color_of(shadow), own_order()->place,
	                      &shadow->twin, NULL);
}

void settle(struct shadow *shadow)
{
	int alike = 0, place = 0;

	shadow->parent = NULL;
	if (shadow->twin && !nccl.CommCount(shadow->twin, &alike) &&
	    alike == shadow->size) {
		if (debugging() && !nccl.CommUserRank(shadow->twin, &place))
			say("rank %d of %d is rank %d of the shadow", shadow->rank,
			    shadow->size, place);
	} else {
		if (shadow->size > 1)
			explain(shadow, alike);
		if (shadow->twin)
			nccl.CommDestroy(shadow->twin);
		shadow->twin = NULL;
	}
	shadow->state = SETTLED;
}

static result_t asked(comm_t comm)
{
	result_t state = SUCCESS, code = nccl.CommGetAsyncError(comm, &state);

	return code ? code : state;
}

/* Whether the application asks with `comm` for this one. */
static int concerns(const struct shadow *shadow, comm_t comm)
{
	return shadow->comm == comm || shadow->parent == comm;
}

/* Return one that no pass of this number has seen. */
static struct shadow *next_polled(unsigned long pass)
{
	struct shadow *shadow;

	pthread_mutex_lock(&lock);
	for (shadow = all; shadow; shadow = shadow->next)
		if (shadow->polled && shadow->state != SETTLED && shadow->pass != pass)
			break;
	pthread_mutex_unlock(&lock);
	if (shadow)
		shadow->pass = pass;
	return shadow;
}

/* Return SUCCESS once it is settled, or gone. */
static result_t proceed(struct shadow *shadow)
{
	result_t code = asked(shadow->parent);

	if (code || (!shadow->comm && !appeared(shadow)))
		return code;
	code = asked(shadow->comm);
	if (!code && shadow->state == BEGUN)
		code = begin_split(shadow);
	if (!code && shadow->twin)
		code = asked(shadow->twin);
	if (!code)
		settle(shadow);
	return code;
}

/* Of several communicators in one thread it may ask for one until that is
 * ready, and the splits of all of them belong together. */
result_t advance(comm_t comm)
{
	static unsigned long pass;
	struct shadow *shadow;
	result_t code = SUCCESS;

	pthread_mutex_lock(&passing);
	pass++;
	while ((shadow = next_polled(pass))) {
		int asks = concerns(shadow, comm);
		result_t one = proceed(shadow);
		if (asks && !code)
			code = one;
	}
	pthread_mutex_unlock(&passing);
	shadow = find_shadow(comm);
	if (!code && shadow && shadow->state == SETTLED && shadow->twin)
		code = asked(shadow->twin);
	return code;
}

struct shadow *take_shadow(comm_t comm)
{
	struct shadow *shadow;

	pthread_mutex_lock(&passing);
	shadow = find_shadow(comm);
	if (shadow)
		take_off(shadow);
	pthread_mutex_unlock(&passing);
	return shadow;
}
