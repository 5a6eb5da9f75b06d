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

uint64_t mixed(uint64_t hash, const void *bytes, size_t count)
{
	for (const unsigned char *at = bytes; count; at++, count--)
		hash = (hash ^ *at) * 1099511628211u;
	return hash;
}

struct shadow *remember(comm_t parent, uint64_t name, comm_t *slot)
{
	struct shadow *shadow = calloc(1, sizeof *shadow);

	if (!shadow)
		return NULL;
	shadow->parent = parent;
	shadow->name = name;
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
	if (!shadow)
		return;
	end_roll(shadow->caller);
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
		code = begin_asking(shadow);
	if (!code && shadow->state == ASKING)
		code = answered(shadow, 0) ? begin_split(shadow) : IN_PROGRESS;
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
