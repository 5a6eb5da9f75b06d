/* The shim's parts, and who owns what. docs/no-prefix.md is its contract.
 *
 * There is no mpi.h here, on purpose: a handle or an integer of any MPI travels
 * in one machine word as it came in, so that one binary serves all of them.
 * MPICH's handles are ints, and what stands in the upper half of their words
 * means nothing; Open MPI's and the standard ABI's are pointers.
 */
#ifndef CLOUDCOLL_SHIM_H
#define CLOUDCOLL_SHIM_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef intptr_t word;

#include "routines.h"

/* ---- library.c: the MPI library that this process has loaded ------------- */

typedef int (*fn1)(word);
typedef int (*fn2)(word, word);
typedef int (*fn3)(word, word, word);
typedef int (*fn4)(word, word, word, word);
typedef int (*fn5)(word, word, word, word, word);
typedef int (*fn8)(word, word, word, word, word, word, word, word);
typedef int (*fn9)(word, word, word, word, word, word, word, word, word);
typedef word (*fnf)(word);

/* Name and shape of every other function of the library that the shim calls. What
 * stands in OPTIONAL can be missing, as can large counts and persistent routines,
 * which came with MPI 4; handles of Fortran are functions in Open MPI only. */
#define REQUIRED(X) \
	X(Finalize, fn1) X(Finalized, fn1) \
	X(Comm_call_errhandler, fn2) X(Comm_create_keyval, fn4) \
	X(Comm_delete_attr, fn2) X(Comm_free, fn1) X(Comm_get_attr, fn4) \
	X(Comm_get_errhandler, fn2) X(Errhandler_free, fn1) \
	X(Comm_group, fn2) X(Comm_rank, fn2) X(Comm_set_attr, fn3) \
	X(Comm_set_errhandler, fn2) X(Comm_size, fn2) X(Comm_split, fn4) \
	X(Comm_test_inter, fn2) X(Group_free, fn1) \
	X(Group_translate_ranks, fn5) X(Initialized, fn1) \
	X(Op_commutative, fn2) X(Type_commit, fn1) X(Type_contiguous, fn3) \
	X(Type_free, fn1) X(Type_get_name, fn3) X(Type_size, fn2) \
	X(Init, fn2) X(Init_thread, fn4) X(Gather, fn8) X(Gatherv, fn9) \
	X(Comm_get_parent, fn1) X(Comm_remote_size, fn2) \
	X(Get_library_version, fn2) X(Type_get_extent, fn3) \
	X(Type_get_true_extent, fn3) X(Query_thread, fn1)
#define OPTIONAL(X) \
	X(Comm_c2f, fnf) X(Comm_f2c, fnf) X(Op_f2c, fnf) X(Type_f2c, fnf) \
	X(Session_init, fn3) X(Session_finalize, fn1) X(Comm_revoke, fn1)

struct library {
#define FIELD(name, shape) shape name;
	REQUIRED(FIELD) OPTIONAL(FIELD)
#undef FIELD
#define FIELDS(Name, name, NAME, counter, form, caller, place, size, large, bound, \
               ...) \
	int (*Name)(WORDS(__VA_ARGS__)); \
	IF_##large(int (*Name##_c)(WORDS(__VA_ARGS__));)
	ROUTINES(FIELDS)
#undef FIELDS
	const char *missing; /* a required function; then nothing is done */
	int narrow;          /* handles are ints */
	int fortran;         /* Fortran's entry points do not come through C's */
	word comm_null, comm_world, op_null, band, errors_return, byte, type_null;
	word in_place;
	const char *file;
};

extern struct library mpi;

/* Fill `mpi` at the first call; later ones cost a comparison. */
void load_library(void);

/* Return a function that some loaded library defines, not the shim; or NULL. */
void *find_function(const char *name);

/* The same of a variable. */
void *find_variable(const char *name);

#define ERR_COUNT 2 /* MPI_ERR_COUNT of all families */

/* A large count for a library that has none. That an application finds the
 * name here may be why it calls it, so small counts have to work. */
#define WITH_COUNT(name, count, comm, ...) \
	(mpi.name##_c ? mpi.name##_c(__VA_ARGS__) : \
	 (count) <= INT_MAX ? IF_KNOWN(name, comm, __VA_ARGS__) : \
	 told(comm, 0, ERR_COUNT))

#define ERR_UNSUPPORTED 52 /* MPI_ERR_UNSUPPORTED_OPERATION of Open MPI */

/* The same of what a library can be built without. */
#define IF_KNOWN(name, comm, ...) \
	(mpi.name ? mpi.name(__VA_ARGS__) : told(comm, 0, ERR_UNSUPPORTED))

/* Whether two handles are the same one. */
static inline int same(word a, word b)
{
	return mpi.narrow ? (int)a == (int)b : a == b;
}

/* ---- order.c: the orders of hosts that were asked for -------------------- */

#include "order.h"

/* Which of the orders a call has. */
#define ORDER(collective, bytes) \
	(own_order()->rules ? order_for(collective, bytes) : 0)

/* ---- shadow.c: a communicator's twin in that order ----------------------- */

struct shadow {
	word comm;
	int fortran; /* its handle there, where these are not the same as C's */
	int size;
	int *place;      /* rank -> rank in `comm` */
	int *rank;       /* and back */
	int64_t *blocks; /* room for a count and a displacement per rank */
	char *room;      /* ROOM bytes for a vector */
};

#define ROOM (16 << 20)

enum creation { IF_THERE, CREATE };

/* Return a communicator's shadow in one of the orders, or NULL: then its
 * operations stay as they are, on all ranks. With CREATE it is made at the first
 * call, which all ranks of the communicator have to make. Fills `mpi`. */
const struct shadow *shadow_of(word comm, enum creation creation, int order);

/* Return the shadow, if there is one, and translate an operation's root; or NULL
 * where the root is no rank. */
const struct shadow *rooted(const struct shadow *shadow, word *root);

/* Pass on the error of an operation that ran on `on` as one of `comm`. */
int told(word comm, word on, int code);

/* The last moment for MPI calls. */
void close_shadows(void);

/* MPI was over and begins anew: what had been made of it is gone. */
void renew_shadows(void);

/* ---- vote.c: making one, all ranks of a communicator together ------------ */

/* Stands for a shadow in the order given. */
extern struct shadow unmoved;

/* Return a new shadow, or NULL on all ranks: if any has no room, say. */
struct shadow *make_shadow(word comm, int order, int has_room);

/* The last moment for MPI calls may be over. */
void end_shadow(struct shadow *shadow, int finalizing);

/* With CLOUDCOLL_DEBUG, how many there were. */
void tell_of_shadows(void);

/* ---- world.c: the processes that were started together ------------------- */

/* What comes right after MPI_Init; not more than once. */
void enter_world(void);

/* What comes right before MPI_Finalize; not more than once. */
void leave_world(void);

/* Ask whether all of the world have this library, at the first call. */
void call_roll(int rank, int ranks);

/* Tell who started the job, of rank 0, what is wrong with the algorithms that were
 * chosen; "" if nothing is. By hand it is said. */
void report(int rank, const char *wrong);

/* Whether all of the world have this library, as far as all of them know. */
int all_are_here(void);

/* Whether MPI_Init is over and MPI_Finalize has not begun. Else there may be
 * sessions, of which nobody knows whether all members have this library. */
int in_world(void);

/* How many ranks a communicator has. */
int members_of(word comm);

/* How many there are to trade with: of an intercommunicator the others. */
int peers_of(word comm);

/* Write the world rank of each member, where there is room for them; return 0 if
 * one has none. */
int world_ranks(word comm, int size, int *ranks);

/* Whether all members were started together: spawned processes may be without
 * the shim. All see the same, as whoever they are strangers to is one to them. */
int of_one_world(word comm, int size);

/* ---- profile.c: what is called how often --------------------------------- */

#define CLASSES 64 /* class k: bytes of k binary digits */

struct counter {
	_Atomic int64_t calls, bytes, ns;
};

struct group {
	struct group *next;
	int *members; /* world ranks */
	int size;
	struct counter counters[COLLECTIVES][CLASSES];
};

extern int profiling;

int64_t now_ns(void);

/* Count one call; `bytes` is the whole vector of the group. */
void count_call(word comm, enum collective collective, int64_t bytes,
                int64_t began);

/* Bytes of so many elements. */
int64_t payload(int64_t count, word type);

/* The sum of a communicator's counts, large ones or ints. */
int64_t total(word counts, word comm, int large);

/* Make the call, and count it if that is asked for and it succeeds. */
#define COUNTED(collective, comm, bytes, call) \
	({ \
		int64_t began_ = profiling ? now_ns() : 0; \
		int code_ = (call); \
		if (began_ && !code_) \
			count_call(comm, collective, bytes, began_); \
		code_; \
	})

/* The newest first. */
const struct group *counted_groups(void);

/* ---- tune.c: algorithms that were chosen for this job --------------------- */

/* Before MPI_Init: tell the library, if all ranks do. */
void tune_before_init(void);

/* Right after it: read back what the library knows. */
void tune_after_init(void);

extern int watching; /* whether calls are still to be read back */

/* Before and after a blocking call. `bytes` is the whole vector. */
void watch(enum collective collective);
void check(enum collective collective, word comm, int64_t bytes);

/* Make the call, and see by which algorithm it runs, if it is one to look at. */
#define WATCHED(looked_at, collective, comm, bytes, call) \
	({ \
		int watched_ = (looked_at) && watching; \
		if (watched_) \
			watch(collective); \
		int done_ = (call); \
		if (watched_ && !done_) \
			check(collective, comm, bytes); \
		done_; \
	})

/* ---- algorithms.c: which of Open MPI's algorithms run -------------------- */

extern int guarding; /* whether operations that do not commute need care */

/* Whether they can be seen at all in this library. */
int algorithms_come_through_here(void);

void forget_algorithm(enum collective collective);

/* What ran in this thread since then; NULL for nothing. */
const char *algorithm_that_ran(enum collective collective);

/* ---- merge.c: the profile of all ranks as one file ----------------------- */

/* Gather what all ranks have counted; rank 0 writes it to `path`. */
void write_profile(const char *path, int64_t began);

/* ---- reduce.c: which reductions may run in another order ----------------- */

/* Whether an operation gives the same in any order, up to rounding. */
int may_reorder(word type, word op);

/* Return the shadow for an operation that reduces, or NULL where the order could
 * change more than rounding. Types and operations that are no handles are left to
 * the library. */
const struct shadow *reducing(word comm, word type, word op,
                              enum creation creation, int order);

/* ---- gather.c: blocks that have to arrive where they belong -------------- */

/* allgather and allgatherv, both with and without large counts. `large` says
 * how wide the counts and displacements of the caller are. */
int allgather(word in, word in_count, word in_type, word out, word count,
              word type, word comm, int large);
int allgatherv(word in, word in_count, word in_type, word out, word counts,
               word places, word type, word comm, int large);

/* Return counts for a library without large ones, which are to be freed; NULL
 * where they do not fit. */
int *narrowed(word counts, int n);

/* ---- scatter.c: blocks that have to leave in another order --------------- */

/* reduce_scatter_block, with a large count or without. */
int reduce_scatter_block(word in, word out, word count, word type, word op,
                         word comm, int large);

#endif
