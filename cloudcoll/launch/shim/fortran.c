/* Fortran's entry points. Open MPI's call PMPI functions, so C's entry points
 * do not see them; those of MPICH's family call C's, and pass through here, but
 * for those of mpi_f08 that have no buffer.
 *
 * Where only the communicator and the root are exchanged, buffers such as
 * MPI_IN_PLACE keep Fortran's own meaning. Arguments are addresses. */
#include "shim.h"

typedef int fint; /* Fortran's default INTEGER, as Open MPI is built */

#define AT(pointer) (*(fint *)(pointer))

#define PROTOTYPE(Name, name, NAME, counter, form, caller, place, size, large, \
                  bound, ...) \
	int MPI_##Name(WORDS(__VA_ARGS__));
ROUTINES(PROTOTYPE)
int MPIX_Comm_revoke(word comm);

/* Whether entry points do not come through C's, which do the rest. */
static int is_apart(void)
{
	load_library();
	return mpi.fortran;
}

/* Where a call runs: communicator and root in C, and what is passed on. */
struct place {
	const struct shadow *shadow;
	word comm, rank;
	fint on, root;
};

/* Return the root in C, to be translated; ours is passed on. */
static word *taken(struct place *place, word *root)
{
	place->rank = AT(*root);
	*root = (word)&place->root;
	return &place->rank;
}

/* Pass on what was found for what the program gave. */
static void go(struct place *place, word *comm)
{
	place->on = place->shadow ? place->shadow->fortran : AT(*comm);
	place->root = (fint)place->rank;
	*comm = (word)&place->on;
}

/* Hand the code to who asked for it; mpi_f08 may leave the argument out. */
static void answer(word ierr, fint code)
{
	if (ierr)
		AT(ierr) = code;
}

#define BYTES(size) \
	BYTES_##size(AT(count), counts, mpi.Type_f2c(AT(type)), place.comm, 0)

/* What an entry point does, given the library's. */
#define ACTION(name, ...) \
	static void name##_f(void (*real)(WORDS(__VA_ARGS__)) \
	                     __attribute__((unused)), WORDS(__VA_ARGS__))
#define MOVE(name, counter, form, where, size, ...) \
	ACTION(name, __VA_ARGS__, ierr) \
	{ \
		struct place place = {.comm = mpi.Comm_f2c(AT(comm))}; \
		fint code = 0; \
		place.shadow = PLACE_##where( \
			place.comm, mpi.Type_f2c(AT(type)), mpi.Op_f2c(AT(op)), \
			taken(&place, &root), CREATION_##form, \
			ORDER(counter, BYTES(size))); \
		go(&place, &comm); \
		(void)COUNTED(counter, place.comm, BYTES(size), \
		              ({ real(__VA_ARGS__, (word)&code); code; })); \
		if (place.shadow) \
			told(place.comm, place.shadow->comm, code); \
		answer(ierr, code); \
	}

/* A buffer as C has it: Fortran's constants are places, not values, and compilers
 * spell them as they do routines. */
static word in_c(word buffer)
{
	static const char *const names[][2] = {
		{"mpi_fortran_in_place_", "mpi_fortran_bottom_"},
		{"mpi_fortran_in_place", "mpi_fortran_bottom"},
		{"mpi_fortran_in_place__", "mpi_fortran_bottom__"},
		{"MPI_FORTRAN_IN_PLACE", "MPI_FORTRAN_BOTTOM"},
	};
	static void *in_place, *bottom;

	for (int i = 0; !in_place && i < 4; i++) {
		bottom = find_variable(names[i][1]);
		in_place = find_variable(names[i][0]);
	}
	return in_place && buffer == (word)in_place ? mpi.in_place :
	       bottom && buffer == (word)bottom ? 0 : buffer;
}

/* These go through C's entry points, which move blocks: in a communicator some
 * ranks may call these, and others those. */

ACTION(allgather, in, in_count, in_type, out, count, type, comm, ierr)
{
	answer(ierr, MPI_Allgather(
		in_c(in), AT(in_count), mpi.Type_f2c(AT(in_type)), in_c(out), AT(count),
		mpi.Type_f2c(AT(type)), mpi.Comm_f2c(AT(comm))));
}

ACTION(allgatherv, in, in_count, in_type, out, counts, places, type, comm, ierr)
{
	answer(ierr, MPI_Allgatherv(
		in_c(in), AT(in_count), mpi.Type_f2c(AT(in_type)), in_c(out), counts,
		places, mpi.Type_f2c(AT(type)), mpi.Comm_f2c(AT(comm))));
}

ACTION(reduce_scatter_block, in, out, count, type, op, comm, ierr)
{
	answer(ierr, MPI_Reduce_scatter_block(
		in_c(in), in_c(out), AT(count), mpi.Type_f2c(AT(type)),
		mpi.Op_f2c(AT(op)), mpi.Comm_f2c(AT(comm))));
}

ACTION(comm_revoke, comm, ierr)
{
	answer(ierr, MPIX_Comm_revoke(mpi.Comm_f2c(AT(comm))));
}

/* Where C's entry point has been through, these find nothing left to do. */

#define BEGINNING(name, ...) \
	ACTION(name, __VA_ARGS__) \
	{ \
		const word asked = ierr; \
		fint code = 0; \
		ierr = (word)&code; \
		load_library(); \
		tune_before_init(); \
		real(__VA_ARGS__); \
		if (!code) \
			enter_world(); \
		answer(asked, code); \
	}
BEGINNING(init, ierr)
BEGINNING(init_thread, required, provided, ierr)

ACTION(finalize, ierr)
{
	fint code = 0;

	leave_world();
	real((word)&code);
	answer(ierr, code);
}

/* What comes through C's is called as it came: its integers may be wide ones. */
#define ENTRY(symbol, name, through_c, ...) \
	void symbol(WORDS(__VA_ARGS__)); \
	void symbol(WORDS(__VA_ARGS__)) \
	{ \
		static void (*real)(WORDS(__VA_ARGS__)); \
		if (!real) \
			real = (__typeof__(real))find_function(#symbol); \
		if (is_apart()) \
			name##_f(real, __VA_ARGS__); \
		else \
			through_c; \
	}

/* Compilers spell a routine's symbol in one of four ways; mpi_f08 has its own,
 * which for those without a buffer does not come through MPICH's C. */
#define ALIAS(symbol, of, ...) \
	void symbol(WORDS(__VA_ARGS__)) __attribute__((alias(#of)));
#define SYMBOLS(symbol, SYMBOL, name, f08, ...) \
	ENTRY(symbol##_, name, real(__VA_ARGS__), __VA_ARGS__) \
	ALIAS(symbol##__, symbol##_, __VA_ARGS__) \
	ALIAS(symbol, symbol##_, __VA_ARGS__) \
	ALIAS(SYMBOL, symbol##_, __VA_ARGS__) \
	ENTRY(symbol##_f08_, name, f08, __VA_ARGS__)
#define F08_barrier MPI_Barrier(AT(comm))
#define F08_ibarrier MPI_Ibarrier(AT(comm), request)
#define F08_barrier_init MPI_Barrier_init(AT(comm), AT(info), request)

#define MOVE_BOUND MOVE
#define MOVE_BARE MOVE
#define MOVE_THROUGH_C(...)
#define MOVE_C_ONLY(...)
#define SYMBOLS_BOUND(name, NAME, ...) \
	SYMBOLS(mpi_##name, MPI_##NAME, name, real(__VA_ARGS__), __VA_ARGS__)
#define SYMBOLS_BARE(name, NAME, ...) \
	SYMBOLS(mpi_##name, MPI_##NAME, name, answer(ierr, F08_##name), __VA_ARGS__)
#define SYMBOLS_THROUGH_C SYMBOLS_BOUND
#define SYMBOLS_C_ONLY(...)
#define EXTENSION(name, NAME, ...) \
	SYMBOLS(mpix_##name, MPIX_##NAME, name, real(__VA_ARGS__), __VA_ARGS__)
#define ENTRIES(Name, name, NAME, counter, form, caller, place, size, large, bound, \
                ...) \
	MOVE_##bound(name, counter, form, place, size, __VA_ARGS__) \
	SYMBOLS_##bound(name, NAME, __VA_ARGS__, ierr) \
	IF_##form(EXTENSION(name, NAME, __VA_ARGS__, ierr))

#pragma GCC visibility push(default)

ROUTINES(ENTRIES)
EXTENSION(comm_revoke, COMM_REVOKE, comm, ierr)
SYMBOLS(mpi_init, MPI_INIT, init, init_f(real, ierr), ierr)
SYMBOLS(mpi_init_thread, MPI_INIT_THREAD, init_thread,
        init_thread_f(real, required, provided, ierr), required, provided, ierr)
SYMBOLS(mpi_finalize, MPI_FINALIZE, finalize, finalize_f(real, ierr), ierr)
