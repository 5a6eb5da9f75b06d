/* What came to the library after 2.18. */
#include "standin.h"

/* The excluded ranks are the bits of the color; all who call know them. */
static result_t run_shrink(struct job *job)
{
	comm_t parent = job->parent;
	int wanted[MOST][2];

	for (int i = 0; i < parent->size; i++) {
		wanted[i][0] = job->color >> i & 1;
		wanted[i][1] = i;
	}
	parent->splits++;
	*job->slot = child_of(parent, (const int (*)[2])wanted, 0);
	return attach(*job->slot) ? SUCCESS : REMOTE_ERROR;
}

/* End what is under way, and let the communicator live. */
static void interrupt(comm_t comm)
{
	atomic_store(&comm->aborted, 1);
	drain(comm);
	atomic_store(&comm->aborted, 0);
}

EXPORT result_t ncclCommShrink(comm_t comm, int *without, int count, comm_t *child,
                               struct config *config, int flags)
{
	int excluded = 0;

	(void)config;
	for (int i = 0; i < count; i++)
		excluded |= 1 << without[i];
	if (flags & 1)
		interrupt(comm);
	*child = NULL;
	return launch((struct job){.run = run_shrink, .parent = comm, .slot = child,
	                           .color = excluded}, comm);
}

EXPORT result_t ncclCommRevoke(comm_t comm, int flags)
{
	interrupt(comm);
	return flags ? INVALID_ARGUMENT : SUCCESS;
}

EXPORT result_t ncclCommSuspend(comm_t comm, int flags)
{
	(void)flags;
	comm->suspended = 1;
	return SUCCESS;
}

EXPORT result_t ncclCommResume(comm_t comm)
{
	comm->suspended = 0;
	return SUCCESS;
}

EXPORT result_t ncclCommMemStats(comm_t comm, int which, uint64_t *bytes)
{
	*bytes = sizeof(struct segment) + sizeof *comm;
	return which == 3 ? SUCCESS : INVALID_ARGUMENT;
}
