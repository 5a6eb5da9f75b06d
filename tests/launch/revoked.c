/* Rank 0 revokes what the others wait on, as programs do that outlive a failure. */
#include <mpi.h>

#include <mpi-ext.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, size, one = 1, sum = 0, class = -1, right;
	MPI_Comm comm, rest;

	MPI_Init(&argc, &argv);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
	if (rank)
		MPI_Error_class(MPI_Barrier(comm), &class);
	else
		MPIX_Comm_revoke(comm);
	right = sum == size && (!rank || class == MPIX_ERR_REVOKED);
	MPIX_Comm_shrink(comm, &rest);
	MPI_Comm_free(&comm);
	MPI_Allreduce(&right, &sum, 1, MPI_INT, MPI_SUM, rest);
	MPI_Comm_free(&rest);
	if (!rank)
		puts(sum == size ? "right" : "wrong");
	return MPI_Finalize();
}
