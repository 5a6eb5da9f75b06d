/* The orders of hosts that were asked for, and words; for MPI's shim and NCCL's. */
#ifndef CLOUDCOLL_ORDER_H
#define CLOUDCOLL_ORDER_H

#include <stdint.h>

enum collective {
	ALLREDUCE, REDUCE, BCAST, BARRIER, ALLGATHER, REDUCE_SCATTER, ALLTOALL,
	COLLECTIVES
};

#define COLLECTIVE_NAMES { \
	"allreduce", "reduce", "bcast", "barrier", "allgather", "reduce_scatter", \
	"alltoall" \
}

#define MOST_ORDERS 8 /* that differ */

struct order {
	int color; /* all hosts have the same one if they read the same orders; 0:
	            * this process has none */
	int place[MOST_ORDERS]; /* of this host in each; the first is for the rest */
	int rules; /* how many collectives and sizes have an order of their own */
	int unwanted; /* nothing is to be reordered */
	int exact; /* floating-point results must not depend on the order */
	char reason[256]; /* why there is none */
};

/* Read them at the first call, from the environment. Never fails. */
const struct order *own_order(void);

/* Which of the orders a call has. Bytes are those of the whole vector, which
 * all ranks have to agree on. */
int order_for(enum collective collective, int64_t bytes);

/* FNV-1a of a text and its end, from where an earlier one ended: whoever has
 * other texts, or the same in another order, differs. */
uint32_t mixed_text(uint32_t hash, const char *text);

/* Whether CLOUDCOLL_DEBUG asks for words. */
int debugging(void);

/* Print one line to stderr, with who says it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
