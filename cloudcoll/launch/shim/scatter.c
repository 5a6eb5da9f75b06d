/* Reduce-scatter: blocks have to be in the shadow's order before, so a copy of
 * the vector goes there, piece by piece. */
#include "shim.h"

#include <string.h>

/* Bytes from one element to the next, and to the end of its data. */
struct element {
	intptr_t extent, end;
};

/* Whether elements can be copied as bytes: what belongs to one lies between it
 * and the next. */
static int is_movable(word type, struct element *element)
{
	intptr_t bound, begin, length;

	if (same(type, mpi.type_null) ||
	    mpi.Type_get_extent(type, (word)&bound, (word)&element->extent) ||
	    mpi.Type_get_true_extent(type, (word)&begin, (word)&length))
		return 0;
	element->end = begin + length;
	return begin >= 0 && 0 < element->end && element->end <= element->extent;
}

/* Copy so many elements of each rank's block; behind the last one's data there
 * may be nothing to read. */
static void permute(const struct shadow *shadow, const char *in, int64_t block,
                    int64_t count, struct element element)
{
	for (int i = 0; i < shadow->size; i++)
		memcpy(shadow->room + i * count * element.extent,
		       in + shadow->rank[i] * block,
		       (size_t)((count - 1) * element.extent + element.end));
}

int reduce_scatter_block(word in, word out, word count, word type, word op,
                         word comm, int large)
{
	const struct shadow *shadow;
	const char *from;
	struct element element;
	int64_t piece = 0;
	int code = 0;

	if (!large)
		count = (int)count;
	shadow = shadow_of(
		comm, CREATE,
		ORDER(REDUCE_SCATTER, payload(count, type) * members_of(comm)));
	from = (const char *)(in == mpi.in_place ? out : in);
	/* All ranks give the same count, type and operation. */
	if (shadow && from && count > 0 && may_reorder(type, op) &&
	    is_movable(type, &element))
		piece = ROOM / (element.extent * shadow->size);
	if (!piece && large)
		return WITH_COUNT(Reduce_scatter_block, count, comm, in, out, count,
		                  type, op, comm);
	if (!piece)
		return mpi.Reduce_scatter_block(in, out, count, type, op, comm);
	/* In place, a piece overwrites what has been copied. */
	for (int64_t at = 0; at < count && !code; at += piece) {
		if (piece > count - at)
			piece = count - at;
		permute(shadow, from + at * element.extent, count * element.extent,
		        piece, element);
		code = mpi.Reduce_scatter_block((word)shadow->room,
		                                out + at * element.extent, piece,
		                                type, op, shadow->comm);
	}
	return told(comm, shadow->comm, code);
}
