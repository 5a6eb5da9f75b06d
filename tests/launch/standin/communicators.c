/* The library's functions; their parameters are those of nccl.h. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MADE_OPS 64

static struct made_op made_ops[MADE_OPS];
static atomic_int made_count, alive;

static comm_t new_comm(const char *name, int size, int rank)
{
	comm_t comm = calloc(1, sizeof *comm);

	if (!comm || size > MOST)
		broken("no room for %d ranks", size);
	snprintf(comm->name, sizeof comm->name, "%.63s", name);
	comm->size = size;
	comm->rank = rank;
	comm->blocking = 1;
	for (int i = 0; i < size; i++)
		comm->members[i] = i;
	atomic_fetch_add(&alive, 1);
	return comm;
}

/* Communicators that were made and not destroyed. */
EXPORT int standinAlive(void)
{
	return atomic_load(&alive);
}

EXPORT result_t ncclGetVersion(int *version)
{
	*version = 23007;
	return SUCCESS;
}

EXPORT result_t ncclGetUniqueId(unique_id *id)
{
	uint64_t number;

	memset(id, 0, sizeof *id);
	if (getrandom(&number, sizeof number, 0) != sizeof number)
		return SYSTEM_ERROR;
	snprintf(id->bytes, sizeof id->bytes, "/standin-%016llx",
	         (unsigned long long)number);
	return SUCCESS;
}

static result_t run_init(struct job *job)
{
	return attach(job->comm) ? SUCCESS : REMOTE_ERROR;
}

static result_t init(comm_t *comm, int size, unique_id id, int rank,
                     const struct config *config)
{
	if (capturing())
		return CUDA_ERROR;
	*comm = new_comm(id.bytes, size, rank);
	(*comm)->blocking = !config || config->blocking;
	return launch((struct job){.run = run_init, .comm = *comm}, *comm);
}

EXPORT result_t ncclCommInitRank(comm_t *comm, int size, unique_id id, int rank)
{
	return init(comm, size, id, rank, NULL);
}

EXPORT result_t ncclCommInitRankConfig(comm_t *comm, int size, unique_id id,
                                       int rank, struct config *config)
{
	return init(comm, size, id, rank, config);
}

EXPORT result_t ncclCommInitRankScalable(comm_t *comm, int size, int rank,
                                         int count, unique_id *ids,
                                         struct config *config)
{
	return count < 1 ? INVALID_ARGUMENT : init(comm, size, ids[0], rank, config);
}

EXPORT result_t ncclCommInitAll(comm_t *comms, int count, const int *devices)
{
	result_t result = SUCCESS, ended;
	unique_id id;

	(void)devices;
	ncclGetUniqueId(&id);
	ncclGroupStart(); /* as the library before 2.24 does */
	for (int i = 0; i < count && !result; i++)
		result = init(comms + i, count, id, i, NULL);
	ended = ncclGroupEnd();
	return result ? result : ended;
}

comm_t child_of(comm_t parent, const int (*wanted)[2], int color)
{
	int ranks[MOST], size = 0, own = 0;
	char name[sizeof parent->name];
	comm_t child;

	for (int i = 0; i < parent->size; i++) {
		int at = size;
		if (wanted[i][0] != color)
			continue;
		for (; at && wanted[ranks[at - 1]][1] > wanted[i][1]; at--)
			ranks[at] = ranks[at - 1];
		ranks[at] = i;
		size++;
	}
	for (int i = 0; i < size; i++)
		if (ranks[i] == parent->rank)
			own = i;
	snprintf(name, sizeof name, "%.40s.%d.%d", parent->name, parent->splits, color);
	child = new_comm(name, size, own);
	for (int i = 0; i < size; i++)
		child->members[i] = parent->members[ranks[i]];
	child->blocking = parent->blocking;
	return child;
}

#ifndef WITHOUT_SPLIT

static result_t run_split(struct job *job)
{
	comm_t parent = job->parent, child;
	int wanted[MOST][2];

	wanted[parent->rank][0] = job->color;
	wanted[parent->rank][1] = job->key;
	for (int i = 1; i < parent->size; i++) {
		int to = (parent->rank + i) % parent->size;
		int from = (parent->rank + parent->size - i) % parent->size;
		if (!send_to(parent, BOOTSTRAP, to, wanted[parent->rank], sizeof *wanted) ||
		    !receive(parent, BOOTSTRAP, from, wanted[from], sizeof *wanted))
			return REMOTE_ERROR;
	}
	parent->splits++;
	if (job->color < 0)
		return SUCCESS;
	child = child_of(parent, (const int (*)[2])wanted, job->color);
	if (!attach(child))
		return REMOTE_ERROR;
	*job->slot = child;
	return SUCCESS;
}

EXPORT result_t ncclCommSplit(comm_t comm, int color, int key, comm_t *child,
                              struct config *config)
{
	(void)config;
	if (capturing())
		return CUDA_ERROR;
	if (atomic_load(&comm->state))
		return INVALID_ARGUMENT;
	*child = NULL;
	return launch((struct job){.run = run_split, .parent = comm, .slot = child,
	                           .color = color, .key = key}, comm);
}

#endif

EXPORT result_t ncclCommFinalize(comm_t comm)
{
	drain(comm);
	return SUCCESS;
}

EXPORT result_t ncclCommDestroy(comm_t comm)
{
	drain(comm);
	detach(comm);
	free(comm);
	atomic_fetch_sub(&alive, 1);
	return SUCCESS;
}

EXPORT result_t ncclCommAbort(comm_t comm)
{
	atomic_store(&comm->aborted, 1);
	atomic_store(&comm->segment->gone, 1);
	return ncclCommDestroy(comm);
}

EXPORT result_t ncclCommGetAsyncError(comm_t comm, result_t *state)
{
	*state = atomic_load(&comm->state);
	return SUCCESS;
}

EXPORT result_t ncclCommCount(comm_t comm, int *count)
{
	*count = comm->size;
	return atomic_load(&comm->state) == IN_PROGRESS ? INVALID_ARGUMENT : SUCCESS;
}

EXPORT result_t ncclCommUserRank(comm_t comm, int *rank)
{
	*rank = comm->rank;
	return atomic_load(&comm->state) == IN_PROGRESS ? INVALID_ARGUMENT : SUCCESS;
}

EXPORT result_t ncclCommWindowRegister(comm_t comm, void *buffer, size_t size,
                                       void **window, int flags)
{
	(void)comm, (void)buffer, (void)size, (void)flags;
	*window = NULL;
	return SUCCESS;
}

struct made_op *made_op(int op, comm_t comm)
{
	struct made_op *made = &made_ops[op - 5];

	return op - 5 < atomic_load(&made_count) && made->comm == comm ? made : NULL;
}

EXPORT result_t ncclRedOpCreatePreMulSum(int *op, void *scalar, int type,
                                         int residence, comm_t comm)
{
	int at = atomic_fetch_add(&made_count, 1);

	(void)residence;
	if (type != 8 || at >= MADE_OPS)
		return INVALID_ARGUMENT;
	made_ops[at] = (struct made_op){comm, *(double *)scalar};
	*op = 5 + at;
	return SUCCESS;
}

#define OPERATION(...) issue((struct operation){__VA_ARGS__, \
	.comm = comm, .stream = stream, .type = type, .count = count})

EXPORT result_t ncclAllReduce(const void *in, void *out, size_t count, int type,
                              int op, comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = ALLREDUCE, .in = in, .out = out, .op = op);
}

EXPORT result_t ncclReduce(const void *in, void *out, size_t count, int type,
                           int op, int root, comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = REDUCE, .in = in, .out = out, .op = op, .root = root);
}

EXPORT result_t ncclBroadcast(const void *in, void *out, size_t count, int type,
                              int root, comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = BROADCAST, .in = in, .out = out, .root = root);
}

/* Through its own entry point, which an interposed one may take: so does NCCL. */
EXPORT result_t ncclBcast(void *data, size_t count, int type, int root, comm_t comm,
                          struct stream *stream)
{
	return ncclBroadcast(data, data, count, type, root, comm, stream);
}

EXPORT result_t ncclAllGather(const void *in, void *out, size_t count, int type,
                              comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = ALLGATHER, .in = in, .out = out);
}

EXPORT result_t ncclReduceScatter(const void *in, void *out, size_t count, int type,
                                  int op, comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = REDUCE_SCATTER, .in = in, .out = out, .op = op);
}

EXPORT result_t ncclSend(const void *in, size_t count, int type, int peer,
                         comm_t comm, struct stream *stream)
{
	return OPERATION(.kind = SEND, .in = in, .root = peer);
}

EXPORT result_t ncclRecv(void *out, size_t count, int type, int peer, comm_t comm,
                         struct stream *stream)
{
	return OPERATION(.kind = RECV, .out = out, .root = peer);
}
