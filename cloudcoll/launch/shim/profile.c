/* What a job calls: per group of ranks, collective and size class a few sums.
 *
 * Communicators with the same members are one group, so that a program which
 * makes and frees them does not fill the table. */
#include "shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SERIALIZED 2 /* MPI_THREAD_SERIALIZED; in MPI 5's ABI all levels are more */
#define MOST_GROUPS 1024 /* of a process: 10 MiB of counters */

int profiling;

/* Stands for communicators that are not counted: between groups, with spawned
 * processes, or beyond the table. */
static struct group outside;

static struct group *groups;
static int group_count, keyval, has_keyval;
static int at_a_time = 1; /* threads may count at a time */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

/* The communicator that this thread counted last; see shadow.c. */
static atomic_ulong generation = 1;
static __thread struct {
	word comm;
	unsigned long generation;
	struct group *group;
} last __attribute__((tls_model("initial-exec")));

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A duplicate has the same members. */
static int copy_group(word comm, int key, void *extra, void *in, void **out,
                      int *flag)
{
	(void)comm, (void)key, (void)extra;
	*out = in;
	*flag = 1;
	return 0;
}

static int forget(word comm, int key, void *group, void *extra)
{
	(void)comm, (void)key, (void)group, (void)extra;
	atomic_fetch_add(&generation, 1);
	return 0;
}

static void prepare(void)
{
	int level = 0;

	at_a_time = mpi.Query_thread((word)&level) || level > SERIALIZED;
	has_keyval = !mpi.Comm_create_keyval((word)copy_group, (word)forget,
	                                     (word)&keyval, 0);
}

/* Return the group with these members, which it takes over, or makes it. */
static struct group *enlisted(int *members, int size)
{
	struct group *group;

	pthread_mutex_lock(&table);
	for (group = groups; group; group = group->next)
		if (group->size == size &&
		    !memcmp(group->members, members, sizeof(int) * (size_t)size))
			break;
	if (!group && group_count < MOST_GROUPS &&
	    (group = calloc(1, sizeof *group))) {
		group->next = groups;
		group->size = size;
		group->members = members;
		members = NULL;
		groups = group;
		group_count++;
	}
	pthread_mutex_unlock(&table);
	free(members);
	return group ? group : &outside;
}

static struct group *group_of(word comm)
{
	int *members, inter = 1, size = 0;

	mpi.Comm_test_inter(comm, (word)&inter);
	if (inter || mpi.Comm_size(comm, (word)&size))
		return &outside;
	members = malloc(sizeof(int) * (size_t)size);
	if (!members || !world_ranks(comm, size, members)) {
		free(members);
		return &outside;
	}
	return enlisted(members, size);
}

static struct group *look_up(word comm)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned long now = atomic_load(&generation);
	struct group *group;
	int flag = 0;

	if (last.comm == comm && last.generation == now)
		return last.group;
	pthread_once(&once, prepare);
	if (!has_keyval ||
	    mpi.Comm_get_attr(comm, keyval, (word)&group, (word)&flag))
		return &outside;
	if (!flag) {
		group = group_of(comm);
		mpi.Comm_set_attr(comm, keyval, (word)group);
	}
	last.comm = comm;
	last.generation = now;
	last.group = group;
	return group;
}

int64_t payload(int64_t count, word type)
{
	int size = 0;

	load_library();
	if (count < 0 || same(type, mpi.type_null) ||
	    mpi.Type_size(type, (word)&size) || size < 0)
		return 0;
	return count * size;
}

int64_t total(word counts, word comm, int large)
{
	int64_t sum = 0;
	int inter = 1;

	mpi.Comm_test_inter(comm, (word)&inter);
	if (inter) /* not counted, and who has how many counts there depends */
		return 0;
	for (int i = members_of(comm); counts && i-- > 0;)
		sum += large ? ((int64_t *)counts)[i] : ((int *)counts)[i];
	return sum;
}

/* Locked, the three of a call would take a fifth of all that counting does. */
static void add(_Atomic int64_t *sum, int64_t value)
{
	if (at_a_time)
		atomic_fetch_add_explicit(sum, value, memory_order_relaxed);
	else
		atomic_store_explicit(
			sum, atomic_load_explicit(sum, memory_order_relaxed) + value,
			memory_order_relaxed);
}

void count_call(word comm, enum collective collective, int64_t bytes,
                int64_t began)
{
	int64_t took = now_ns() - began;
	struct counter *counter;
	struct group *group = look_up(comm);

	if (group == &outside)
		return;
	counter = &group->counters[collective][bytes > 0 ?
	                           64 - __builtin_clzll((uint64_t)bytes) : 0];
	add(&counter->calls, 1);
	add(&counter->bytes, bytes);
	add(&counter->ns, took);
}

const struct group *counted_groups(void)
{
	return groups;
}
