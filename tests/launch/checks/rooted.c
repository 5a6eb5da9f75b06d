/* Broadcasts and reductions to a root, by each rank in turn. */
#include "checks.h"

#define MOST 5000

static int bcast_from_every_root(MPI_Comm comm)
{
	static const int COUNTS[] = {0, 1, MOST};
	static int64_t data[MOST];
	int good = 1, rank = rank_in(comm);

	for (int root = 0; root < size_of(comm); root++)
		for (int k = 0; k < 3; k++) {
			fill(data, rank == root ? root : 99, COUNTS[k]);
			MPI_Bcast(data, COUNTS[k], MPI_INT64_T, root, comm);
			good &= is_ramp(data, root, COUNTS[k]);
		}
	return good;
}

static int bcast_of_a_column(MPI_Comm comm)
{
	int data[10][4], good = 1, rank = rank_in(comm), root = size_of(comm) / 2;
	MPI_Datatype column;

	for (int i = 0; i < 40; i++)
		data[i / 4][i % 4] = rank;
	MPI_Type_vector(10, 1, 4, MPI_INT, &column);
	MPI_Type_commit(&column);
	MPI_Bcast(data, 1, column, root, comm);
	MPI_Type_free(&column);
	for (int i = 0; i < 40; i++)
		good &= data[i / 4][i % 4] == (i % 4 ? rank : root);
	return good;
}

static int bcast_of_a_struct(MPI_Comm comm)
{
	struct mixed {
		char tag;
		double value;
		int count;
	} data = {(char)rank_in(comm), 0.5 * rank_in(comm), rank_in(comm)};
	int lengths[] = {1, 1, 1}, root = size_of(comm) - 1;
	MPI_Aint places[] = {offsetof(struct mixed, tag),
	                     offsetof(struct mixed, value),
	                     offsetof(struct mixed, count)};
	MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, mixed;

	MPI_Type_create_struct(3, lengths, places, types, &mixed);
	MPI_Type_commit(&mixed);
	MPI_Bcast(&data, 1, mixed, root, comm);
	MPI_Type_free(&mixed);
	return data.tag == root && data.value == 0.5 * root && data.count == root;
}

/* Ranks may describe one message by different counts and types. */
static int bcast_of_two_shapes(MPI_Comm comm)
{
	int64_t data[8];
	MPI_Datatype four;

	fill(data, rank_in(comm), 8);
	MPI_Type_contiguous(4, MPI_INT64_T, &four);
	MPI_Type_commit(&four);
	if (rank_in(comm) % 2)
		MPI_Bcast(data, 2, four, 0, comm);
	else
		MPI_Bcast(data, 8, MPI_INT64_T, 0, comm);
	MPI_Type_free(&four);
	return is_ramp(data, 0, 8);
}

static int reduce_to_every_root(MPI_Comm comm)
{
	int64_t in[100], out[100];
	int good = 1, rank = rank_in(comm), n = size_of(comm);

	fill(in, rank, 100);
	for (int root = 0; root < n; root++) {
		fill(out, 99, 100);
		MPI_Reduce(in, out, 100, MPI_INT64_T, MPI_SUM, root, comm);
		good &= rank == root ? is_sum(out, n, 100) : is_ramp(out, 99, 100);
	}
	return good;
}

static int reduce_in_place_at_root(MPI_Comm comm)
{
	int64_t data[64];
	int rank = rank_in(comm), n = size_of(comm), root = n - 1;

	fill(data, rank, 64);
	if (rank == root)
		MPI_Reduce(MPI_IN_PLACE, data, 64, MPI_INT64_T, MPI_SUM, root, comm);
	else
		MPI_Reduce(data, NULL, 64, MPI_INT64_T, MPI_SUM, root, comm);
	return rank == root ? is_sum(data, n, 64) : is_ramp(data, rank, 64);
}

static int reduce_of_nothing(MPI_Comm comm)
{
	int64_t out = -1;

	MPI_Reduce(NULL, &out, 0, MPI_INT64_T, MPI_SUM, size_of(comm) - 1, comm);
	return out == -1;
}

#if MPI_VERSION >= 4
static int bcast_with_a_large_count(MPI_Comm comm)
{
	int64_t data[9];
	int root = size_of(comm) - 1;

	fill(data, rank_in(comm), 9);
	MPI_Bcast_c(data, 9, MPI_INT64_T, root, comm);
	return is_ramp(data, root, 9);
}
#endif

const struct check rooted[] = {
	CHECK(bcast_from_every_root), CHECK(bcast_of_a_column),
	CHECK(bcast_of_a_struct), CHECK(bcast_of_two_shapes),
	CHECK(reduce_to_every_root), CHECK(reduce_in_place_at_root),
	CHECK(reduce_of_nothing),
#if MPI_VERSION >= 4
	CHECK(bcast_with_a_large_count),
#endif
	{0},
};
