/* A stand-in for NCCL without GPUs: the ABI of nccl.h, on host memory.
 *
 * Ranks are processes or threads; what they send each other goes through shared
 * memory. Operations run on streams of their own, after the call, as kernels
 * do; a group starts at its end; a graph keeps what a stream was given. What the
 * library forbids ends the process: see `broken`. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MOST 16     /* ranks */
#define CHUNK 4096  /* bytes that a channel holds */
#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT,
       INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };

typedef int result_t;
typedef struct { char bytes[128]; } unique_id;

struct config { /* the first fields of ncclConfig_t */
	size_t size;
	unsigned magic, version;
	int blocking;
};

struct channel {
	_Atomic uint32_t full;
	uint32_t bytes;
	char data[CHUNK];
};

enum plane { OPERATIONS, BOOTSTRAP, PLANES };

struct segment {
	_Atomic uint32_t attached, gone; /* one of them was aborted */
	struct channel channels[]; /* by plane, sender and receiver */
};

typedef struct communicator {
	char name[64];
	int rank, size, blocking;
	int members[MOST]; /* ranks in the communicator that was not split */
	int splits, suspended;
	_Atomic int aborted, state;
	_Atomic uint32_t issued, done; /* operations run in the order of calls */
	struct segment *segment;
} *comm_t;

/* ---- memory.c ------------------------------------------------------------ */

/* Say what the caller must not do, and end the process with code 99. */
_Noreturn void broken(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* Wait until a word is not `value` any more; return whether that came true
 * before `comm` was aborted. A deadline ends the process. */
int changed(_Atomic uint32_t *at, uint32_t value, comm_t comm);
void set(_Atomic uint32_t *at, uint32_t value);

/* Join the others of the same name; return whether all came. */
int attach(comm_t comm);
void detach(comm_t comm);

int send_to(comm_t comm, enum plane plane, int peer, const void *data, size_t bytes);
int receive(comm_t comm, enum plane plane, int peer, void *data, size_t bytes);

/* ---- operations.c -------------------------------------------------------- */

enum kind { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, SEND, RECV };

struct operation {
	enum kind kind;
	const void *in;
	void *out;
	size_t count;
	int type, op, root;
	comm_t comm;
	struct stream *stream;
	uint32_t ticket;
	struct operation *next;
};

/* How the application's own operation scales what it is given. */
struct made_op {
	comm_t comm;
	double scale;
};

/* Return one, which has to be of this communicator. */
struct made_op *made_op(int op, comm_t comm);

/* Do it, together with the other ranks. */
void perform(struct operation *operation);

/* Note it down for `standinTrace`. */
void trace(const struct operation *operation);

/* ---- streams.c ----------------------------------------------------------- */

/* Give the operations of one group to their streams. */
void enqueue(struct operation *operations);

/* Wait until everything that was given to it is done; end the process if that
 * never comes. */
void drain(comm_t comm);

/* Whether any stream keeps what it is given instead of running it. */
int capturing(void);

/* ---- groups.c ------------------------------------------------------------ */

struct job {
	result_t (*run)(struct job *);
	comm_t comm, parent, *slot;
	int color, key;
	struct job *next;
	pthread_t thread;
	result_t result;
};

/* Run a job, or keep it for the end of the group. `told` is the communicator
 * whose state tells how it goes where nothing waits. */
result_t launch(struct job job, comm_t told);
result_t issue(struct operation operation);

/* Leave the group, and forget what it was to begin. */
result_t ncclGroupSimulateEnd(void *info);
result_t ncclGroupStart(void);
result_t ncclGroupEnd(void);

/* ---- communicators.c ------------------------------------------------------ */

/* Make the child of those who have a color in common, ordered by key. */
comm_t child_of(comm_t parent, const int (*wanted)[2], int color);

#endif
