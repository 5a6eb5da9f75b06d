/* Orders of first calls that the standard allows, drawn at random.
 *
 * All ranks know one list of collectives over communicators that overlap, and
 * make those of their own in its order, but for what the standard leaves open: a
 * nonblocking one may start earlier, up to the one before it on its
 * communicator; and calls on other communicators may come from other threads.
 */
#include "checks.h"

#include <pthread.h>
#include <stdlib.h>

#define COMMUNICATORS 5
#define CALLS 24
#define DRAWS 6

struct call {
	int comm, kind; /* ALLREDUCE ... */
	int64_t in, out;
	MPI_Request request; /* of a nonblocking one; it ends WAIT calls later */
};

enum { ALLREDUCE, BCAST, BARRIER, IALLREDUCE, IBARRIER, KINDS };

#define WAIT 6

static unsigned drawn(unsigned *seed, unsigned below)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 16) % below;
}

static void begin(struct call *call, MPI_Comm comm)
{
	call->in = ramp(rank_in(comm), call->comm);
	call->request = MPI_REQUEST_NULL;
	if (call->kind == IALLREDUCE)
		MPI_Iallreduce(&call->in, &call->out, 1, MPI_INT64_T, MPI_SUM, comm,
		               &call->request);
	else if (call->kind == IBARRIER)
		MPI_Ibarrier(comm, &call->request);
	else if (call->kind == ALLREDUCE)
		MPI_Allreduce(&call->in, &call->out, 1, MPI_INT64_T, MPI_SUM, comm);
	else if (call->kind == BCAST)
		MPI_Bcast(&call->in, 1, MPI_INT64_T, size_of(comm) - 1, comm);
	else
		MPI_Barrier(comm);
}

static int end(struct call *call, MPI_Comm comm)
{
	int n = size_of(comm);

	MPI_Wait(&call->request, MPI_STATUS_IGNORE);
	if (call->kind == BCAST)
		return call->in == ramp(n - 1, call->comm);
	if (call->kind == ALLREDUCE || call->kind == IALLREDUCE)
		return call->out == ramps(n, call->comm);
	return 1;
}

/* Where this rank makes each of its calls: starts move forward at random. */
static int own_order(const struct call *calls, const MPI_Comm *comms, int *order,
                     unsigned seed)
{
	int count = 0;

	for (int i = 0; i < CALLS; i++) {
		int at = count, ahead = (int)drawn(&seed, CALLS);

		if (comms[calls[i].comm] == MPI_COMM_NULL)
			continue;
		if (calls[i].kind < IALLREDUCE)
			ahead = 0;
		for (; at > 0 && ahead-- > 0; at--) {
			if (calls[order[at - 1]].comm == calls[i].comm)
				break;
			order[at] = order[at - 1];
		}
		order[at] = i;
		count++;
	}
	return count;
}

/* A nonblocking call is over before the call WAIT places after it in the list. */
static int run_in_order(struct call *calls, const MPI_Comm *comms, unsigned seed)
{
	int order[CALLS], begun[CALLS] = {0}, over[CALLS] = {0}, good = 1;
	int count = own_order(calls, comms, order, seed);

	for (int k = 0; k <= count; k++) {
		int now = k < count ? order[k] : CALLS + WAIT;

		if (k < count && calls[now].kind >= IALLREDUCE)
			now = 0; /* a start waits for nothing */
		for (int i = 0; i < CALLS && i + WAIT <= now; i++)
			if (begun[i] && !over[i]) {
				good &= end(&calls[i], comms[calls[i].comm]);
				over[i] = 1;
			}
		if (k < count) {
			begin(&calls[order[k]], comms[calls[order[k]].comm]);
			begun[order[k]] = 1;
		}
	}
	return good;
}

static void draw_calls(struct call *calls, unsigned *seed)
{
	for (int i = 0; i < CALLS; i++) {
		calls[i].comm = (int)drawn(seed, COMMUNICATORS);
		calls[i].kind = (int)drawn(seed, KINDS);
	}
}

/* Communicators of members that are drawn; each has at least one. */
static void make(MPI_Comm comm, MPI_Comm *made, unsigned *seed)
{
	for (int c = 0; c < COMMUNICATORS; c++) {
		unsigned members = 1 + drawn(seed, (1u << size_of(comm)) - 1);
		int inside = members >> rank_in(comm) & 1;

		MPI_Comm_split(comm, inside ? 0 : MPI_UNDEFINED, 0, &made[c]);
	}
}

static void unmake(MPI_Comm *made)
{
	for (int c = 0; c < COMMUNICATORS; c++)
		if (made[c] != MPI_COMM_NULL)
			MPI_Comm_free(&made[c]);
}

static int starts_in_drawn_orders(MPI_Comm comm)
{
	int good = 1;

	for (unsigned draw = 0; draw < DRAWS; draw++) {
		struct call calls[CALLS];
		MPI_Comm made[COMMUNICATORS];
		unsigned seed = draw;

		make(comm, made, &seed);
		draw_calls(calls, &seed);
		good &= run_in_order(calls, made,
		                     seed + 7919u * (unsigned)rank_in(comm));
		unmake(made);
	}
	return good;
}

struct thread {
	pthread_t id;
	MPI_Comm comm;
	struct call *calls;
	int number, good;
};

static void *run_thread(void *context)
{
	struct thread *own = context;

	own->good = 1;
	for (int i = 0; i < CALLS; i++)
		if (own->calls[i].comm == own->number) {
			begin(&own->calls[i], own->comm);
			own->good &= end(&own->calls[i], own->comm);
		}
	return NULL;
}

/* A thread for each communicator, as fast as it can. */
static int threads_in_any_order(MPI_Comm comm)
{
	int good = 1, level;

	MPI_Query_thread(&level);
	if (level < MPI_THREAD_MULTIPLE)
		return 0;
	for (unsigned draw = 0; draw < DRAWS; draw++) {
		struct call calls[CALLS];
		struct thread threads[COMMUNICATORS];
		MPI_Comm made[COMMUNICATORS];
		unsigned seed = 1000 + draw;

		make(comm, made, &seed);
		draw_calls(calls, &seed);
		for (int c = 0; c < COMMUNICATORS; c++) {
			threads[c] = (struct thread){.comm = made[c], .calls = calls,
			                             .number = c, .good = 1};
			if (made[c] != MPI_COMM_NULL)
				pthread_create(&threads[c].id, NULL, run_thread,
				               &threads[c]);
		}
		for (int c = 0; c < COMMUNICATORS; c++)
			if (made[c] != MPI_COMM_NULL) {
				pthread_join(threads[c].id, NULL);
				good &= threads[c].good;
			}
		unmake(made);
	}
	return good;
}

const struct check interleavings[] = {
	CHECK(starts_in_drawn_orders), CHECK(threads_in_any_order), {0},
};
