/* What ranks send, what they must receive, and the calls in between. */
#include "bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD 251 /* of the numbers that ranks send; see vectors.py */
#define SHIFT 17

/* Let the period that begins with `first` repeat. */
static void fill(float *vector, int count, int first)
{
	int i;

	for (i = 0; i < count; i++)
		vector[i] = (float)((first + i) % PERIOD);
}

struct vectors make_vectors(double size)
{
	struct vectors vectors;
	int count, block, place;

	if (size / sizeof(float) > INT_MAX)
		die("more than %d elements do not fit into a call", INT_MAX);
	count = size < sizeof(float) ? 1 : (int)(size / sizeof(float));
	block = count / ranks;
	vectors.sent = spec.op == ALLGATHER ? block : count;
	vectors.received = spec.op == REDUCE_SCATTER ? block : count;
	vectors.send = allocate(vectors.sent + 1, sizeof(float));
	vectors.recv = allocate(vectors.received + 1, sizeof(float));
	if (spec.op == ALLTOALL)
		for (place = 0; place < ranks; place++)
			fill(vectors.send + (size_t)place * block, block,
			     (rank + SHIFT * place) % PERIOD);
	else
		fill(vectors.send, vectors.sent, rank % PERIOD);
	return vectors;
}

void free_vectors(struct vectors *vectors)
{
	free(vectors->send);
	free(vectors->recv);
}

/* Put into what is received what the call expects there; not timed. */
void prepare(const struct order *order, struct vectors *vectors)
{
	if (spec.op == BCAST && order->place == 0)
		memcpy(vectors->recv, vectors->send, vectors->sent * sizeof(float));
}

/* Each rank gets a block as long as its own. */
static int reduce_scatter(MPI_Comm comm, struct vectors *vectors)
{
	int place, code, *counts = allocate(ranks, sizeof *counts);

	for (place = 0; place < ranks; place++)
		counts[place] = vectors->received;
	code = MPI_Reduce_scatter(vectors->send, vectors->recv, counts, MPI_FLOAT,
				  MPI_SUM, comm);
	free(counts);
	return code;
}

/* Run the collective once; the root is at place 0. */
int call(const struct order *order, struct vectors *vectors)
{
	float *send = vectors->send, *recv = vectors->recv;
	MPI_Comm comm = order->comm;

	switch (spec.op) {
	case ALLGATHER:
		return MPI_Allgather(send, vectors->sent, MPI_FLOAT, recv,
				     vectors->sent, MPI_FLOAT, comm);
	case ALLREDUCE:
		return MPI_Allreduce(send, recv, vectors->sent, MPI_FLOAT, MPI_SUM,
				     comm);
	case ALLTOALL:
		return MPI_Alltoall(send, vectors->sent / ranks, MPI_FLOAT, recv,
				    vectors->sent / ranks, MPI_FLOAT, comm);
	case BCAST:
		return MPI_Bcast(recv, vectors->received, MPI_FLOAT, 0, comm);
	case REDUCE:
		return MPI_Reduce(send, recv, vectors->sent, MPI_FLOAT, MPI_SUM, 0,
				  comm);
	default:
		return reduce_scatter(comm, vectors);
	}
}

/* How many elements differ from a period, of which the first is `first`. */
static long long differences(const float *found, int count, const float *period,
			     int first)
{
	long long wrong = 0;
	int i;

	for (i = 0; i < count; i++)
		wrong += found[i] != period[((size_t)first + i) % PERIOD];
	return wrong;
}

long long count_wrong(const struct order *order, const struct vectors *vectors)
{
	int shift = spec.op == ALLTOALL ? SHIFT * order->place : 0;
	int block = vectors->received / ranks, place, i;
	float period[PERIOD], total[PERIOD] = {0};
	long long wrong = 0;

	for (i = 0; i < PERIOD; i++)
		period[i] = (float)i;
	for (place = 0; place < ranks; place++)
		for (i = 0; i < PERIOD; i++)
			total[i] += (float)((order->members[place] + i) % PERIOD);
	switch (spec.op) {
	case REDUCE:
		if (order->place)
			return 0;
		/* fall through */
	case ALLREDUCE:
		return differences(vectors->recv, vectors->received, total, 0);
	case REDUCE_SCATTER:
		return differences(vectors->recv, vectors->received, total,
				   (int)((long long)order->place *
					 vectors->received % PERIOD));
	case BCAST:
		return differences(vectors->recv, vectors->received, period,
				   order->members[0] % PERIOD);
	default:
		for (place = 0; place < ranks; place++)
			wrong += differences(
				vectors->recv + (size_t)place * block, block, period,
				(order->members[place] + shift) % PERIOD);
		return wrong;
	}
}
