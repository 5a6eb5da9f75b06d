/* Fortran's entry points that only count, reduce_scatter_block, and those of the
 * beginning, of a revocation and of the end.
 *
 * Those of MPICH's family call C's, which count and do the rest. */
#include "fortran.h"

/* Make the call with a code of our own: mpi_f08 may leave the argument out. */
#define COUNT(collective, bytes, ...) \
	do { \
		word place = profiling ? mpi.Comm_f2c(AT(comm)) : 0; \
		fint code = 0; \
		(void)COUNTED(collective, place, bytes, \
		              ({ real(__VA_ARGS__, (word)&code); code; })); \
		if (ierr) \
			AT(ierr) = code; \
	} while (0)

static void alltoall(sub8 real, word in, word in_count, word in_type, word out,
                     word count, word type, word comm, word ierr)
{
	COUNT(ALLTOALL, payload_f(AT(count), type) * members_of(place), in, in_count,
	    in_type, out, count, type, comm);
}

static void ialltoall(sub9 real, word in, word in_count, word in_type, word out,
                      word count, word type, word comm, word request, word ierr)
{
	COUNT(ALLTOALL, payload_f(AT(count), type) * members_of(place), in, in_count,
	    in_type, out, count, type, comm, request);
}

static void alltoallv(sub10 real, word in, word in_counts, word in_places,
                      word in_type, word out, word counts, word places,
                      word type, word comm, word ierr)
{
	COUNT(ALLTOALL, payload_f(total(counts, place, 0), type), in, in_counts,
	    in_places, in_type, out, counts, places, type, comm);
}

static void iallgather(sub9 real, word in, word in_count, word in_type, word out,
                       word count, word type, word comm, word request, word ierr)
{
	COUNT(ALLGATHER, payload_f(AT(count), type) * members_of(place), in, in_count,
	    in_type, out, count, type, comm, request);
}

static void reduce_scatter(sub7 real, word in, word out, word counts, word type,
                           word op, word comm, word ierr)
{
	COUNT(REDUCE_SCATTER, payload_f(total(counts, place, 0), type), in, out,
	    counts, type, op, comm);
}

/* A buffer as C has it: Fortran's constants are places, not values. */
static word in_c(word buffer)
{
	static void *in_place, *bottom;

	if (!in_place)
		in_place = find_variable("mpi_fortran_in_place_");
	if (!bottom)
		bottom = find_variable("mpi_fortran_bottom_");
	return buffer == (word)in_place ? mpi.in_place :
	       buffer == (word)bottom ? 0 : buffer;
}

/* By C's entry point: other ranks may call that. */
static void reduce_scatter_block(sub7 real, word in, word out, word count,
                                 word type, word op, word comm, word ierr)
{
	fint code = MPI_Reduce_scatter_block(
		in_c(in), in_c(out), AT(count), mpi.Type_f2c(AT(type)),
		mpi.Op_f2c(AT(op)), mpi.Comm_f2c(AT(comm)));

	(void)real;
	if (ierr)
		AT(ierr) = code;
}

static void comm_revoke(sub2 real, word comm, word ierr)
{
	fint code = MPIX_Comm_revoke(mpi.Comm_f2c(AT(comm)));

	(void)real;
	if (ierr)
		AT(ierr) = code;
}

/* Where C's entry point has been through, these find nothing left to do. */
static void init(sub1 real, word ierr)
{
	fint code = 0;

	load_library();
	tune_before_init();
	real((word)&code);
	if (!code)
		enter_world();
	if (ierr)
		AT(ierr) = code;
}

static void init_thread(sub3 real, word required, word provided, word ierr)
{
	fint code = 0;

	load_library();
	tune_before_init();
	real(required, provided, (word)&code);
	if (!code)
		enter_world();
	if (ierr)
		AT(ierr) = code;
}

static void finalize(sub1 real, word ierr)
{
	fint code = 0;

	leave_world();
	real((word)&code);
	if (ierr)
		AT(ierr) = code;
}

#pragma GCC visibility push(default)

ENTRIES(alltoall, ALLTOALL, sub8, EIGHT,
        a, b, c, d, e, f, g, h)
ENTRIES(ialltoall, IALLTOALL, sub9, NINE,
        a, b, c, d, e, f, g, h, i)
ENTRIES(alltoallv, ALLTOALLV, sub10, TEN,
        a, b, c, d, e, f, g, h, i, j)
ENTRIES(iallgather, IALLGATHER, sub9, NINE,
        a, b, c, d, e, f, g, h, i)
ENTRIES(reduce_scatter, REDUCE_SCATTER, sub7, SEVEN,
        a, b, c, d, e, f, g)
ENTRIES(reduce_scatter_block, REDUCE_SCATTER_BLOCK, sub7, SEVEN,
        a, b, c, d, e, f, g)
BARE_ENTRIES(init, init, INIT, sub1, (word a), a)
BARE_ENTRIES(init_thread, init_thread, INIT_THREAD, sub3,
             (word a, word b, word c), a, b, c)
BARE_ENTRIES(finalize, finalize, FINALIZE, sub1, (word a), a)
MPIX_ENTRIES(comm_revoke, COMM_REVOKE, sub2, (word a, word b), a, b)
