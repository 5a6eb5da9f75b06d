/* Communicators of every origin, and what becomes of them. */
#include "checks.h"

/* Use one twice, before and after its shadow is there, and free it. */
static int works_and_goes(MPI_Comm made)
{
	int good = works(made) && works(made);

	MPI_Comm_free(&made);
	return good;
}

static int dup(MPI_Comm comm)
{
	MPI_Comm made;

	MPI_Comm_dup(comm, &made);
	return works_and_goes(made);
}

static int dup_of_a_dup_that_is_gone(MPI_Comm comm)
{
	MPI_Comm first, second;
	int good;

	MPI_Comm_dup(comm, &first);
	good = works(first);
	MPI_Comm_dup(first, &second);
	MPI_Comm_free(&first);
	return works_and_goes(second) && good;
}

static int idup(MPI_Comm comm)
{
	MPI_Request request;
	MPI_Comm made;

	MPI_Comm_idup(comm, &made, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return works_and_goes(made);
}

static int dup_with_info_that_is_disconnected(MPI_Comm comm)
{
	MPI_Info info;
	MPI_Comm made;
	int good;

	MPI_Info_create(&info);
	MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
	MPI_Comm_dup_with_info(comm, info, &made);
	MPI_Info_free(&info);
	good = works(made) && works(made);
	MPI_Comm_disconnect(&made);
	return good && made == MPI_COMM_NULL;
}

static int split(MPI_Comm comm, int color, int key)
{
	MPI_Comm made;

	MPI_Comm_split(comm, color, key, &made);
	return made == MPI_COMM_NULL ? color == MPI_UNDEFINED : works_and_goes(made);
}

static int split_backwards(MPI_Comm comm)
{
	return split(comm, 0, -rank_in(comm));
}

static int split_in_halves(MPI_Comm comm)
{
	return split(comm, rank_in(comm) % 2, rank_in(comm));
}

static int split_to_single_ranks(MPI_Comm comm)
{
	return split(comm, rank_in(comm), 0);
}

static int split_without_the_first(MPI_Comm comm)
{
	return split(comm, rank_in(comm) ? 0 : MPI_UNDEFINED, rank_in(comm));
}

static int split_by_shared_memory(MPI_Comm comm)
{
	MPI_Comm made;

	MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
	return works_and_goes(made);
}

static int from_a_group_backwards(MPI_Comm comm)
{
	int ranks[MOST_RANKS], n = size_of(comm);
	MPI_Group all, turned;
	MPI_Comm made, other;

	for (int i = 0; i < n; i++)
		ranks[i] = n - 1 - i;
	MPI_Comm_group(comm, &all);
	MPI_Group_incl(all, n, ranks, &turned);
	MPI_Comm_create(comm, turned, &made);
	MPI_Comm_create_group(comm, turned, 7, &other);
	MPI_Group_free(&all);
	MPI_Group_free(&turned);
	return works_and_goes(made) & works_and_goes(other);
}

static int cartesian(MPI_Comm comm)
{
	int n = size_of(comm), around = 1, left, right, got = -1;
	int rank = rank_in(comm);
	MPI_Comm made;

	MPI_Cart_create(comm, 1, &n, &around, 0, &made);
	MPI_Cart_shift(made, 0, 1, &left, &right);
	MPI_Sendrecv(&rank, 1, MPI_INT, right, 0, &got, 1, MPI_INT, left, 0, made,
	             MPI_STATUS_IGNORE);
	return works_and_goes(made) && got == (rank + n - 1) % n;
}

/* A neighbourhood's order of edges is what a result hangs on. */
static int graph(MPI_Comm comm)
{
	int n = size_of(comm), rank = rank_in(comm), got[2] = {-1, -1};
	int from[] = {(rank + 1) % n, (rank + n - 1) % n}, weights[] = {1, 1};
	MPI_Comm made;

	MPI_Dist_graph_create_adjacent(comm, 2, from, weights, 2, from, weights,
	                               MPI_INFO_NULL, 0, &made);
	MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, made);
	return works_and_goes(made) && got[0] == from[0] && got[1] == from[1];
}

static int world_and_self(MPI_Comm comm)
{
	return works(comm) && works(MPI_COMM_WORLD) && works(MPI_COMM_SELF);
}

static int many_one_after_the_other(MPI_Comm comm)
{
	int good = 1;

	for (int i = 0; i < 10; i++)
		good &= dup(comm);
	return good;
}

static int many_at_a_time(MPI_Comm comm)
{
	MPI_Comm made[12];
	int good = 1;

	for (int i = 0; i < 12; i++)
		MPI_Comm_dup(comm, &made[i]);
	for (int i = 0; i < 24; i++)
		good &= works(made[i < 12 ? i : 23 - i]);
	for (int i = 0; i < 12; i++)
		MPI_Comm_free(&made[5 * i % 12]);
	return good;
}

static int intercommunicator(MPI_Comm comm)
{
	int rank = rank_in(comm), n = size_of(comm), side = rank % 2, good = 1;
	int64_t mine = ramp(rank, 0), sum = 0, expected = 0;
	MPI_Comm local, inter, merged;

	if (n < 2)
		return split(comm, 0, 0);
	MPI_Comm_split(comm, side, rank, &local);
	MPI_Intercomm_create(local, 0, comm, 1 - side, 5, &inter);
	MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, inter);
	for (int other = 1 - side; other < n; other += 2)
		expected += ramp(other, 0);
	good &= sum == expected;
	mine = ramp(side ? 99 : 42, 1);
	MPI_Bcast(&mine, 1, MPI_INT64_T,
	          side ? 0 : rank_in(local) ? MPI_PROC_NULL : MPI_ROOT, inter);
	good &= mine == ramp(42, 1);
	MPI_Barrier(inter);
	MPI_Intercomm_merge(inter, side, &merged);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&local);
	return works_and_goes(merged) && good;
}

static int copies, deletions;

static int on_copy(MPI_Comm comm, int key, void *extra, void *in, void *out,
                   int *flag)
{
	(void)comm, (void)key, (void)extra;
	copies++;
	*(void **)out = in;
	*flag = 1;
	return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)value, (void)extra;
	deletions++;
	return MPI_SUCCESS;
}

/* The application's own attributes, beside the one that the shim keeps. */
static int attributes(MPI_Comm comm)
{
	int key, found, good, value = 42, *kept = NULL;
	MPI_Comm one, two;

	copies = deletions = 0;
	MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL);
	MPI_Comm_dup(comm, &one);
	MPI_Comm_set_attr(one, key, &value);
	good = works(one);
	MPI_Comm_dup(one, &two);
	MPI_Comm_get_attr(two, key, &kept, &found);
	good &= found && kept == &value && copies == 1 && deletions == 0;
	MPI_Comm_free(&one);
	good &= works_and_goes(two) && deletions == 2;
	MPI_Comm_free_keyval(&key);
	return good;
}

const struct check communicators[] = {
	CHECK(dup), CHECK(dup_of_a_dup_that_is_gone), CHECK(idup),
	CHECK(dup_with_info_that_is_disconnected),
	CHECK(split_backwards), CHECK(split_in_halves),
	CHECK(split_to_single_ranks), CHECK(split_without_the_first),
	CHECK(split_by_shared_memory), CHECK(from_a_group_backwards),
	CHECK(cartesian), CHECK(graph), CHECK(world_and_self),
	CHECK(many_one_after_the_other), CHECK(many_at_a_time),
	CHECK(intercommunicator), CHECK(attributes), {0},
};
