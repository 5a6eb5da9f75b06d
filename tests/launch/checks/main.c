/* Run all checks; rank 0 prints those that failed, and how many there were. */
#include "checks.h"

#include <stdio.h>

static const struct check *const ALL[] = {
	reductions, own_operations, scatters, rooted, gathers, communicators,
	processes, requests, persistent, errors, interleavings,
};

int works(MPI_Comm comm)
{
	int rank = rank_in(comm), n = size_of(comm), good = 1;
	int64_t mine[20], out[20], blocks[4 * MOST_RANKS];

	fill(mine, rank, 20);
	MPI_Allreduce(mine, out, 20, MPI_INT64_T, MPI_SUM, comm);
	good &= is_sum(out, n, 20);
	MPI_Allgather(mine, 4, MPI_INT64_T, blocks, 4, MPI_INT64_T, comm);
	for (int i = 0; i < n; i++)
		good &= is_ramp(blocks + 4 * i, i, 4);
	MPI_Bcast(mine, 3, MPI_INT64_T, n - 1, comm);
	good &= is_ramp(mine, n - 1, 3);
	MPI_Barrier(comm);
	return good;
}

/* By a routine that the shim does not have. */
static int failed_somewhere(const struct check *check, int good)
{
	int all[MOST_RANKS], failed = 0, n = size_of(MPI_COMM_WORLD);

	PMPI_Allgather(&good, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int rank = 0; rank < n; rank++) {
		failed |= !all[rank];
		if (!all[rank] && !rank_in(MPI_COMM_WORLD))
			printf("%s failed on rank %d\n", check->name, rank);
	}
	return failed;
}

int main(int argc, char **argv)
{
	int level, count = 0, failed = 0;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
		for (const struct check *one = ALL[i]; one->name; one++, count++)
			failed += failed_somewhere(one, one->run(MPI_COMM_WORLD));
	if (!rank_in(MPI_COMM_WORLD))
		printf("%d checks, %d failed\n", count, failed);
	MPI_Finalize();
	return !!failed;
}
