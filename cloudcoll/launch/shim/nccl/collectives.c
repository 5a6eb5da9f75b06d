/* The collectives whose result does not depend on the order of ranks. */
#include "nccl.h"
#include "../order.h"

/* The shadow of a communicator, if anything may run there. */
static const struct shadow *usable(comm_t comm)
{
	const struct shadow *shadow = find_shadow(comm);

	if (!shadow || shadow->state != SETTLED || !shadow->twin || shadow->left)
		return NULL;
	return shadow;
}

/* Where an allreduce belongs: to the twin, or to `comm` itself. Operations that
 * the application made are known to one communicator only. */
static comm_t reducing(comm_t comm, int type, int op)
{
	const struct shadow *shadow = usable(comm);

	if (!shadow || op < 0 || op >= BUILT_IN_OPS)
		return comm;
	if (own_order()->exact && type >= INTEGER_TYPES && op != MAX && op != MIN)
		return comm;
	return shadow->twin;
}

/* Where an operation with a root belongs; translate the root. */
static comm_t rooted(comm_t comm, int *root)
{
	const struct shadow *shadow = usable(comm);

	if (!shadow || !shadow->place || *root < 0 || *root >= shadow->size)
		return comm;
	*root = shadow->place[*root];
	return shadow->twin;
}

#pragma GCC visibility push(default)

result_t ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                       comm_t comm, stream_t stream)
{
	return REAL(AllReduce, in, out, count, type, op, reducing(comm, type, op),
	            stream);
}

result_t ncclReduce(const void *in, void *out, size_t count, int type, int op,
                    int root, comm_t comm, stream_t stream)
{
	comm_t on = reducing(comm, type, op);

	if (on != comm)
		on = rooted(comm, &root);
	return REAL(Reduce, in, out, count, type, op, root, on, stream);
}

result_t ncclBroadcast(const void *in, void *out, size_t count, int type,
                       int root, comm_t comm, stream_t stream)
{
	comm_t on = rooted(comm, &root);

	return REAL(Broadcast, in, out, count, type, root, on, stream);
}

result_t ncclBcast(void *data, size_t count, int type, int root, comm_t comm,
                   stream_t stream)
{
	comm_t on = rooted(comm, &root);

	return REAL(Bcast, data, count, type, root, on, stream);
}
