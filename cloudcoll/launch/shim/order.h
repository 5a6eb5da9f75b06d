/* The order of hosts that was asked for, and words; for MPI's shim and NCCL's. */
#ifndef CLOUDCOLL_ORDER_H
#define CLOUDCOLL_ORDER_H

struct order {
	int color; /* all hosts have the same one if they read the same order; 0:
	            * this process has none */
	int place; /* of this host */
	int unwanted; /* nothing is to be reordered */
	int exact; /* floating-point results must not depend on the order */
	char reason[256]; /* why there is none */
};

/* Read it at the first call, from the environment. Never fails. */
const struct order *own_order(void);

/* Whether CLOUDCOLL_DEBUG asks for words. */
int debugging(void);

/* Print one line to stderr, with who says it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
