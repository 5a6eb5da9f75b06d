/* Results that belong to a rank: reduce-scatter, scans, all-to-all. */
#include "checks.h"

#include <math.h>
#include <stdlib.h>

#define MOST 500

static const int COUNTS[] = {0, 1, 5, MOST};

/* Whether `out` is this rank's block of the sum. */
static int is_block(const int64_t *out, MPI_Comm comm, int count)
{
	int good = 1, n = size_of(comm), first = rank_in(comm) * count;

	for (int i = 0; i < count; i++)
		good &= out[i] == ramps(n, first + i);
	return good;
}

static int reduce_scatter_block(MPI_Comm comm)
{
	static int64_t in[MOST * MOST_RANKS], out[MOST + 1];
	int good = 1, rank = rank_in(comm);

	for (int k = 0; k < (int)(sizeof COUNTS / sizeof *COUNTS); k++) {
		int count = COUNTS[k];

		fill(in, rank, count * size_of(comm));
		out[count] = -1;
		MPI_Reduce_scatter_block(in, out, count, MPI_INT64_T, MPI_SUM, comm);
		good &= is_block(out, comm, count) && out[count] == -1;
		good &= is_ramp(in, rank, count * size_of(comm));
	}
	return good;
}

static int reduce_scatter_block_in_place(MPI_Comm comm)
{
	int64_t data[5 * MOST_RANKS];

	fill(data, rank_in(comm), 5 * size_of(comm));
	MPI_Reduce_scatter_block(MPI_IN_PLACE, data, 5, MPI_INT64_T, MPI_SUM, comm);
	return is_block(data, comm, 5);
}

/* More than is copied at a time, also where the result takes its place. */
static int reduce_scatter_block_of_a_long_vector(MPI_Comm comm)
{
	int count = 800001, good = 1, rank = rank_in(comm), n = size_of(comm);
	int64_t *data = malloc(sizeof *data * (size_t)count * (size_t)n);
	int64_t *out = malloc(sizeof *out * (size_t)count);

	fill(data, rank, count * n);
	MPI_Reduce_scatter_block(data, out, count, MPI_INT64_T, MPI_SUM, comm);
	good &= is_block(out, comm, count);
	MPI_Reduce_scatter_block(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_SUM,
	                         comm);
	good &= is_block(data, comm, count);
	free(data);
	free(out);
	return good;
}

static void add_at_0_and_2(void *in, void *inout, int *count, MPI_Datatype *type)
{
	const int64_t *from = in;
	int64_t *to = inout;

	(void)type;
	for (int i = 0; i < 4 * *count; i += 4) {
		to[i] += from[i];
		to[i + 2] += from[i + 2];
	}
}

/* Elements with holes, by an operation of the application's own. */
static int reduce_scatter_block_with_holes(MPI_Comm comm)
{
	int64_t in[8 * MOST_RANKS], out[8];
	int good = 1, first = 8 * rank_in(comm), n = size_of(comm);
	MPI_Datatype pair, wide;
	MPI_Op op;

	MPI_Op_create(add_at_0_and_2, 1, &op);
	MPI_Type_vector(2, 1, 2, MPI_INT64_T, &pair);
	MPI_Type_create_resized(pair, 0, 32, &wide);
	MPI_Type_commit(&wide);
	fill(in, rank_in(comm), 8 * n);
	memset(out, 0xff, sizeof out);
	MPI_Reduce_scatter_block(in, out, 2, wide, op, comm);
	for (int i = 0; i < 8; i += 2) {
		good &= out[i] == ramps(n, first + i);
		good &= i == 6 || out[i + 1] == -1;
	}
	MPI_Type_free(&wide);
	MPI_Type_free(&pair);
	MPI_Op_free(&op);
	return good;
}

static int reduce_scatter_block_nonblocking(MPI_Comm comm)
{
	int64_t in[6 * MOST_RANKS], out[6];
	MPI_Request request;

	fill(in, rank_in(comm), 6 * size_of(comm));
	MPI_Ireduce_scatter_block(in, out, 6, MPI_INT64_T, MPI_SUM, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return is_block(out, comm, 6);
}

static int reduce_scatter_block_of_doubles(MPI_Comm comm)
{
	double in[9 * MOST_RANKS], out[9];
	int good = 1, rank = rank_in(comm), n = size_of(comm);

	for (int i = 0; i < 9 * n; i++)
		in[i] = sqrt((double)ramp(rank, i));
	MPI_Reduce_scatter_block(in, out, 9, MPI_DOUBLE, MPI_SUM, comm);
	for (int i = 0; i < 9; i++) {
		double sum = 0;

		for (int other = 0; other < n; other++)
			sum += sqrt((double)ramp(other, 9 * rank + i));
		good &= fabs(out[i] - sum) <= 1e-14 * sum;
	}
	return good;
}

static int reduce_scatter_of_uneven_blocks(MPI_Comm comm)
{
	int64_t in[3 * MOST_RANKS], out[3];
	int counts[MOST_RANKS], first = 0, total = 0, good = 1;
	int rank = rank_in(comm), n = size_of(comm);

	for (int i = 0; i < n; i++) {
		counts[i] = (i + 1) % 4;
		first += i < rank ? counts[i] : 0;
		total += counts[i];
	}
	fill(in, rank, total);
	MPI_Reduce_scatter(in, out, counts, MPI_INT64_T, MPI_SUM, comm);
	for (int i = 0; i < counts[rank]; i++)
		good &= out[i] == ramps(n, first + i);
	return good;
}

static int scan(MPI_Comm comm)
{
	int64_t in[10], out[10];

	fill(in, rank_in(comm), 10);
	MPI_Scan(in, out, 10, MPI_INT64_T, MPI_SUM, comm);
	return is_sum(out, rank_in(comm) + 1, 10);
}

static int exscan(MPI_Comm comm)
{
	int64_t in[10], out[10];

	fill(in, rank_in(comm), 10);
	MPI_Exscan(in, out, 10, MPI_INT64_T, MPI_SUM, comm);
	return !rank_in(comm) || is_sum(out, rank_in(comm), 10);
}

static int alltoall(MPI_Comm comm)
{
	int in[MOST_RANKS], out[MOST_RANKS], good = 1, n = size_of(comm);

	for (int i = 0; i < n; i++)
		in[i] = 100 * rank_in(comm) + i;
	MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, comm);
	for (int i = 0; i < n; i++)
		good &= out[i] == 100 * i + rank_in(comm);
	return good;
}

static int alltoallv(MPI_Comm comm)
{
	int64_t in[MOST_RANKS], out[MOST_RANKS];
	int counts[MOST_RANKS], there[MOST_RANKS], back[MOST_RANKS], good = 1;
	int n = size_of(comm);

	/* From the last rank's place backwards. */
	for (int i = 0; i < n; i++) {
		counts[i] = 1;
		there[i] = i;
		back[i] = n - 1 - i;
		in[i] = ramp(rank_in(comm), i);
	}
	MPI_Alltoallv(in, counts, there, MPI_INT64_T, out, counts, back,
	              MPI_INT64_T, comm);
	for (int i = 0; i < n; i++)
		good &= out[n - 1 - i] == ramp(i, rank_in(comm));
	return good;
}

static int gather_and_scatter(MPI_Comm comm)
{
	int all[MOST_RANKS], root = size_of(comm) - 1, rank = rank_in(comm), back;

	MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, root, comm);
	MPI_Scatter(all, 1, MPI_INT, &back, 1, MPI_INT, root, comm);
	return back == rank;
}

const struct check scatters[] = {
	CHECK(reduce_scatter_block), CHECK(reduce_scatter_block_in_place),
	CHECK(reduce_scatter_block_of_a_long_vector),
	CHECK(reduce_scatter_block_nonblocking),
	CHECK(reduce_scatter_block_with_holes),
	CHECK(reduce_scatter_block_of_doubles),
	CHECK(reduce_scatter_of_uneven_blocks), CHECK(scan), CHECK(exscan),
	CHECK(alltoall), CHECK(alltoallv), CHECK(gather_and_scatter), {0},
};
