/* Allreduce, reduce and reduce_scatter of floats, and of matrices, whose product does
 * not commute: prints what of it is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATRICES 840 /* a multiple of up to 8 ranks */
#define PRIME 10007

typedef long long matrix[4];

static void times(const long long *a, const long long *b, long long *to)
{
	matrix product;

	for (int row = 0; row < 2; row++)
		for (int column = 0; column < 2; column++)
			product[2 * row + column] =
				(a[2 * row] * b[column] +
				 a[2 * row + 1] * b[2 + column]) % PRIME;
	memcpy(to, product, sizeof product);
}

/* MPI's order: what comes in is on the left. */
static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
	matrix *left = in, *right = inout;

	(void)type;
	for (int i = 0; i < *count; i++)
		times(left[i], right[i], right[i]);
}

static void fill(matrix *to, int rank)
{
	for (int i = 0; i < MATRICES; i++) {
		to[i][0] = rank + 1;
		to[i][1] = i % 7;
		to[i][2] = 2 * rank;
		to[i][3] = 1 + i % 3;
	}
}

static void wrong(const char *what)
{
	printf("wrong: %s\n", what);
}

static int differ(const void *a, const void *b, int matrices)
{
	return memcmp(a, b, sizeof(matrix) * (size_t)matrices) != 0;
}

int main(int argc, char **argv)
{
	static matrix own[MATRICES], product[MATRICES], got[MATRICES], next[MATRICES];
	static float ones[16384], sums[16384];
	MPI_Datatype type;
	MPI_Op op;
	int rank, ranks, counts[64], share;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Type_contiguous(4, MPI_LONG_LONG, &type);
	MPI_Type_commit(&type);
	MPI_Op_create(multiply, 0, &op);
	fill(product, 0);
	for (int other = 1; other < ranks; other++) {
		fill(next, other);
		for (int i = 0; i < MATRICES; i++)
			times(product[i], next[i], product[i]);
	}
	fill(own, rank);
	share = MATRICES / ranks;
	for (int i = 0; i < ranks; i++)
		counts[i] = share;

	for (int i = 0; i < 16384; i++)
		ones[i] = 1;
	MPI_Allreduce(ones, sums, 16384, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 16384; i++)
		if (sums[i] != ranks)
			wrong("sums");
	MPI_Allreduce(own, got, MATRICES, type, op, MPI_COMM_WORLD);
	if (differ(got, product, MATRICES))
		wrong("allreduce");
	memcpy(got, own, sizeof own);
	MPI_Allreduce(MPI_IN_PLACE, got, MATRICES, type, op, MPI_COMM_WORLD);
	if (differ(got, product, MATRICES))
		wrong("allreduce in place");
	for (int root = 0; root < ranks; root++) {
		MPI_Reduce(own, got, MATRICES, type, op, root, MPI_COMM_WORLD);
		if (rank == root && differ(got, product, MATRICES))
			wrong("reduce");
	}
	MPI_Reduce_scatter(own, got, counts, type, op, MPI_COMM_WORLD);
	if (differ(got, product[rank * share], share))
		wrong("reduce_scatter");
	MPI_Reduce_scatter_block(own, got, share, type, op, MPI_COMM_WORLD);
	if (differ(got, product[rank * share], share))
		wrong("reduce_scatter_block");
	if (!rank)
		printf("done\n");
	MPI_Op_free(&op);
	MPI_Type_free(&type);
	MPI_Finalize();
	return 0;
}
