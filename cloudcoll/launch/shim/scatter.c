/* Reduce-scatter: blocks have to be in the shadow's order before, so a copy of
 * the vector goes there, piece by piece. */
#include "shim.h"

#include <string.h>

/* Whether elements can be copied as bytes: what belongs to one lies between it
 * and the next. */
static int is_movable(word type, intptr_t *extent)
{
	intptr_t bound, true_bound, true_extent;

	return !same(type, mpi.type_null) &&
	       !mpi.Type_get_extent(type, (word)&bound, (word)extent) &&
	       !mpi.Type_get_true_extent(type, (word)&true_bound,
	                                 (word)&true_extent) &&
	       true_bound >= 0 && true_bound + true_extent <= *extent;
}

/* Where a block of each rank goes, so many bytes at a time. */
static void permute(const struct shadow *shadow, const char *in, int64_t block,
                    int64_t bytes)
{
	for (int i = 0; i < shadow->size; i++)
		memcpy(shadow->room + i * bytes, in + shadow->rank[i] * block,
		       (size_t)bytes);
}

int scatter(word in, word out, int64_t count, word type, word op, word comm,
            int large)
{
	int order = ORDER(REDUCE_SCATTER, payload(count, type) * members_of(comm));
	const struct shadow *shadow = shadow_of(comm, CREATE, order);
	const char *from = (const char *)(in == mpi.in_place ? out : in);
	intptr_t extent = 0;
	int64_t piece = 0;
	int code = 0;

	/* All ranks give the same count, type and operation. */
	if (shadow && count > 0 && may_reorder(type, op) &&
	    is_movable(type, &extent) && extent > 0)
		piece = ROOM / (extent * shadow->size);
	if (!piece && large)
		return WITH_COUNT(Reduce_scatter_block, count, comm, in, out, count,
		                  type, op, comm);
	if (!piece)
		return mpi.Reduce_scatter_block(in, out, count, type, op, comm);
	/* In place, a piece overwrites what has been copied. */
	for (int64_t at = 0; at < count && !code; at += piece) {
		if (piece > count - at)
			piece = count - at;
		permute(shadow, from + at * extent, count * extent, piece * extent);
		code = mpi.Reduce_scatter_block((word)shadow->room,
		                                out + at * extent, piece, type, op,
		                                shadow->comm);
	}
	return told(comm, shadow->comm, code);
}
