/* The parts of the shim for NCCL, and who owns what. docs/no-prefix.md is its contract.
 *
 * There is no nccl.h here: communicators and streams are pointers that nobody
 * looks into, enumerations travel as ints, and a configuration is passed on as
 * it is. The numbers below are those of nccl.h 2.18 to 2.30.
 */
#ifndef CLOUDCOLL_NCCL_SHIM_H
#define CLOUDCOLL_NCCL_SHIM_H

#include "../roll.h"

#include <stddef.h>
#include <stdint.h>

typedef struct communicator *comm_t;
typedef struct stream *stream_t;
typedef struct { char bytes[128]; } unique_id;
typedef int result_t;

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { NO_COLOR = -1 };                            /* NCCL_SPLIT_NOCOLOR */
enum { SHRINK_ABORT = 1 };                         /* NCCL_SHRINK_ABORT */
enum { MAX = 2, MIN = 3, BUILT_IN_OPS = 5 };       /* ncclRedOp_t */
enum { INTEGER_TYPES = 6 };                        /* ncclDataType_t */

/* ---- library.c: the NCCL that this process has loaded -------------------- */

/* Name and parameters of every function that the shim calls. */
#define FUNCTIONS(X) \
	X(AllReduce, (const void *, void *, size_t, int, int, comm_t, stream_t)) \
	X(Reduce, (const void *, void *, size_t, int, int, int, comm_t, stream_t)) \
	X(Broadcast, (const void *, void *, size_t, int, int, comm_t, stream_t)) \
	X(Bcast, (void *, size_t, int, int, comm_t, stream_t)) \
	X(GroupStart, (void)) X(GroupEnd, (void)) X(GroupSimulateEnd, (void *)) \
	X(CommInitRank, (comm_t *, int, unique_id, int)) \
	X(CommInitRankConfig, (comm_t *, int, unique_id, int, void *)) \
	X(CommInitRankScalable, (comm_t *, int, int, int, unique_id *, void *)) \
	X(CommSplit, (comm_t, int, int, comm_t *, void *)) \
	X(CommShrink, (comm_t, int *, int, comm_t *, void *, int)) \
	X(CommFinalize, (comm_t)) X(CommDestroy, (comm_t)) X(CommAbort, (comm_t)) \
	X(CommRevoke, (comm_t, int)) X(CommSuspend, (comm_t, int)) \
	X(CommResume, (comm_t)) X(CommGetAsyncError, (comm_t, result_t *)) \
	X(CommCount, (comm_t, int *)) X(CommUserRank, (comm_t, int *)) \
	X(CommMemStats, (comm_t, int, unsigned long *)) \
	X(CommWindowRegister, (comm_t, void *, size_t, void **, int))

struct library {
#define FIELD(name, parameters) result_t (*name) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
};

extern struct library nccl;

/* Fill `nccl` at the first call; later ones cost a comparison. `caller` is an
 * address in whoever called the shim. */
void load_nccl(const void *caller);

/* What a function returns that the library lacks. */
result_t missing(const char *name);

/* Call a function of the library from an exported one of the same name. */
#define REAL(name, ...) \
	(load_nccl(__builtin_return_address(0)), \
	 nccl.name ? nccl.name(__VA_ARGS__) : missing("nccl" #name))

/* ---- shadows.c: a communicator's twin in the order of the map ------------ */

enum state {
	BEGUN,   /* the library is still making the application's communicator */
	ASKING,  /* whether all its ranks have the shim */
	SPLIT,   /* the library is making the shadow */
	SETTLED, /* all ranks know whether there is one */
};

struct shadow {
	struct shadow *next, *queued;
	enum state state;
	uint64_t name; /* the same for all its ranks, and no other communicator's */
	int children;  /* that were made of it, which names them */
	struct caller *caller;
	int polled;    /* the application asks until it is ready: no call waits */
	unsigned long pass; /* which has seen it last */
	comm_t parent; /* which one it asks; `comm` if that has no parent */
	comm_t *slot;  /* where the application's communicator appears */
	comm_t comm;   /* of the application; NULL until it is known */
	comm_t twin;   /* the same ranks in the other order, or NULL */
	int size, rank;
	int asked;     /* a split was to make the twin */
	int left;      /* nothing runs on the twin any more */
	int *place;    /* rank -> rank in `twin`, where the roll has told it */
};

/* Keep a communicator that a call has begun to make. NULL without memory. */
struct shadow *remember(comm_t parent, uint64_t name, comm_t *slot);

/* FNV-1a, from where an earlier one ended. */
#define NAMELESS 14695981039346656037u
uint64_t mixed(uint64_t hash, const void *bytes, size_t count);

/* Return what belongs to a communicator, or NULL. */
struct shadow *find_shadow(comm_t comm);

/* Take one off the list, so that nobody finds it. */
void take_off(struct shadow *shadow);
struct shadow *take_shadow(comm_t comm);

void free_shadow(struct shadow *shadow);

/* Learn the application's communicator; return 0 if there is none: this rank
 * is not part of it. Then the shadow is gone, too. */
int appeared(struct shadow *shadow);

/* Go on with what the application asks for with this communicator, and return
 * what it should be told: IN_PROGRESS until everything is settled. */
result_t advance(comm_t comm);

/* ---- votes.c: whether a communicator gets one, on all ranks alike --------- */

/* Begin to ask whether all have the shim. */
result_t begin_asking(struct shadow *shadow);

/* Go on with it for at most so long; return whether there is an answer. */
int answered(struct shadow *shadow, int milliseconds);

/* Begin the split, if there is to be one. In a group or without blocking it ends
 * later. */
result_t begin_split(struct shadow *shadow);

/* See what the split has told. */
void settle(struct shadow *shadow);

/* ---- ranks.c: where the ranks of a communicator are ----------------------- */

/* Return rank -> rank in the order of places, "PLACE*COUNT,..."; NULL where these
 * are not the places of so many ranks, or there is no memory. */
int *ranks_by_place(const char *places, int size);

/* ---- groups.c: when a communicator can be split -------------------------- */

/* Take note of a communicator that a call, which returned `code`, has begun to
 * make of this unique id, and return what the call should return. */
result_t begun(result_t code, const unique_id *id, comm_t *slot);

/* The same of a communicator that all of the parent's ranks make, or some; those
 * of one part have the same color. */
result_t begun_child(result_t code, comm_t parent, int color, comm_t *slot);

#endif
