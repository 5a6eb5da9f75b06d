/* Time MPI's collectives in several rank orders: probes/timing.py in C. */
#ifndef CLOUDCOLL_BENCH_H
#define CLOUDCOLL_BENCH_H

#include <mpi.h>
#include <stddef.h>

enum operation {
	ALLGATHER,
	ALLREDUCE,
	ALLTOALL,
	BCAST,
	REDUCE,
	REDUCE_SCATTER,
	OPERATIONS
};

extern const char *const operation_names[OPERATIONS];

/* Characters as they stand between quotes in the request: escaped. */
struct text {
	const char *start;
	int length;
};

/* An array of numbers. */
struct list {
	double *values;
	int count;
};

/* A variable of the library, and what it is set to. */
struct setting {
	struct text name;
	int value;
};

/* All ranks in one order, and what the library is told for it. */
struct order {
	struct text name;
	struct setting *settings;
	int setting_count;
	struct list keys; /* of each world rank */
	MPI_Comm comm;
	int *members; /* world rank at each place */
	int place;    /* this rank's */
	double *times; /* of one size, by repeat */
};

/* What timing.py says of each field. */
struct request {
	enum operation op;
	struct order *orders;
	int count;
	struct list sizes;
	struct text reference;
	double repeats, least, seconds, min_seconds, narrow;
};

/* What one rank sends and receives at one size. */
struct vectors {
	float *send, *recv;
	int sent, received; /* elements */
};

extern struct request spec;
extern int rank, ranks; /* of the world */

/* End the job with a line on stderr. */
void die(const char *format, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
void *allocate(size_t count, size_t size);
int same_text(struct text one, struct text other);
void print_quoted(const char *text);
int share(int value);

/* request.c */
void read_request(struct request *request, const char *line);

/* vectors.c */
struct vectors make_vectors(double size);
void free_vectors(struct vectors *vectors);
void prepare(const struct order *order, struct vectors *vectors);
int call(const struct order *order, struct vectors *vectors);
long long count_wrong(const struct order *order, const struct vectors *vectors);

/* settings.c */
void find_settings(void);
const struct text *apply_settings(const struct order *order);
int print_settings(int count, char **names);

/* orders.c */
void start_orders(void);

/* turns.c */
void take_turns(double until);

#endif
