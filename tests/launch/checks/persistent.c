/* Persistent collectives: MPI 4's, which Open MPI 4 has by names of its own. */
#include "checks.h"

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

#define TIMES 3

static int again_and_again(MPI_Comm comm)
{
	int64_t in[20] = {0}, out[20];
	MPI_Request request;
	int good = 1;

	INIT(Allreduce)(in, out, 20, MPI_INT64_T, MPI_SUM, comm, MPI_INFO_NULL,
	                &request);
	for (int i = 0; i < TIMES; i++) {
		for (int k = 0; k < 20; k++)
			in[k] = i * ramp(rank_in(comm), k);
		MPI_Start(&request);
		good &= works(comm);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int k = 0; k < 20; k++)
			good &= out[k] == i * ramps(size_of(comm), k);
	}
	MPI_Request_free(&request);
	return good;
}

static int several_at_once(MPI_Comm comm)
{
	int n = size_of(comm), root = n - 1, rank = rank_in(comm), good = 1;
	int64_t in[6], data[6], out[6];
	MPI_Request all[3];

	fill(in, rank, 6);
	INIT(Bcast)(data, 6, MPI_INT64_T, root, comm, MPI_INFO_NULL, &all[0]);
	INIT(Reduce)(in, out, 6, MPI_INT64_T, MPI_SUM, 0, comm, MPI_INFO_NULL,
	             &all[1]);
	INIT(Barrier)(comm, MPI_INFO_NULL, &all[2]);
	for (int i = 0; i < TIMES; i++) {
		fill(data, rank, 6);
		MPI_Startall(3, all);
		MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
		good &= is_ramp(data, root, 6) && (rank || is_sum(out, n, 6));
	}
	for (int i = 0; i < 3; i++)
		MPI_Request_free(&all[i]);
	return good;
}

/* MPICH 4.0.2 leaves out blocks from the second start on. */
#if !defined(MPICH_NUMVERSION) || MPICH_NUMVERSION >= 40100000
static int gathers_again_and_again(MPI_Comm comm)
{
	int64_t in[2], rows[2 * MOST_RANKS];
	MPI_Request request;
	int good = 1;

	fill(in, rank_in(comm), 2);
	INIT(Allgather)(in, 2, MPI_INT64_T, rows, 2, MPI_INT64_T, comm,
	                MPI_INFO_NULL, &request);
	for (int i = 0; i < TIMES; i++) {
		memset(rows, 0, sizeof rows);
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int rank = 0; rank < size_of(comm); rank++)
			good &= is_ramp(rows + 2 * rank, rank, 2);
	}
	MPI_Request_free(&request);
	return good;
}
#endif

static int on_one_that_has_no_shadow_yet(MPI_Comm comm)
{
	int64_t in[8], out[8];
	MPI_Request request;
	MPI_Comm made;
	int good;

	fill(in, rank_in(comm), 8);
	MPI_Comm_dup(comm, &made);
	INIT(Allreduce)(in, out, 8, MPI_INT64_T, MPI_SUM, made, MPI_INFO_NULL,
	                &request);
	MPI_Start(&request);
	good = works(made);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Request_free(&request);
	MPI_Comm_free(&made);
	return good && is_sum(out, size_of(comm), 8);
}

static int to_every_root_in_place(MPI_Comm comm)
{
	int n = size_of(comm), rank = rank_in(comm), good = 1;
	int64_t mine[4], data[4];
	MPI_Request request;

	fill(mine, rank, 4);
	for (int root = 0; root < n; root++) {
		INIT(Reduce)(rank == root ? MPI_IN_PLACE : mine, data, 4, MPI_INT64_T,
		             MPI_SUM, root, comm, MPI_INFO_NULL, &request);
		for (int i = 0; i < TIMES; i++) {
			fill(data, rank, 4);
			MPI_Start(&request);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			good &= rank != root || is_sum(data, n, 4);
		}
		MPI_Request_free(&request);
		good &= request == MPI_REQUEST_NULL;
	}
	return good;
}

/* The last one that contributes, by an order that has to be kept. */
static void take_last(void *in, void *out, int *count, MPI_Datatype *type)
{
	(void)in, (void)out, (void)count, (void)type;
}

static int in_the_order_of_ranks(MPI_Comm comm)
{
	int mine = rank_in(comm), last = -1;
	MPI_Request request;
	MPI_Op op;

	MPI_Op_create(take_last, 0, &op);
	INIT(Allreduce)(&mine, &last, 1, MPI_INT, op, comm, MPI_INFO_NULL, &request);
	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Request_free(&request);
	MPI_Op_free(&op);
	return last == size_of(comm) - 1;
}

/* None before: the shadow comes with the request. */
static int made_first_and_freed(MPI_Comm comm)
{
	int64_t in[5], out[5];
	int good = 1;

	fill(in, rank_in(comm), 5);
	for (int i = 0; i < 10; i++) {
		MPI_Request all[2];
		MPI_Comm made;

		MPI_Comm_dup(comm, &made);
		INIT(Allreduce)(in, out, 5, MPI_INT64_T, MPI_SUM, made, MPI_INFO_NULL,
		                &all[0]);
		INIT(Barrier)(made, MPI_INFO_NULL, &all[1]);
		for (int k = 0; k < TIMES; k++) {
			memset(out, 0, sizeof out);
			MPI_Startall(2, all);
			MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
			good &= is_sum(out, size_of(comm), 5);
		}
		good &= works(made);
		MPI_Request_free(&all[0]);
		MPI_Request_free(&all[1]);
		good &= works(made);
		MPI_Comm_free(&made);
	}
	return good;
}

/* Open MPI's requests do not survive that. */
#ifndef OMPI_MAJOR_VERSION
static int outlives_its_communicator(MPI_Comm comm)
{
	int64_t in[5], out[5];
	MPI_Request request;
	MPI_Comm made;

	fill(in, rank_in(comm), 5);
	MPI_Comm_dup(comm, &made);
	INIT(Allreduce)(in, out, 5, MPI_INT64_T, MPI_SUM, made, MPI_INFO_NULL,
	                &request);
	MPI_Start(&request);
	MPI_Comm_free(&made);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Request_free(&request);
	return is_sum(out, size_of(comm), 5) && works(comm);
}
#endif

#if MPI_VERSION >= 4
static int persistent_with_large_counts(MPI_Comm comm)
{
	int n = size_of(comm), root = n - 1, rank = rank_in(comm);
	int64_t in[6], data[6], sum[6], at_root[6];
	MPI_Request all[3];

	fill(in, rank, 6);
	fill(data, rank, 6);
	MPI_Allreduce_init_c(in, sum, 6, MPI_INT64_T, MPI_SUM, comm, MPI_INFO_NULL,
	                     &all[0]);
	MPI_Bcast_init_c(data, 6, MPI_INT64_T, root, comm, MPI_INFO_NULL, &all[1]);
	MPI_Reduce_init_c(in, at_root, 6, MPI_INT64_T, MPI_SUM, root, comm,
	                  MPI_INFO_NULL, &all[2]);
	MPI_Startall(3, all);
	MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
	for (int i = 0; i < 3; i++)
		MPI_Request_free(&all[i]);
	return is_sum(sum, n, 6) && is_ramp(data, root, 6) &&
	       (rank != root || is_sum(at_root, n, 6));
}
#endif

const struct check persistent[] = {
	CHECK(again_and_again), CHECK(several_at_once),
	CHECK(to_every_root_in_place), CHECK(in_the_order_of_ranks),
	CHECK(made_first_and_freed),
#ifndef OMPI_MAJOR_VERSION
	CHECK(outlives_its_communicator),
#endif
#if MPI_VERSION >= 4
	CHECK(persistent_with_large_counts),
#endif
	CHECK(on_one_that_has_no_shadow_yet),
#if !defined(MPICH_NUMVERSION) || MPICH_NUMVERSION >= 40100000
	CHECK(gathers_again_and_again),
#endif
	{0},
};
