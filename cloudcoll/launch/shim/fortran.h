/* How Fortran's entry points look: arguments are addresses. */
#ifndef CLOUDCOLL_FORTRAN_H
#define CLOUDCOLL_FORTRAN_H

#include "shim.h"

typedef int fint; /* Fortran's default INTEGER, as Open MPI is built */

#define AT(pointer) (*(fint *)(pointer))

int MPI_Barrier(word comm);
int MPI_Ibarrier(word comm, word request);
int MPI_Barrier_init(word comm, word info, word request);
int MPIX_Comm_revoke(word comm);
int MPI_Reduce_scatter_block(word in, word out, word count, word type, word op,
                             word comm);

typedef void (*sub1)(word);
typedef void (*sub2)(word, word);
typedef void (*sub3)(word, word, word);
typedef void (*sub4)(word, word, word, word);
typedef void (*sub6)(word, word, word, word, word, word);
typedef void (*sub7)(word, word, word, word, word, word, word);
typedef void (*sub8)(word, word, word, word, word, word, word, word);
typedef void (*sub9)(word, word, word, word, word, word, word, word, word);
typedef void (*sub10)(word, word, word, word, word, word, word, word, word, word);

#define SEVEN (word a, word b, word c, word d, word e, word f, word g)
#define EIGHT (word a, word b, word c, word d, word e, word f, word g, word h)
#define NINE \
	(word a, word b, word c, word d, word e, word f, word g, word h, word i)
#define TEN \
	(word a, word b, word c, word d, word e, word f, word g, word h, word i, \
	 word j)

/* Whether entry points do not come through C's, which do the rest. */
static inline int is_apart(void)
{
	load_library();
	return mpi.fortran;
}

/* What comes through C's is called as it came: its integers may be wide ones. */
#define ENTRY(symbol, shape, name, is_ours, params, ...) \
	void symbol params; \
	void symbol params \
	{ \
		static shape real; \
		if (!real) \
			real = (shape)find_function(#symbol); \
		if (is_ours) \
			name(real, __VA_ARGS__); \
		else \
			real(__VA_ARGS__); \
	}

/* Compilers spell a routine's symbol in one of four ways; mpi_f08 has its own. */
#define ALIAS(symbol, of, params) \
	void symbol params __attribute__((alias(#of)));
#define ENTRIES(name, NAME, shape, params, ...) \
	NAMED(mpi_##name, MPI_##NAME, shape, name, params, __VA_ARGS__)
#define MPIX_ENTRIES(name, NAME, shape, params, ...) \
	NAMED(mpix_##name, MPIX_##NAME, shape, name, params, __VA_ARGS__)
#define NAMED(symbol, SYMBOL, shape, name, params, ...) \
	SPELT(symbol, SYMBOL, shape, name, params, __VA_ARGS__) \
	ENTRY(symbol##_f08_, shape, name, is_apart(), params, __VA_ARGS__)
#define SPELT(symbol, SYMBOL, shape, name, params, ...) \
	ENTRY(symbol##_, shape, name, is_apart(), params, __VA_ARGS__) \
	ALIAS(symbol##__, symbol##_, params) \
	ALIAS(symbol, symbol##_, params) \
	ALIAS(SYMBOL, symbol##_, params)

/* Those without a buffer: MPICH's for mpi_f08 do not come through C's. */
#define BARE_ENTRIES(name, f08, NAME, shape, params, ...) \
	SPELT(mpi_##name, MPI_##NAME, shape, name, params, __VA_ARGS__) \
	ENTRY(mpi_##name##_f08_, shape, f08, 1, params, __VA_ARGS__)

/* Bytes of so many elements of one of Fortran's types. */
static inline int64_t payload_f(int64_t count, word type)
{
	return payload(count, mpi.Type_f2c(AT(type)));
}

/* ---- fortran_place.c: where a call runs ---------------------------------- */

/* A communicator of Fortran: its handle in C, and what to pass on. */
struct place {
	word comm;
	const struct shadow *shadow;
	fint on, root;
};

/* Where it was asked to run. */
struct place found(word comm);

/* Go to a shadow, if there is one. */
void move(struct place *place, enum creation creation, int order);

void stay(struct place *place, word comm);

/* Where a reduction belongs. */
struct place reduced(word comm, word count, word type, word op,
                     enum creation creation, enum collective collective);

/* Translate the root, or stay. */
void translate(struct place *place, word comm, word root);

/* Hand the code to who asked for it; the argument can be left out in mpi_f08. */
void finish(struct place place, fint code, word ierr);

/* Go to a shadow, if there is one. */
#define MOVE(creation, collective, bytes) \
	move(&place, creation, ORDER(collective, bytes))

/* Make the call, and count it. */
#define RUN(collective, bytes, call) \
	(void)COUNTED(collective, place.comm, bytes, ({ call; code; }))

#endif
