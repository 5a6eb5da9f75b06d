/* Fortran's entry points. Open MPI's call PMPI functions, so C's entry points
 * do not see them; those of MPICH's family call C's, and pass through here, but
 * for those of mpi_f08 that have no buffer.
 *
 * Only the communicator and the root are exchanged: buffers such as
 * MPI_IN_PLACE keep Fortran's own meaning. Arguments are addresses. */
#include "fortran.h"

static void allreduce(sub7 real, word in, word out, word count, word type,
                      word op, word comm, word ierr)
{
	struct place place = reduced(comm, count, type, op, CREATE, ALLREDUCE);
	fint code = 0;

	RUN(ALLREDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.on, (word)&code));
	finish(place, code, ierr);
}

static void iallreduce(sub8 real, word in, word out, word count, word type,
                       word op, word comm, word request, word ierr)
{
	struct place place = reduced(comm, count, type, op, IF_THERE, ALLREDUCE);
	fint code = 0;

	RUN(ALLREDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.on, request, (word)&code));
	finish(place, code, ierr);
}

static void reduce(sub8 real, word in, word out, word count, word type, word op,
                   word root, word comm, word ierr)
{
	struct place place = reduced(comm, count, type, op, CREATE, REDUCE);
	fint code = 0;

	translate(&place, comm, root);
	RUN(REDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.root, (word)&place.on,
	         (word)&code));
	finish(place, code, ierr);
}

static void ireduce(sub9 real, word in, word out, word count, word type, word op,
                    word root, word comm, word request, word ierr)
{
	struct place place = reduced(comm, count, type, op, IF_THERE, REDUCE);
	fint code = 0;

	translate(&place, comm, root);
	RUN(REDUCE, payload_f(AT(count), type),
	    real(in, out, count, type, op, (word)&place.root, (word)&place.on,
	         request, (word)&code));
	finish(place, code, ierr);
}

static void bcast(sub6 real, word data, word count, word type, word root,
                  word comm, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(CREATE, BCAST, payload_f(AT(count), type));
	translate(&place, comm, root);
	RUN(BCAST, payload_f(AT(count), type),
	    real(data, count, type, (word)&place.root, (word)&place.on,
	         (word)&code));
	finish(place, code, ierr);
}

static void ibcast(sub7 real, word data, word count, word type, word root,
                   word comm, word request, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(IF_THERE, BCAST, payload_f(AT(count), type));
	translate(&place, comm, root);
	RUN(BCAST, payload_f(AT(count), type),
	    real(data, count, type, (word)&place.root, (word)&place.on, request,
	         (word)&code));
	finish(place, code, ierr);
}

static void barrier(sub2 real, word comm, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(CREATE, BARRIER, 0);
	RUN(BARRIER, 0, real((word)&place.on, (word)&code));
	finish(place, code, ierr);
}

static void ibarrier(sub3 real, word comm, word request, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(IF_THERE, BARRIER, 0);
	RUN(BARRIER, 0, real((word)&place.on, request, (word)&code));
	finish(place, code, ierr);
}

static void barrier_f08(sub2 real, word comm, word ierr)
{
	struct place place = {0};

	if (is_apart())
		barrier(real, comm, ierr);
	else
		finish(place, MPI_Barrier(AT(comm)), ierr);
}

static void ibarrier_f08(sub3 real, word comm, word request, word ierr)
{
	struct place place = {0};

	if (is_apart())
		ibarrier(real, comm, request, ierr);
	else
		finish(place, MPI_Ibarrier(AT(comm), request), ierr);
}

static void allgatherv(sub9 real, word in, word in_count, word in_type, word out,
                       word counts, word places, word type, word comm, word ierr)
{
	struct place place = found(comm);
	fint code = 0;

	MOVE(CREATE, ALLGATHER, payload_f(total(counts, place.comm, 0), type));
	if (place.shadow) {
		int n = place.shadow->size;
		fint *blocks = (fint *)place.shadow->blocks;

		for (int i = 0; i < n; i++) {
			blocks[i] = ((fint *)counts)[place.shadow->rank[i]];
			blocks[n + i] = ((fint *)places)[place.shadow->rank[i]];
		}
		counts = (word)blocks;
		places = (word)(blocks + n);
	}
	RUN(ALLGATHER, payload_f(total(counts, place.comm, 0), type),
	    real(in, in_count, in_type, out, counts, places, type, (word)&place.on,
	         (word)&code));
	finish(place, code, ierr);
}

/* Blocks as elements of their own, as large ones need (gather.c). */
static void allgather(sub8 real, sub9 realv, word in, word in_count,
                      word in_type, word out, word count, word type, word comm,
                      word ierr)
{
	struct place place = found(comm);
	fint code = 0, block;
	fint *blocks;
	word made = 0;

	MOVE(CREATE, ALLGATHER,
	     payload_f(AT(count), type) * members_of(place.comm));
	if (!place.shadow || AT(count) < 0 ||
	    same(mpi.Type_f2c(AT(type)), mpi.type_null)) {
		stay(&place, comm);
		RUN(ALLGATHER, payload_f(AT(count), type) * members_of(place.comm),
		    real(in, in_count, in_type, out, count, type, comm, (word)&code));
		finish(place, code, ierr);
		return;
	}
	mpi.Type_contiguous(AT(count), mpi.Type_f2c(AT(type)), (word)&made);
	mpi.Type_commit((word)&made);
	block = (fint)mpi.Type_c2f(made);
	blocks = (fint *)place.shadow->blocks;
	for (int i = 0; i < place.shadow->size; i++) {
		blocks[i] = 1;
		blocks[place.shadow->size + i] = place.shadow->rank[i];
	}
	RUN(ALLGATHER, payload_f(AT(count), type) * place.shadow->size,
	    realv(in, in_count, in_type, out, (word)blocks,
	          (word)(blocks + place.shadow->size), (word)&block,
	          (word)&place.on, (word)&code));
	mpi.Type_free((word)&made);
	finish(place, code, ierr);
}

#pragma GCC visibility push(default)

ENTRIES(allreduce, ALLREDUCE, sub7, SEVEN,
        a, b, c, d, e, f, g)
ENTRIES(iallreduce, IALLREDUCE, sub8, EIGHT,
        a, b, c, d, e, f, g, h)
ENTRIES(reduce, REDUCE, sub8, EIGHT,
        a, b, c, d, e, f, g, h)
ENTRIES(ireduce, IREDUCE, sub9, NINE,
        a, b, c, d, e, f, g, h, i)
ENTRIES(bcast, BCAST, sub6, (word a, word b, word c, word d, word e, word f),
        a, b, c, d, e, f)
ENTRIES(ibcast, IBCAST, sub7, SEVEN,
        a, b, c, d, e, f, g)
BARE_ENTRIES(barrier, barrier_f08, BARRIER, sub2, (word a, word b), a, b)
BARE_ENTRIES(ibarrier, ibarrier_f08, IBARRIER, sub3,
            (word a, word b, word c), a, b, c)
ENTRIES(allgatherv, ALLGATHERV, sub9, NINE,
        a, b, c, d, e, f, g, h, i)

/* This one calls allgatherv of its own binding. */
#define GATHER_ENTRY(binding) \
	void mpi_allgather##binding(word, word, word, word, word, word, word, word); \
	void mpi_allgather##binding(word a, word b, word c, word d, word e, word f, \
	                            word g, word h) \
	{ \
		static sub9 realv; \
		static sub8 real; \
		if (!realv) \
			realv = (sub9)find_function("mpi_allgatherv" #binding); \
		if (!real) \
			real = (sub8)find_function("mpi_allgather" #binding); \
		if (is_apart()) \
			allgather(real, realv, a, b, c, d, e, f, g, h); \
		else \
			real(a, b, c, d, e, f, g, h); \
	}
GATHER_ENTRY(_)
GATHER_ENTRY(_f08_)
ALIAS(mpi_allgather__, mpi_allgather_, EIGHT)
ALIAS(mpi_allgather, mpi_allgather_, EIGHT)
ALIAS(MPI_ALLGATHER, mpi_allgather_, EIGHT)
