/* Preloaded: rank 1 gets a sum of floats with its second element altered. */
#include <mpi.h>

static void spoil(void *result, MPI_Datatype type)
{
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 1 && type == MPI_FLOAT)
		((float *)result)[1] += 1;
}

int MPI_Allreduce(const void *mine, void *result, int count, MPI_Datatype type,
		  MPI_Op op, MPI_Comm comm)
{
	int code = PMPI_Allreduce(mine, result, count, type, op, comm);

	spoil(result, type);
	return code;
}

#if MPI_VERSION >= 4
int MPI_Allreduce_c(const void *mine, void *result, MPI_Count count,
		    MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	int code = PMPI_Allreduce_c(mine, result, count, type, op, comm);

	spoil(result, type);
	return code;
}
#endif
