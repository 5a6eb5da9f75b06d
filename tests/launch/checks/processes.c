/* Processes that a rank starts, or gets to know by their port. */
#include "checks.h"

#include <sys/wait.h>
#include <unistd.h>

/* Which calls no MPI, but has the library and a copy of all that it knows. */
static int child_process(MPI_Comm comm)
{
	MPI_Comm made;
	int good, status = -1;
	pid_t child;

	MPI_Comm_dup(comm, &made);
	good = works(made);
	child = fork();
	if (child == 0)
		_exit(7);
	good &= waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
	good &= works(made);
	MPI_Comm_free(&made);
	return good;
}

/* MPICH's wheels have no network that can open a port. */
#ifdef OMPI_MAJOR_VERSION
static int connected(MPI_Comm comm)
{
	char port[MPI_MAX_PORT_NAME] = "";
	int rank = rank_in(comm), side = rank % 2, good;
	MPI_Comm local, inter, merged;

	if (size_of(comm) < 2)
		return works(comm);
	MPI_Comm_split(comm, side, rank, &local);
	if (rank == 0)
		MPI_Open_port(MPI_INFO_NULL, port);
	MPI_Bcast(port, sizeof port, MPI_CHAR, 0, comm);
	(side ? MPI_Comm_connect : MPI_Comm_accept)(port, MPI_INFO_NULL, 0, local,
	                                            &inter);
	MPI_Intercomm_merge(inter, side, &merged);
	good = works(merged);
	MPI_Comm_free(&merged);
	MPI_Comm_disconnect(&inter);
	MPI_Comm_free(&local);
	if (rank == 0)
		MPI_Close_port(port);
	return good;
}
#endif

const struct check processes[] = {
	CHECK(child_process),
#ifdef OMPI_MAJOR_VERSION
	CHECK(connected),
#endif
	{0},
};
