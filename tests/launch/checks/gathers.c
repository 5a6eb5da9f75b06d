/* Gathers to all: each block has to arrive where it belongs. */
#include "checks.h"

#define MOST 9000

static int allgather(MPI_Comm comm)
{
	static const int COUNTS[] = {0, 1, 100, MOST};
	static int64_t in[MOST], out[MOST * MOST_RANKS];
	int good = 1;

	fill(in, rank_in(comm), MOST);
	for (int k = 0; k < 4; k++) {
		memset(out, 0, sizeof out);
		MPI_Allgather(in, COUNTS[k], MPI_INT64_T, out, COUNTS[k],
		              MPI_INT64_T, comm);
		for (int rank = 0; rank < size_of(comm); rank++)
			good &= is_ramp(out + rank * COUNTS[k], rank, COUNTS[k]);
	}
	return good;
}

static int allgather_in_place(MPI_Comm comm)
{
	int64_t out[30 * MOST_RANKS] = {0};
	int good = 1;

	fill(out + 30 * rank_in(comm), rank_in(comm), 30);
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 30, MPI_INT64_T,
	              comm);
	for (int rank = 0; rank < size_of(comm); rank++)
		good &= is_ramp(out + 30 * rank, rank, 30);
	return good;
}

static int allgather_of_two_shapes(MPI_Comm comm)
{
	int64_t in[6], out[6 * MOST_RANKS] = {0};
	int good = 1;
	MPI_Datatype three;

	fill(in, rank_in(comm), 6);
	MPI_Type_contiguous(3, MPI_INT64_T, &three);
	MPI_Type_commit(&three);
	if (rank_in(comm) % 2)
		MPI_Allgather(in, 6, MPI_INT64_T, out, 2, three, comm);
	else
		MPI_Allgather(in, 2, three, out, 6, MPI_INT64_T, comm);
	MPI_Type_free(&three);
	for (int rank = 0; rank < size_of(comm); rank++)
		good &= is_ramp(out + 6 * rank, rank, 6);
	return good;
}

static int allgather_of_a_type_with_holes(MPI_Comm comm)
{
	int64_t in[2], out[6 * MOST_RANKS];
	int good = 1;
	MPI_Datatype wide;

	fill(in, rank_in(comm), 2);
	memset(out, 0xff, sizeof out);
	MPI_Type_create_resized(MPI_INT64_T, 0, 24, &wide);
	MPI_Type_commit(&wide);
	MPI_Allgather(in, 2, MPI_INT64_T, out, 2, wide, comm);
	MPI_Type_free(&wide);
	for (int i = 0; i < 6 * size_of(comm); i++)
		good &= out[i] == (i % 3 ? -1 : ramp(i / 6, i % 6 / 3));
	return good;
}

/* Blocks of other sizes, the last rank's first, with holes between. */
struct ragged {
	int counts[MOST_RANKS], places[MOST_RANKS], size;
	int64_t expected[MOST_RANKS * 8];
};

static struct ragged ragged(int n, int gap)
{
	struct ragged made;

	made.size = 0;
	memset(made.expected, 0xff, sizeof made.expected);
	for (int rank = n - 1; rank >= 0; rank--) {
		made.counts[rank] = 3 * rank % 5;
		made.places[rank] = made.size;
		fill(made.expected + made.size, rank, made.counts[rank]);
		made.size += made.counts[rank] + gap;
	}
	return made;
}

static int allgatherv_with_gaps(MPI_Comm comm)
{
	struct ragged blocks = ragged(size_of(comm), 2);
	int64_t in[5], out[MOST_RANKS * 8];
	int rank = rank_in(comm);

	fill(in, rank, 5);
	memset(out, 0xff, sizeof out);
	MPI_Allgatherv(in, blocks.counts[rank], MPI_INT64_T, out, blocks.counts,
	               blocks.places, MPI_INT64_T, comm);
	return !memcmp(out, blocks.expected, sizeof out);
}

static int allgatherv_in_place(MPI_Comm comm)
{
	struct ragged blocks = ragged(size_of(comm), 0);
	int64_t out[MOST_RANKS * 8];
	int rank = rank_in(comm);

	memset(out, 0xff, sizeof out);
	fill(out + blocks.places[rank], rank, blocks.counts[rank]);
	MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, blocks.counts,
	               blocks.places, MPI_INT64_T, comm);
	return !memcmp(out, blocks.expected, sizeof out);
}

static int lists_are_left_as_they_are(MPI_Comm comm)
{
	struct ragged blocks = ragged(size_of(comm), 1), before = blocks;
	int64_t in[5], out[MOST_RANKS * 8];

	fill(in, rank_in(comm), 5);
	MPI_Allgatherv(in, blocks.counts[rank_in(comm)], MPI_INT64_T, out,
	               blocks.counts, blocks.places, MPI_INT64_T, comm);
	return !memcmp(&blocks, &before, sizeof blocks);
}

#if MPI_VERSION >= 4
static int with_large_counts(MPI_Comm comm)
{
	struct ragged blocks = ragged(size_of(comm), 1);
	int64_t in[5], out[MOST_RANKS * 8];
	int rank = rank_in(comm), n = size_of(comm), good = 1;
	MPI_Count counts[MOST_RANKS];
	MPI_Aint places[MOST_RANKS];

	for (int i = 0; i < n; i++) {
		counts[i] = blocks.counts[i];
		places[i] = blocks.places[i];
	}
	fill(in, rank, 5);
	memset(out, 0xff, sizeof out);
	MPI_Allgatherv_c(in, counts[rank], MPI_INT64_T, out, counts, places,
	                 MPI_INT64_T, comm);
	good = !memcmp(out, blocks.expected, sizeof out);
	MPI_Allgather_c(in, 5, MPI_INT64_T, out, 5, MPI_INT64_T, comm);
	for (int i = 0; i < n; i++)
		good &= is_ramp(out + 5 * i, i, 5);
	return good;
}
#endif

const struct check gathers[] = {
	CHECK(allgather), CHECK(allgather_in_place),
	CHECK(allgather_of_two_shapes), CHECK(allgather_of_a_type_with_holes),
	CHECK(allgatherv_with_gaps), CHECK(allgatherv_in_place),
	CHECK(lists_are_left_as_they_are),
#if MPI_VERSION >= 4
	CHECK(with_large_counts),
#endif
	{0},
};
