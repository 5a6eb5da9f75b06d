/* Allreduce with the operations and types that every MPI has. */
#include "checks.h"

#include <complex.h>
#include <math.h>

#define MOST 20000

static const int COUNTS[] = {0, 1, 3, 1000, MOST};

#define EACH_COUNT(count) \
	for (int count, k_ = 0; \
	     k_ < (int)(sizeof COUNTS / sizeof *COUNTS) && \
	     (count = COUNTS[k_], 1); \
	     k_++)

/* A check that compares each element with `a = combine` over all ranks. */
#define ALLREDUCE(name, type, TYPE, OP, combine) \
	static int name(MPI_Comm comm) \
	{ \
		static type in[MOST], out[MOST]; \
		int good = 1, n = size_of(comm); \
		for (int i = 0; i < MOST; i++) \
			in[i] = (type)ramp(rank_in(comm), i % 97); \
		EACH_COUNT(count) { \
			MPI_Allreduce(in, out, count, TYPE, OP, comm); \
			for (int i = 0; i < count; i++) { \
				type a = (type)ramp(0, i % 97); \
				for (int rank = 1; rank < n; rank++) { \
					type b = (type)ramp(rank, i % 97); \
					a = (type)(combine); \
				} \
				good &= out[i] == a; \
			} \
		} \
		return good; \
	}

#define ALL_OPERATIONS(X, type, TYPE) \
	X(sum, type, TYPE, MPI_SUM, a + b) \
	X(prod, type, TYPE, MPI_PROD, a *b) \
	X(max, type, TYPE, MPI_MAX, a > b ? a : b) \
	X(min, type, TYPE, MPI_MIN, a < b ? a : b) \
	X(land, type, TYPE, MPI_LAND, a &&b) \
	X(lor, type, TYPE, MPI_LOR, a || b) \
	X(lxor, type, TYPE, MPI_LXOR, !a != !b) \
	X(band, type, TYPE, MPI_BAND, a &b) \
	X(bor, type, TYPE, MPI_BOR, a | b) \
	X(bxor, type, TYPE, MPI_BXOR, a ^ b)
#define ONE(op, type, TYPE, OP, combine) \
	ALLREDUCE(op##_of_##type, type, TYPE, OP, combine)
#define NAMED(op, type, TYPE, OP, combine) CHECK(op##_of_##type),

ALL_OPERATIONS(ONE, int16_t, MPI_INT16_T)
ALL_OPERATIONS(ONE, uint32_t, MPI_UINT32_T)
ALL_OPERATIONS(ONE, uint64_t, MPI_UINT64_T)
ALLREDUCE(max_of_doubles, double, MPI_DOUBLE, MPI_MAX, fmax(a, b))
ALLREDUCE(min_of_floats, float, MPI_FLOAT, MPI_MIN, fminf(a, b))

static int sum_of_doubles_is_close(MPI_Comm comm)
{
	double in[999], out[999];
	int good = 1;

	for (int i = 0; i < 999; i++)
		in[i] = sqrt((double)ramp(rank_in(comm), i));
	MPI_Allreduce(in, out, 999, MPI_DOUBLE, MPI_SUM, comm);
	for (int i = 0; i < 999; i++) {
		double sum = 0;

		for (int rank = 0; rank < size_of(comm); rank++)
			sum += sqrt((double)ramp(rank, i));
		good &= fabs(out[i] - sum) <= 1e-14 * sum;
	}
	return good;
}

static int same_bits_everywhere(MPI_Comm comm)
{
	double in[999], out[999], first[999];

	for (int i = 0; i < 999; i++)
		in[i] = sqrt((double)ramp(rank_in(comm), i));
	MPI_Allreduce(in, out, 999, MPI_DOUBLE, MPI_SUM, comm);
	memcpy(first, out, sizeof first);
	PMPI_Bcast(first, 999, MPI_DOUBLE, 0, comm);
	return !memcmp(first, out, sizeof first);
}

static int in_place(MPI_Comm comm)
{
	int64_t data[777];

	fill(data, rank_in(comm), 777);
	MPI_Allreduce(MPI_IN_PLACE, data, 777, MPI_INT64_T, MPI_SUM, comm);
	return is_sum(data, size_of(comm), 777);
}

static int maxloc(MPI_Comm comm)
{
	int n = size_of(comm), top = n < 3 ? n - 1 : 2;
	struct {
		int value, where;
	} in = {rank_in(comm) % 3, rank_in(comm)}, out;

	/* Of those that share the maximum the least rank is meant. */
	MPI_Allreduce(&in, &out, 1, MPI_2INT, MPI_MAXLOC, comm);
	return out.value == top && out.where == top;
}

static int minloc_of_doubles(MPI_Comm comm)
{
	int last = size_of(comm) - 1;
	struct {
		double value;
		int where;
	} in = {-0.5 * rank_in(comm), rank_in(comm)}, out;

	MPI_Allreduce(&in, &out, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
	return out.value == -0.5 * last && out.where == last;
}

static int sum_of_complex(MPI_Comm comm)
{
	double complex in = ramp(rank_in(comm), 0) + I * ramp(rank_in(comm), 1), out;

	MPI_Allreduce(&in, &out, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, comm);
	return creal(out) == (double)ramps(size_of(comm), 0) &&
	       cimag(out) == (double)ramps(size_of(comm), 1);
}

#if MPI_VERSION >= 4
static int with_large_counts(MPI_Comm comm)
{
	int64_t in[50], out[50], last = size_of(comm) - 1;
	int good;

	fill(in, rank_in(comm), 50);
	MPI_Allreduce_c(in, out, 50, MPI_INT64_T, MPI_SUM, comm);
	good = is_sum(out, size_of(comm), 50);
	memset(out, 0, sizeof out);
	MPI_Reduce_c(in, out, 50, MPI_INT64_T, MPI_SUM, (int)last, comm);
	return good && (rank_in(comm) != last || is_sum(out, size_of(comm), 50));
}
#endif

const struct check reductions[] = {
	ALL_OPERATIONS(NAMED, int16_t, MPI_INT16_T)
	ALL_OPERATIONS(NAMED, uint32_t, MPI_UINT32_T)
	ALL_OPERATIONS(NAMED, uint64_t, MPI_UINT64_T)
	CHECK(max_of_doubles), CHECK(min_of_floats),
	CHECK(sum_of_doubles_is_close), CHECK(same_bits_everywhere),
	CHECK(in_place), CHECK(maxloc), CHECK(minloc_of_doubles),
	CHECK(sum_of_complex),
#if MPI_VERSION >= 4
	CHECK(with_large_counts),
#endif
	{0},
};
