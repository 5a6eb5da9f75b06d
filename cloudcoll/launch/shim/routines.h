/* The routines of MPI that are counted or moved to a shadow: one row each.
 *
 * A row makes entry points (collectives.c, fortran.c) and has the library's
 * functions found that these call (library.c). To add a routine, add its row, and
 * a line to docs/no-prefix.md. A row of MOVED makes the blocking, the nonblocking and the
 * persistent routine, one of STAYING the first two. A row has
 *
 * - the name as in MPI_Allreduce, in small letters and in capitals;
 * - if MOVED, where it runs: on the SHADOW; FROM_ROOT, REDUCING and REDUCING_TO
 *   only if the root is a rank there and the operation may be reordered;
 * - if STAYING, what it counts as (order.h), and who does the blocking one: the
 *   LIBRARY, or the SHIM by a function with the name in small letters;
 * - what is sent: NOTHING; count ELEMENTS; to each rank BLOCKS of as many, or PARTS
 *   of what comes in; to each its own of COUNTS;
 * - whether there is one for LARGE counts, with `_c`, or only a SMALL one;
 * - how it is BOUND to Fortran: BARE has no buffer, THROUGH_C has a function in
 *   fortran.c, and C_ONLY is not. STAYING has these two for either form;
 * - the arguments that C's has before a request, by the names used below. */
#ifndef CLOUDCOLL_ROUTINES_H
#define CLOUDCOLL_ROUTINES_H

#define ROUTINES(X) \
	MOVED(X, Allreduce, allreduce, ALLREDUCE, REDUCING, ELEMENTS, LARGE, BOUND, \
	      in, out, count, type, op, comm) \
	MOVED(X, Reduce, reduce, REDUCE, REDUCING_TO, ELEMENTS, LARGE, BOUND, \
	      in, out, count, type, op, root, comm) \
	MOVED(X, Bcast, bcast, BCAST, FROM_ROOT, ELEMENTS, LARGE, BOUND, \
	      data, count, type, root, comm) \
	MOVED(X, Barrier, barrier, BARRIER, SHADOW, NOTHING, SMALL, BARE, \
	      comm) \
	STAYING(X, Allgather, allgather, ALLGATHER, ALLGATHER, SHIM, BLOCKS, \
	        LARGE, THROUGH_C, LARGE, BOUND, \
	        in, in_count, in_type, out, count, type, comm) \
	STAYING(X, Allgatherv, allgatherv, ALLGATHERV, ALLGATHER, SHIM, COUNTS, \
	        LARGE, THROUGH_C, SMALL, C_ONLY, \
	        in, in_count, in_type, out, counts, places, type, comm) \
	STAYING(X, Alltoall, alltoall, ALLTOALL, ALLTOALL, LIBRARY, BLOCKS, \
	        LARGE, BOUND, LARGE, BOUND, \
	        in, in_count, in_type, out, count, type, comm) \
	STAYING(X, Alltoallv, alltoallv, ALLTOALLV, ALLTOALL, SHIM, COUNTS, \
	        LARGE, BOUND, SMALL, C_ONLY, \
	        in, in_counts, in_places, in_type, out, counts, places, type, comm) \
	STAYING(X, Reduce_scatter, reduce_scatter, REDUCE_SCATTER, \
	        REDUCE_SCATTER, SHIM, COUNTS, LARGE, BOUND, SMALL, C_ONLY, \
	        in, out, counts, type, op, comm) \
	STAYING(X, Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK, \
	        REDUCE_SCATTER, SHIM, PARTS, LARGE, THROUGH_C, LARGE, C_ONLY, \
	        in, out, count, type, op, comm)

#define MOVED(X, Name, name, NAME, place, size, large, bound, ...) \
	X(Name, name, NAME, NAME, BLOCKING, LIBRARY, place, size, large, bound, \
	  __VA_ARGS__) \
	X(I##name, i##name, I##NAME, NAME, NONBLOCKING, LIBRARY, place, size, large, \
	  bound, __VA_ARGS__, request) \
	X(Name##_init, name##_init, NAME##_INIT, NAME, PERSISTENT, LIBRARY, place, \
	  size, large, bound, __VA_ARGS__, info, request)
#define STAYING(X, Name, name, NAME, counter, caller, size, large, bound, \
                large_too, bound_too, ...) \
	X(Name, name, NAME, counter, BLOCKING, caller, NOWHERE, size, large, bound, \
	  __VA_ARGS__) \
	X(I##name, i##name, I##NAME, counter, NONBLOCKING, LIBRARY, NOWHERE, size, \
	  large_too, bound_too, __VA_ARGS__, request)

/* What some rows make in addition. */
#define IF_LARGE(...) __VA_ARGS__
#define IF_SMALL(...)
#define IF_PERSISTENT(...) __VA_ARGS__
#define IF_BLOCKING(...)
#define IF_NONBLOCKING(...)

/* Making a persistent one's request may synchronise, so it makes a shadow, too;
 * it counts as one call, whatever is started later. */
#define CREATION_BLOCKING CREATE
#define CREATION_NONBLOCKING IF_THERE
#define CREATION_PERSISTENT CREATE

/* The shadow to run on, NULL for the communicator itself; `root` is a pointer. */
#define PLACE_SHADOW(comm, type, op, root, ...) shadow_of(comm, __VA_ARGS__)
#define PLACE_FROM_ROOT(comm, type, op, root, ...) \
	rooted(shadow_of(comm, __VA_ARGS__), root)
#define PLACE_REDUCING(comm, type, op, root, ...) \
	reducing(comm, type, op, __VA_ARGS__)
#define PLACE_REDUCING_TO(comm, type, op, root, ...) \
	rooted(reducing(comm, type, op, __VA_ARGS__), root)
#define PLACE_NOWHERE(...) (load_library(), (const struct shadow *)NULL)

/* Bytes of the whole vector. */
#define BYTES_NOTHING(...) 0
#define BYTES_ELEMENTS(count, counts, type, comm, large) payload(count, type)
#define BYTES_BLOCKS(count, counts, type, comm, large) \
	(payload(count, type) * members_of(comm))
#define BYTES_PARTS BYTES_BLOCKS
#define BYTES_COUNTS(count, counts, type, comm, large) \
	payload(total(counts, comm, large), type)

/* Names as parameters: WORDS(in, out) is "word in, word out". */
#define WORDS(...) \
	WORDS_OF(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )(__VA_ARGS__)
#define WORDS_OF(a, b, c, d, e, f, g, h, i, j, n, ...) WORDS_##n
#define WORDS_1(a) word a
#define WORDS_2(a, ...) word a, WORDS_1(__VA_ARGS__)
#define WORDS_3(a, ...) word a, WORDS_2(__VA_ARGS__)
#define WORDS_4(a, ...) word a, WORDS_3(__VA_ARGS__)
#define WORDS_5(a, ...) word a, WORDS_4(__VA_ARGS__)
#define WORDS_6(a, ...) word a, WORDS_5(__VA_ARGS__)
#define WORDS_7(a, ...) word a, WORDS_6(__VA_ARGS__)
#define WORDS_8(a, ...) word a, WORDS_7(__VA_ARGS__)
#define WORDS_9(a, ...) word a, WORDS_8(__VA_ARGS__)
#define WORDS_10(a, ...) word a, WORDS_9(__VA_ARGS__)

#endif
