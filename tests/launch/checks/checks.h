/* What MPI promises, checked one by one: the same without the shim and under it.
 *
 * Each check is called by all ranks of `comm`, compares with what the standard
 * says the result is, and returns whether it was right on this rank.
 */
#ifndef CHECKS_H
#define CHECKS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct check {
	const char *name;
	int (*run)(MPI_Comm comm);
};

#define CHECK(name) {#name, name}

/* Each ends with a check without a name. */
extern const struct check reductions[], own_operations[], scatters[], rooted[],
	gathers[], communicators[], processes[], requests[], persistent[], errors[],
	interleavings[];

#define MOST_RANKS 16

/* What a rank contributes: other than its neighbours do, at each place. */
static inline int64_t ramp(int rank, int i)
{
	return 7 * (int64_t)i + rank * rank + 3;
}

/* The sum of what ranks 0 to n - 1 contribute. */
static inline int64_t ramps(int n, int i)
{
	int64_t sum = 0;

	for (int rank = 0; rank < n; rank++)
		sum += ramp(rank, i);
	return sum;
}

static inline void fill(int64_t *data, int rank, int count)
{
	for (int i = 0; i < count; i++)
		data[i] = ramp(rank, i);
}

static inline int is_ramp(const int64_t *data, int rank, int count)
{
	int good = 1;

	for (int i = 0; i < count; i++)
		good &= data[i] == ramp(rank, i);
	return good;
}

static inline int is_sum(const int64_t *data, int n, int count)
{
	int good = 1;

	for (int i = 0; i < count; i++)
		good &= data[i] == ramps(n, i);
	return good;
}

static inline int rank_in(MPI_Comm comm)
{
	int rank;

	MPI_Comm_rank(comm, &rank);
	return rank;
}

static inline int size_of(MPI_Comm comm)
{
	int size;

	MPI_Comm_size(comm, &size);
	return size;
}

/* Whether collectives of every kind work on a communicator. */
int works(MPI_Comm comm);

#endif
