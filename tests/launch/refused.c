/* Preloaded behind the library by test_shim_jobs.py: on the ranks that have REFUSED,
 * MPI_Comm_split fails although it has succeeded elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#define MPI_ERR_OTHER 16

int PMPI_Comm_split(void *comm, int color, int key, void *made)
{
	int (*split)(void *, int, int, void *) = dlsym(RTLD_NEXT, "PMPI_Comm_split");
	int code = split(comm, color, key, made);

	return getenv("REFUSED") ? MPI_ERR_OTHER : code;
}
