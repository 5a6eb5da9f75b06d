/* A session that begins before MPI_Init and ends after MPI_Finalize. Where a
 * communicator is first used decides: test_shim_worlds.py sees by the collective. */
#include <mpi.h>
#include <stdio.h>

static int right = 1;

static MPI_Comm members_of(MPI_Session session)
{
	MPI_Group group;
	MPI_Comm made;

	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
	                           &made);
	MPI_Group_free(&group);
	return made;
}

static void reduce(MPI_Comm comm, int rank, int size)
{
	int sum = 0;

	MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 0, comm);
	right &= rank || sum == size * (size - 1) / 2;
}

static void allreduce(MPI_Comm comm, int rank, int size)
{
	int most = -1;

	MPI_Allreduce(&rank, &most, 1, MPI_INT, MPI_MAX, comm);
	right &= most == size - 1;
}

static void reduce_scatter_block(MPI_Comm comm, int size)
{
	int ones[16], sum = 0;

	for (int i = 0; i < 16; i++)
		ones[i] = 1;
	MPI_Reduce_scatter_block(ones, &sum, 1, MPI_INT, MPI_SUM, comm);
	right &= sum == size;
}

#if MPICH_NUMVERSION >= 40300000 && MPICH_NUMVERSION < 50000000
#define ANEW
/* After this MPI begins anew. Open MPI 5.0.11 and MPICH 4.0.2 can't, and of
 * MPICH 5.0.2 one run in thirteen hangs, without any library as well. */
static void whole_session(void)
{
	MPI_Session session;
	MPI_Comm comm;
	int rank, size;

	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	comm = members_of(session);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	reduce(comm, rank, size);
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
}
#endif

/* What MPI_Finalize calls first. */
static int at_the_end(MPI_Comm self, int key, void *size, void *extra)
{
	(void)self, (void)key, (void)extra;
	reduce_scatter_block(MPI_COMM_WORLD, *(int *)size);
	return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
	int key, own, found, rank, size, *kept = NULL;
	MPI_Session session;
	MPI_Comm early, inside, late;

#ifdef ANEW
	whole_session();
#endif
	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	early = members_of(session);
	MPI_Comm_rank(early, &rank);
	MPI_Comm_size(early, &size);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &own,
	                       NULL);
	MPI_Comm_set_attr(early, own, &size);
	reduce(early, rank, size);
	MPI_Comm_get_attr(early, own, &kept, &found);
	right &= found && kept == &size;
	MPI_Comm_dup(early, &inside);
	MPI_Comm_dup(early, &late);
	MPI_Init(&argc, &argv);
	reduce(early, rank, size);
	allreduce(inside, rank, size);
	allreduce(MPI_COMM_WORLD, rank, size);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, key, &size);
	MPI_Finalize();
	MPI_Barrier(inside);
	reduce_scatter_block(late, size);
	MPI_Comm_free(&early);
	MPI_Comm_free(&inside);
	MPI_Comm_free(&late);
	MPI_Session_finalize(&session);
	if (!rank)
		puts(right ? "right" : "wrong");
	return !right;
}
