/* The collectives whose result does not depend on the order of ranks. */
#include "nccl.h"
#include "../order.h"

/* Where an allreduce belongs: to the twin, or to `comm` itself. Operations that
 * the application made are known to one communicator only. */
static comm_t reducing(comm_t comm, int type, int op)
{
	const struct shadow *shadow = find_shadow(comm);

	if (!shadow || shadow->state != SETTLED || !shadow->twin || shadow->left ||
	    op < 0 || op >= BUILT_IN_OPS)
		return comm;
	if (own_order()->exact && type >= INTEGER_TYPES && op != MAX && op != MIN)
		return comm;
	return shadow->twin;
}

#pragma GCC visibility push(default)

result_t ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                       comm_t comm, stream_t stream)
{
	return REAL(AllReduce, in, out, count, type, op, reducing(comm, type, op),
	            stream);
}
