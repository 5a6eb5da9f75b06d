/* Gather to all: in the shadow blocks come in another order, and displacements
 * put each where the application expects it. */
#include "shim.h"

#include <limits.h>
#include <stdlib.h>

struct contribution {
	word in, count, type;
};

static int64_t value_at(word values, int i, int large)
{
	return large ? ((const int64_t *)values)[i] : ((const int *)values)[i];
}

/* Call allgatherv with n counts and then n displacements in `blocks`, which a
 * library without large counts finds as ints at the same place. */
static int call(struct contribution mine, word out, int64_t *blocks, int n,
                word type, word on)
{
	int *small = (int *)blocks;

	if (mpi.Allgatherv_c)
		return mpi.Allgatherv_c(mine.in, mine.count, mine.type, out,
		                        (word)blocks, (word)(blocks + n), type, on);
	for (int i = 0; i < 2 * n; i++) {
		int64_t value = blocks[i];

		if (value > INT_MAX || value < INT_MIN)
			return ERR_COUNT;
		small[i] = (int)value;
	}
	return mpi.Allgatherv(mine.in, mine.count, mine.type, out, (word)small,
	                      (word)(small + n), type, on);
}

/* One element per block: no displacement is too large for an int then. */
static int call_with_blocks(struct contribution mine, word out,
                            const struct shadow *shadow, word count, word type)
{
	int64_t *blocks = shadow->blocks;
	word block = 0;
	int code, n = shadow->size;

	code = mpi.Type_contiguous(count, type, (word)&block);
	if (code)
		return code;
	mpi.Type_commit((word)&block);
	for (int i = 0; i < n; i++) {
		blocks[i] = 1;
		blocks[n + i] = shadow->rank[i];
	}
	code = call(mine, out, blocks, n, block, shadow->comm);
	mpi.Type_free((word)&block);
	return code;
}

int *narrowed(word counts, int n)
{
	int *small = malloc(sizeof(int) * (size_t)n + 1);

	for (int i = 0; small && counts && i < n; i++) {
		int64_t value = ((int64_t *)counts)[i];

		small[i] = (int)value;
		if (value != small[i]) {
			free(small);
			return NULL;
		}
	}
	return small;
}

int allgather(word in, word in_count, word in_type, word out, word count,
              word type, word comm, int large)
{
	const struct shadow *shadow;
	struct contribution mine;

	if (!large) {
		in_count = (int)in_count;
		count = (int)count;
	}
	mine = (struct contribution){in, in_count, in_type};
	shadow = shadow_of(
		comm, CREATE,
		ORDER(ALLGATHER, payload(count, type) * members_of(comm)));
	if (large && !mpi.Allgather_c && (count > INT_MAX || in_count > INT_MAX))
		return told(comm, 0, ERR_COUNT);
	if (!shadow && large && mpi.Allgather_c)
		return mpi.Allgather_c(in, in_count, in_type, out, count, type, comm);
	if (!shadow)
		return mpi.Allgather(in, in_count, in_type, out, count, type, comm);
	/* Ranks may describe one block by different counts and types: nothing that
	 * they have to agree on may hang on these. */
	if (count > INT_MAX / shadow->size && !mpi.Allgatherv_c)
		return told(comm, shadow->comm,
		            call_with_blocks(mine, out, shadow, count, type));
	for (int i = 0; i < shadow->size; i++) {
		shadow->blocks[i] = count;
		shadow->blocks[shadow->size + i] = count * shadow->rank[i];
	}
	return told(comm, shadow->comm, call(mine, out, shadow->blocks,
	                                     shadow->size, type, shadow->comm));
}

/* Large counts that the library does not know, on the communicator itself. */
static int small_allgatherv(struct contribution mine, word out, word counts,
                            word places, word type, word comm)
{
	int n = peers_of(comm), code;
	int *small = narrowed(counts, n), *at = narrowed(places, n);

	code = small && at ?
	       mpi.Allgatherv(mine.in, mine.count, mine.type, out, (word)small,
	                      (word)at, type, comm) :
	       told(comm, 0, ERR_COUNT);
	free(small);
	free(at);
	return code;
}

int allgatherv(word in, word in_count, word in_type, word out, word counts,
               word places, word type, word comm, int large)
{
	int order = ORDER(ALLGATHER, payload(total(counts, comm, large), type));
	const struct shadow *shadow = shadow_of(comm, CREATE, order);
	struct contribution mine = {in, large ? in_count : (int)in_count, in_type};
	int n = shadow ? shadow->size : 0;

	if (large && !mpi.Allgatherv_c && in_count > INT_MAX)
		return told(comm, 0, ERR_COUNT);
	if (!shadow && large && !mpi.Allgatherv_c)
		return small_allgatherv(mine, out, counts, places, type, comm);
	if (!shadow || !counts || !places)
		return (large ? mpi.Allgatherv_c : mpi.Allgatherv)(
			in, in_count, in_type, out, counts, places, type, comm);
	for (int i = 0; i < n; i++) {
		shadow->blocks[i] = value_at(counts, shadow->rank[i], large);
		shadow->blocks[n + i] = value_at(places, shadow->rank[i], large);
	}
	return told(comm, shadow->comm,
	            call(mine, out, shadow->blocks, n, type, shadow->comm));
}
