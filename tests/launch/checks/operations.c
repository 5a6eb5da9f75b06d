/* Reductions by operations and types of the application's own. */
#include "checks.h"

#define PAIRS 50
#define MODULUS 10007

/* Composes x -> a x + b with the next one: associative, not commutative. */
struct map {
	int64_t a, b;
};

static struct map then(struct map one, struct map next)
{
	struct map both = {one.a * next.a % MODULUS,
	                   (one.b * next.a + next.b) % MODULUS};

	return both;
}

static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
	struct map *left = in, *right = inout;

	(void)type;
	for (int i = 0; i < *count; i++)
		right[i] = then(left[i], right[i]);
}

static struct map map_of(int rank, int i)
{
	struct map map = {ramp(rank, 2 * i) % MODULUS, ramp(rank, 2 * i + 1)};

	return map;
}

static void fill_maps(struct map *maps, int rank, int count)
{
	for (int i = 0; i < count; i++)
		maps[i] = map_of(rank, i);
}

/* Whether these are the maps of ranks 0 to last, one after the other. */
static int are_composed(const struct map *maps, int last, int from, int count)
{
	int good = 1;

	for (int i = 0; i < count; i++) {
		struct map all = map_of(0, from + i);

		for (int rank = 1; rank <= last; rank++)
			all = then(all, map_of(rank, from + i));
		good &= maps[i].a == all.a && maps[i].b % MODULUS == all.b % MODULUS;
	}
	return good;
}

struct composing {
	MPI_Datatype type; /* a pair, so that no algorithm cuts through one */
	MPI_Op op;
};

static struct composing begin(void)
{
	struct composing made;

	MPI_Type_contiguous(2, MPI_INT64_T, &made.type);
	MPI_Type_commit(&made.type);
	MPI_Op_create(compose, 0, &made.op);
	return made;
}

static void end(struct composing made)
{
	MPI_Op_free(&made.op);
	MPI_Type_free(&made.type);
}

static int allreduce_not_commutative(MPI_Comm comm)
{
	struct composing with = begin();
	struct map in[PAIRS], out[PAIRS];

	fill_maps(in, rank_in(comm), PAIRS);
	MPI_Allreduce(in, out, PAIRS, with.type, with.op, comm);
	end(with);
	return are_composed(out, size_of(comm) - 1, 0, PAIRS);
}

static int reduce_not_commutative(MPI_Comm comm)
{
	struct composing with = begin();
	struct map in[PAIRS], out[PAIRS];
	int good = 1, n = size_of(comm);

	fill_maps(in, rank_in(comm), PAIRS);
	for (int root = 0; root < n; root++) {
		memset(out, 0, sizeof out);
		MPI_Reduce(in, out, PAIRS, with.type, with.op, root, comm);
		good &= rank_in(comm) != root || are_composed(out, n - 1, 0, PAIRS);
	}
	end(with);
	return good;
}

static int reduce_scatter_not_commutative(MPI_Comm comm)
{
	struct composing with = begin();
	struct map in[3 * MOST_RANKS], out[3];
	int rank = rank_in(comm), n = size_of(comm);

	fill_maps(in, rank, 3 * n);
	MPI_Reduce_scatter_block(in, out, 3, with.type, with.op, comm);
	end(with);
	return are_composed(out, n - 1, 3 * rank, 3);
}

static int scan_not_commutative(MPI_Comm comm)
{
	struct composing with = begin();
	struct map in[PAIRS], out[PAIRS];

	fill_maps(in, rank_in(comm), PAIRS);
	MPI_Scan(in, out, PAIRS, with.type, with.op, comm);
	end(with);
	return are_composed(out, rank_in(comm), 0, PAIRS);
}

static int nonblocking_not_commutative(MPI_Comm comm)
{
	struct composing with = begin();
	struct map in[PAIRS], out[PAIRS];
	MPI_Request request;

	fill_maps(in, rank_in(comm), PAIRS);
	MPI_Iallreduce(in, out, PAIRS, with.type, with.op, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	end(with);
	return are_composed(out, size_of(comm) - 1, 0, PAIRS);
}

static void add_every_third(void *in, void *inout, int *count, MPI_Datatype *type)
{
	const int64_t *from = in;
	int64_t *to = inout;

	(void)type;
	for (int i = 0; i < 3 * *count; i += 3)
		to[i] += from[i];
}

/* Elements with holes, which have to be left as they are. */
static int commutative_on_a_type_with_holes(MPI_Comm comm)
{
	int64_t in[30], out[30];
	int rank = rank_in(comm), good = 1;
	MPI_Datatype wide;
	MPI_Op op;

	MPI_Type_create_resized(MPI_INT64_T, 0, 24, &wide);
	MPI_Type_commit(&wide);
	MPI_Op_create(add_every_third, 1, &op);
	fill(in, rank, 30);
	memset(out, 0x55, sizeof out);
	MPI_Allreduce(in, out, 10, wide, op, comm);
	for (int i = 0; i < 30; i += 3) {
		good &= out[i] == ramps(size_of(comm), i);
		good &= i == 27 || out[i + 1] == 0x5555555555555555;
	}
	MPI_Op_free(&op);
	MPI_Type_free(&wide);
	return good;
}

const struct check own_operations[] = {
	CHECK(allreduce_not_commutative), CHECK(reduce_not_commutative),
	CHECK(reduce_scatter_not_commutative), CHECK(scan_not_commutative),
	CHECK(nonblocking_not_commutative),
	CHECK(commutative_on_a_type_with_holes), {0},
};
