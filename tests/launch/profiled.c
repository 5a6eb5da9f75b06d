/* What test_shim_profile.py knows the calls of. */
#include <mpi.h>

#define MOST 4096

static char in[MOST], other[MOST], out[8 * MOST];

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

/* Counted once, however often it is started. */
static void persistent(MPI_Comm world)
{
	MPI_Request all[4];

	INIT(Allreduce)(in, out, 3, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &all[0]);
	INIT(Bcast)(other, 5, MPI_CHAR, 1, world, MPI_INFO_NULL, &all[1]);
	INIT(Reduce)(in, out + MOST, 9, MPI_INT, MPI_MAX, 2, world, MPI_INFO_NULL,
	             &all[2]);
	INIT(Barrier)(world, MPI_INFO_NULL, &all[3]);
	for (int i = 0; i < 3; i++) {
		MPI_Startall(4, all);
		MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
	}
	for (int i = 0; i < 4; i++)
		MPI_Request_free(&all[i]);
}

static void in_halves(MPI_Comm world, int rank)
{
	MPI_Comm half, twin;
	MPI_Request request;

	MPI_Comm_split(world, rank % 2, rank, &half);
	for (int i = 0; i < 3; i++)
		MPI_Bcast(in, 100, MPI_DOUBLE, 0, half);
	MPI_Comm_dup(half, &twin); /* the same ranks: the same group */
	MPI_Ibcast(in, 100, MPI_DOUBLE, 0, twin, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_free(&twin);
	MPI_Allgather(in, 10, MPI_INT, out, 10, MPI_INT, half);
	MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
	int rank, size, counts[8], places[8];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < 5; i++)
		MPI_Allreduce(in, out, 250, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	in_halves(MPI_COMM_WORLD, rank);
	MPI_Reduce(in, out, 7, MPI_SHORT, MPI_MAX, size - 1, MPI_COMM_WORLD);
	MPI_Alltoall(in, 10, MPI_INT, out, 10, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++) {
		counts[i] = i + 1;
		places[i] = 10 * i;
	}
	MPI_Allgatherv(in, rank + 1, MPI_CHAR, out, counts, places, MPI_CHAR,
	               MPI_COMM_WORLD);
	MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce_scatter_block(in, out, 64, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	persistent(MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
