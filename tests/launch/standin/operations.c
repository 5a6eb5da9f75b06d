/* What the operations do, each as a ring in the order of ranks. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const NAMES[] = {
	"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Send",
	"Recv",
};

static char traced[1 << 16];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void trace(const struct operation *operation)
{
	comm_t comm = operation->comm;
	size_t at;

	pthread_mutex_lock(&lock);
	at = strlen(traced);
	at += (size_t)snprintf(traced + at, sizeof traced - at, "%s",
	                       NAMES[operation->kind]);
	for (int i = 0; i < comm->size; i++)
		at += (size_t)snprintf(traced + at, sizeof traced - at, "%c%d",
		                       i ? ',' : ' ', comm->members[i]);
	snprintf(traced + at, sizeof traced - at, "\n");
	pthread_mutex_unlock(&lock);
}

/* Write what this process has called, oldest first, and forget it. */
EXPORT void standinTrace(char *text, size_t size)
{
	pthread_mutex_lock(&lock);
	snprintf(text, size, "%s", traced);
	traced[0] = '\0';
	pthread_mutex_unlock(&lock);
}

static size_t width(int type)
{
	static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

	if (type < 0 || type > 9)
		broken("type %d", type);
	return widths[type];
}

#define COMBINE(kind) { \
	kind *a = into; \
	const kind *b = with; \
	for (size_t i = 0; i < count; i++) \
		a[i] = op == 1 ? a[i] * b[i] : op == 2 ? (a[i] > b[i] ? a[i] : b[i]) : \
		       op == 3 ? (a[i] < b[i] ? a[i] : b[i]) : a[i] + b[i]; \
	return; \
}

/* 2 to 8: integers and floats of four and eight bytes. Average and the
 * application's own operations begin as sums. */
static void combine(void *into, const void *with, size_t count, int type, int op)
{
	switch (type) {
	case 2: COMBINE(int32_t)
	case 3: COMBINE(uint32_t)
	case 4: COMBINE(int64_t)
	case 5: COMBINE(uint64_t)
	case 7: COMBINE(float)
	case 8: COMBINE(double)
	default: broken("no sums of type %d", type);
	}
}

/* What all ranks of a collective have to say alike. */
struct header {
	int kind, type, op, root;
	size_t count;
};

static int alike(const struct operation *o)
{
	comm_t comm = o->comm;
	struct header mine, theirs;

	memset(&mine, 0, sizeof mine);
	mine = (struct header){o->kind, o->type, o->op < 5 ? o->op : 5, o->root, o->count};
	if (comm->size == 1)
		return 1;
	if (!send_to(comm, OPERATIONS, (comm->rank + 1) % comm->size, &mine, sizeof mine) ||
	    !receive(comm, OPERATIONS, (comm->rank + comm->size - 1) % comm->size, &theirs,
	             sizeof theirs))
		return 0;
	if (memcmp(&mine, &theirs, sizeof mine))
		broken("rank %d of %s calls %s of %zu, its neighbour %s of %zu", comm->rank,
		       comm->name, NAMES[mine.kind], mine.count, NAMES[theirs.kind],
		       theirs.count);
	return 1;
}

/* From the root round the ring. */
static int spread(comm_t comm, void *data, size_t bytes, int root)
{
	int next = (comm->rank + 1) % comm->size;

	if (comm->rank != root &&
	    !receive(comm, OPERATIONS, (comm->rank + comm->size - 1) % comm->size, data,
	             bytes))
		return 0;
	return next == root || send_to(comm, OPERATIONS, next, data, bytes);
}

/* From the rank after the root round the ring: sums begin there. */
static int collect(comm_t comm, void *data, size_t count, int type, int op, int root)
{
	size_t bytes = count * width(type);
	int next = (comm->rank + 1) % comm->size;
	void *before;

	if (comm->size == 1)
		return 1;
	before = malloc(bytes);
	if (!before)
		broken("no memory");
	if ((root + 1) % comm->size != comm->rank) {
		if (!receive(comm, OPERATIONS, (comm->rank + comm->size - 1) % comm->size,
		             before, bytes)) {
			free(before);
			return 0;
		}
		combine(before, data, count, type, op);
		memcpy(data, before, bytes);
	}
	free(before);
	return comm->rank == root || send_to(comm, OPERATIONS, next, data, bytes);
}

static void average(void *data, size_t count, int type, int size)
{
	for (size_t i = 0; i < count; i++) {
		if (type == 7)
			((float *)data)[i] /= (float)size;
		else if (type == 8)
			((double *)data)[i] /= size;
		else
			broken("no average of type %d", type);
	}
}

static void scale(void *data, size_t count, int type, double factor)
{
	if (type != 8)
		broken("no scale of type %d", type);
	for (size_t i = 0; i < count; i++)
		((double *)data)[i] *= factor;
}

static int reduce(const struct operation *o, size_t count, int root, void *data)
{
	memcpy(data, o->in, count * width(o->type));
	if (o->op > 4)
		scale(data, count, o->type, made_op(o->op, o->comm)->scale);
	if (!collect(o->comm, data, count, o->type, o->op, root))
		return 0;
	if (o->op == 4 && o->comm->rank == root)
		average(data, count, o->type, o->comm->size);
	return 1;
}

static void collective(const struct operation *o)
{
	comm_t comm = o->comm;
	size_t bytes = o->count * width(o->type), n = (size_t)comm->size;
	char *room = malloc(bytes * n + 1);

	if (!room)
		broken("no memory");
	switch (o->kind) {
	case ALLREDUCE:
		if (reduce(o, o->count, comm->size - 1, room) &&
		    spread(comm, room, bytes, comm->size - 1))
			memcpy(o->out, room, bytes);
		break;
	case REDUCE:
		if (reduce(o, o->count, o->root, room) && comm->rank == o->root)
			memcpy(o->out, room, bytes);
		break;
	case BROADCAST:
		if (comm->rank == o->root)
			memmove(o->out, o->in, bytes);
		spread(comm, o->out, bytes, o->root);
		break;
	case ALLGATHER:
		memcpy(room + bytes * (size_t)comm->rank, o->in, bytes);
		for (int root = 0; root < comm->size; root++)
			spread(comm, room + bytes * (size_t)root, bytes, root);
		memcpy(o->out, room, bytes * n);
		break;
	default: /* REDUCE_SCATTER */
		if (reduce(o, o->count * n, comm->size - 1, room) &&
		    spread(comm, room, bytes * n, comm->size - 1))
			memcpy(o->out, room + bytes * (size_t)comm->rank, bytes);
	}
	free(room);
}

void perform(struct operation *o)
{
	if (o->kind == SEND)
		send_to(o->comm, OPERATIONS, o->root, o->in, o->count * width(o->type));
	else if (o->kind == RECV)
		receive(o->comm, OPERATIONS, o->root, o->out, o->count * width(o->type));
	else if (alike(o))
		collective(o);
}
