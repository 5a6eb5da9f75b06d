/* Fortran's entry points of persistent collectives; see fortran.c. */
#include "fortran.h"

static void allreduce_init(sub9 real, word in, word out, word count, word type,
                           word op, word comm, word info, word request, word ierr)
{
	struct place place = reduced(comm, count, type, op, CREATE, ALLREDUCE);
	fint code = 0;

	RUN(ALLREDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.on, info, request,
	         (word)&code));
	finish(place, code, ierr);
}

static void reduce_init(sub10 real, word in, word out, word count, word type,
                        word op, word root, word comm, word info, word request,
                        word ierr)
{
	struct place place = reduced(comm, count, type, op, CREATE, REDUCE);
	fint code = 0;

	translate(&place, comm, root);
	RUN(REDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.root, (word)&place.on, info,
	         request, (word)&code));
	finish(place, code, ierr);
}

static void bcast_init(sub8 real, word data, word count, word type, word root,
                       word comm, word info, word request, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(CREATE, BCAST, payload_f(AT(count), type));
	translate(&place, comm, root);
	RUN(BCAST, payload_f(AT(count), type),
	    real(data, count, type, (word)&place.root, (word)&place.on, info,
	         request, (word)&code));
	finish(place, code, ierr);
}

static void barrier_init(sub4 real, word comm, word info, word request, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(CREATE, BARRIER, 0);
	RUN(BARRIER, 0, real((word)&place.on, info, request, (word)&code));
	finish(place, code, ierr);
}

static void barrier_init_f08(sub4 real, word comm, word info, word request,
                             word ierr)
{
	struct place place = {0};

	if (is_apart())
		barrier_init(real, comm, info, request, ierr);
	else
		finish(place, MPI_Barrier_init(AT(comm), AT(info), request), ierr);
}

#pragma GCC visibility push(default)

ENTRIES(allreduce_init, ALLREDUCE_INIT, sub9, NINE,
        a, b, c, d, e, f, g, h, i)
ENTRIES(reduce_init, REDUCE_INIT, sub10, TEN,
        a, b, c, d, e, f, g, h, i, j)
ENTRIES(bcast_init, BCAST_INIT, sub8, EIGHT,
        a, b, c, d, e, f, g, h)
BARE_ENTRIES(barrier_init, barrier_init_f08, BARRIER_INIT, sub4,
             (word a, word b, word c, word d), a, b, c, d)

/* As Open MPI 4.1 has them. */
MPIX_ENTRIES(allreduce_init, ALLREDUCE_INIT, sub9, NINE,
             a, b, c, d, e, f, g, h, i)
MPIX_ENTRIES(reduce_init, REDUCE_INIT, sub10, TEN,
             a, b, c, d, e, f, g, h, i, j)
MPIX_ENTRIES(bcast_init, BCAST_INIT, sub8, EIGHT,
             a, b, c, d, e, f, g, h)
MPIX_ENTRIES(barrier_init, BARRIER_INIT, sub4,
             (word a, word b, word c, word d), a, b, c, d)
