/* What benchmarks/shim.py times: the start, calls on one rank, or a large vector. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 500

/* Of the fastest batch: what others take of the processor is no call's. */
static double ns_per_call(long calls)
{
	double least = 1e9;
	int one = 1, sum;

	for (long at = 0; at < calls; at += BATCH) {
		double start = MPI_Wtime(), took;

		for (int i = 0; i < BATCH; i++)
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
		took = (MPI_Wtime() - start) / BATCH * 1e9;
		if (took < least)
			least = took;
	}
	return least;
}

static double us_per_communicator(int count)
{
	double start = MPI_Wtime();
	int one = 1, sum;

	for (int i = 0; i < count; i++) {
		MPI_Comm twin;

		MPI_Comm_dup(MPI_COMM_WORLD, &twin);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, twin);
		MPI_Comm_free(&twin);
	}
	return (MPI_Wtime() - start) / count * 1e6;
}

static void reduce(const float *in, float *out, int count, int scatter)
{
	int size;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (scatter)
		MPI_Reduce_scatter_block(in, out, count / size, MPI_FLOAT, MPI_SUM,
		                         MPI_COMM_WORLD);
	else
		MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void print_reductions(long bytes, int repeats, int scatter)
{
	float *in = calloc(1, (size_t)bytes), *out = malloc((size_t)bytes);
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i <= repeats; i++) { /* the first makes connections */
		double start, took;

		MPI_Barrier(MPI_COMM_WORLD);
		start = MPI_Wtime();
		reduce(in, out, (int)(bytes / 4), scatter);
		took = MPI_Wtime() - start;
		MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX,
		              MPI_COMM_WORLD);
		if (!rank && i)
			printf("%.6f\n", took);
	}
	free(in);
	free(out);
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	double start = now_ms();
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!rank && argc == 2 && !strcmp(argv[1], "init"))
		printf("%.3f\n", now_ms() - start);
	if (argc == 3 && !strcmp(argv[1], "call"))
		printf("%.2f\n", ns_per_call(atol(argv[2])));
	else if (argc == 3 && !strcmp(argv[1], "communicators")) {
		double took = us_per_communicator(atoi(argv[2]));

		if (!rank)
			printf("%.2f\n", took);
	} else if (argc == 4)
		print_reductions(atol(argv[2]), atoi(argv[3]),
		                 !strcmp(argv[1], "reduce_scatter_block"));
	MPI_Finalize();
	return 0;
}
