/* Nonblocking collectives, alone and among others. */
#include "checks.h"

static int comes_before_any_other(MPI_Comm comm)
{
	int64_t in[50], out[50];
	MPI_Request request;
	MPI_Comm made;
	int good;

	fill(in, rank_in(comm), 50);
	MPI_Comm_dup(comm, &made);
	MPI_Iallreduce(in, out, 50, MPI_INT64_T, MPI_SUM, made, &request);
	good = works(made); /* makes the shadow while the other is on its way */
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_free(&made);
	return good && is_sum(out, size_of(comm), 50);
}

static int many_reductions_overlap(MPI_Comm comm)
{
	int64_t in[200], out[8][200];
	MPI_Request all[8];
	int good;

	fill(in, rank_in(comm), 200);
	for (int i = 0; i < 8; i++)
		MPI_Iallreduce(in, out[i], 200, MPI_INT64_T, MPI_SUM, comm, &all[i]);
	good = works(comm);
	for (int i = 7; i >= 0; i--) {
		MPI_Wait(&all[i], MPI_STATUS_IGNORE);
		good &= is_sum(out[i], size_of(comm), 200);
	}
	return good;
}

static int all_kinds_overlap(MPI_Comm comm)
{
	int n = size_of(comm), root = n - 1, rank = rank_in(comm), good;
	int64_t in[9], first[9], last[9], sum[9], rows[2 * MOST_RANKS], block[3];
	int64_t wide[3 * MOST_RANKS];
	MPI_Request all[6];

	fill(in, rank, 9);
	fill(first, rank, 9);
	fill(last, rank, 9);
	fill(wide, rank, 3 * n);
	MPI_Ibcast(first, 9, MPI_INT64_T, 0, comm, &all[0]);
	MPI_Ireduce(in, sum, 9, MPI_INT64_T, MPI_SUM, root, comm, &all[1]);
	MPI_Ibarrier(comm, &all[2]);
	MPI_Ibcast(last, 9, MPI_INT64_T, root, comm, &all[3]);
	MPI_Iallgather(in, 2, MPI_INT64_T, rows, 2, MPI_INT64_T, comm, &all[4]);
	MPI_Ireduce_scatter_block(wide, block, 3, MPI_INT64_T, MPI_SUM, comm,
	                          &all[5]);
	good = works(comm);
	MPI_Waitall(6, all, MPI_STATUSES_IGNORE);
	good &= is_ramp(first, 0, 9) && is_ramp(last, root, 9);
	good &= rank != root || is_sum(sum, n, 9);
	for (int i = 0; i < n; i++)
		good &= is_ramp(rows + 2 * i, i, 2);
	for (int i = 0; i < 3; i++)
		good &= block[i] == ramps(n, 3 * rank + i);
	return good;
}

static int nonblocking_in_place(MPI_Comm comm)
{
	int64_t data[12];
	MPI_Request request;

	fill(data, rank_in(comm), 12);
	MPI_Iallreduce(MPI_IN_PLACE, data, 12, MPI_INT64_T, MPI_SUM, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return is_sum(data, size_of(comm), 12);
}

static int nonblocking_to_every_root(MPI_Comm comm)
{
	int64_t in[9], out[9];
	int good = 1, n = size_of(comm);
	MPI_Request request;

	fill(in, rank_in(comm), 9);
	for (int root = 0; root < n; root++) {
		MPI_Ireduce(in, out, 9, MPI_INT64_T, MPI_SUM, root, comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		good &= rank_in(comm) != root || is_sum(out, n, 9);
	}
	return good;
}

#ifndef OMPI_MAJOR_VERSION /* 5.0.11 crashes, with or without the shim */
/* The standard lets a communicator go before what runs on it has ended. */
static int freed_meanwhile(MPI_Comm comm)
{
	int64_t in[300], out[300];
	MPI_Request request;
	MPI_Comm made;
	int good;

	fill(in, rank_in(comm), 300);
	MPI_Comm_dup(comm, &made);
	good = works(made);
	MPI_Iallreduce(in, out, 300, MPI_INT64_T, MPI_SUM, made, &request);
	MPI_Comm_free(&made);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return good && is_sum(out, size_of(comm), 300);
}
#endif

static int on_two_communicators(MPI_Comm comm)
{
	int64_t in[30], one[30], two[30];
	MPI_Request all[2];
	MPI_Comm made[2];
	int good, turned = rank_in(comm) % 2;

	fill(in, rank_in(comm), 30);
	for (int i = 0; i < 2; i++)
		MPI_Comm_dup(comm, &made[i]);
	good = works(made[0]);
	/* Started in opposite orders: these are different communicators. */
	for (int i = 0; i < 2; i++) {
		int which = i ^ turned;

		MPI_Iallreduce(in, which ? two : one, 30, MPI_INT64_T, MPI_SUM,
		               made[which], &all[which]);
	}
	good &= works(made[1]);
	MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
	for (int i = 0; i < 2; i++)
		MPI_Comm_free(&made[i]);
	return good && is_sum(one, size_of(comm), 30) &&
	       is_sum(two, size_of(comm), 30);
}

#if MPI_VERSION >= 4
static int nonblocking_with_large_counts(MPI_Comm comm)
{
	int64_t in[40], sum[40], at_root[40], data[40];
	int root = size_of(comm) - 1, n = size_of(comm);
	MPI_Request all[3];

	fill(in, rank_in(comm), 40);
	fill(data, rank_in(comm), 40);
	MPI_Iallreduce_c(in, sum, 40, MPI_INT64_T, MPI_SUM, comm, &all[0]);
	MPI_Ibcast_c(data, 40, MPI_INT64_T, root, comm, &all[1]);
	MPI_Ireduce_c(in, at_root, 40, MPI_INT64_T, MPI_SUM, root, comm, &all[2]);
	MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
	return is_sum(sum, n, 40) && is_ramp(data, root, 40) &&
	       (rank_in(comm) != root || is_sum(at_root, n, 40));
}
#endif

const struct check requests[] = {
	CHECK(comes_before_any_other), CHECK(many_reductions_overlap),
	CHECK(all_kinds_overlap), CHECK(nonblocking_in_place),
	CHECK(nonblocking_to_every_root), CHECK(on_two_communicators),
#ifndef OMPI_MAJOR_VERSION
	CHECK(freed_meanwhile),
#endif
#if MPI_VERSION >= 4
	CHECK(nonblocking_with_large_counts),
#endif
	{0},
};
