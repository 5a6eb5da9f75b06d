/* The entry points that applications call instead of the library's, as listed in
 * routines.h. What stays there belongs to each rank's number: it is only counted. */
#include "shim.h"

#include <stdlib.h>

static int alltoallv(word in, word in_counts, word in_places, word in_type,
                     word out, word counts, word places, word type, word comm,
                     int large)
{
	word lists[] = {in_counts, in_places, counts, places};
	int *small[4], code = ERR_COUNT, fit = 1, n;

	if (!large || mpi.Alltoallv_c)
		return (large ? mpi.Alltoallv_c : mpi.Alltoallv)(
			in, in_counts, in_places, in_type, out, counts, places, type, comm);
	n = peers_of(comm);
	for (int i = 0; i < 4; i++) {
		small[i] = narrowed(lists[i], n);
		fit &= !!small[i];
	}
	if (fit)
		code = mpi.Alltoallv(in, (word)small[0], (word)small[1], in_type, out,
		                     (word)small[2], (word)small[3], type, comm);
	for (int i = 0; i < 4; i++)
		free(small[i]);
	return fit ? code : told(comm, 0, ERR_COUNT);
}

static int reduce_scatter(word in, word out, word counts, word type, word op,
                          word comm, int large)
{
	int *small, code;

	if (!large || mpi.Reduce_scatter_c)
		return (large ? mpi.Reduce_scatter_c : mpi.Reduce_scatter)(
			in, out, counts, type, op, comm);
	small = narrowed(counts, members_of(comm));
	if (!small)
		return told(comm, 0, ERR_COUNT);
	code = mpi.Reduce_scatter(in, out, (word)small, type, op, comm);
	free(small);
	return code;
}

/* How a call is made, and which of its counts a library may need as an int. */
#define SMALL_LIBRARY(Name, name, ...) IF_KNOWN(Name, comm, __VA_ARGS__)
#define SMALL_SHIM(Name, name, ...) name(__VA_ARGS__, 0)
#define LARGE_LIBRARY(Name, name, size, ...) \
	WITH_COUNT(Name, LARGEST_##size, comm, __VA_ARGS__)
#define LARGE_SHIM(Name, name, size, ...) name(__VA_ARGS__, 1)
#define LARGEST_ELEMENTS count
#define LARGEST_PARTS count
#define LARGEST_BLOCKS (count | in_count)

/* `asked` and `comm` are where it was asked to run and where it runs. */
/* Calls of a collective itself, not of its kin, show by which algorithm they run. */
#define ENTRY(symbol, NAME, counter, form, place, bytes, call, ...) \
	int symbol(WORDS(__VA_ARGS__)) \
	{ \
		const word asked = comm; \
		const struct shadow *shadow = PLACE_##place( \
			asked, type, op, &root, CREATION_##form, ORDER(counter, bytes)); \
		if (shadow) \
			comm = shadow->comm; \
		return told(asked, comm, \
		            COUNTED(counter, asked, bytes, \
		                    WATCHED(sizeof #NAME == sizeof #counter, counter, asked, \
		                            bytes, call))); \
	}
/* Persistent ones are MPIX in Open MPI 4.1. */
#define ENTRIES(Name, name, NAME, counter, form, caller, place, size, large, bound, \
                ...) \
	ENTRY(MPI_##Name, NAME, counter, form, place, \
	      BYTES_##size((int)count, counts, type, asked, 0), \
	      SMALL_##caller(Name, name, __VA_ARGS__), __VA_ARGS__) \
	IF_##large(ENTRY(MPI_##Name##_c, NAME, counter, form, place, \
	                 BYTES_##size(count, counts, type, asked, 1), \
	                 LARGE_##caller(Name, name, size, __VA_ARGS__), __VA_ARGS__)) \
	IF_##form(int MPIX_##Name(WORDS(__VA_ARGS__)) \
	          __attribute__((alias("MPI_" #Name)));)

#pragma GCC visibility push(default)

ROUTINES(ENTRIES)
