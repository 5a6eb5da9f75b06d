/* Which reductions may run in another order of ranks. */
#include "shim.h"

#include <string.h>

#define MOST_NAME 512 /* MPI_MAX_OBJECT_NAME of every family is less */

/* Integers add, multiply and compare to the same bits in any order. */
static int is_integer(word type)
{
	static const char *const names[] = {
		"MPI_INT", "MPI_LONG", "MPI_SHORT", "MPI_UNSIGNED", "MPI_INT8_T",
		"MPI_INT16_T", "MPI_INT32_T", "MPI_INT64_T", "MPI_UINT8_T",
		"MPI_UINT16_T", "MPI_UINT32_T", "MPI_UINT64_T", "MPI_LONG_LONG",
		"MPI_LONG_LONG_INT", "MPI_UNSIGNED_LONG", "MPI_UNSIGNED_LONG_LONG",
		"MPI_UNSIGNED_SHORT", "MPI_UNSIGNED_CHAR", "MPI_SIGNED_CHAR",
		"MPI_BYTE", "MPI_AINT", "MPI_OFFSET", "MPI_COUNT", "MPI_C_BOOL",
		"MPI_INTEGER", "MPI_INTEGER1", "MPI_INTEGER2", "MPI_INTEGER4",
		"MPI_INTEGER8", "MPI_LOGICAL", "MPI_2INT", "MPI_2INTEGER",
	};
	char name[MOST_NAME] = "";
	int length = 0;

	if (mpi.Type_get_name(type, (word)name, (word)&length))
		return 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(name, names[i]))
			return 1;
	return 0;
}

int may_reorder(word type, word op)
{
	int commutes = 0;

	if (same(op, mpi.op_null) || mpi.Op_commutative(op, (word)&commutes) ||
	    !commutes)
		return 0;
	return !own_order()->exact || is_integer(type);
}

const struct shadow *reducing(word comm, word type, word op,
                              enum creation creation, int order)
{
	const struct shadow *shadow = shadow_of(comm, creation, order);

	return shadow && may_reorder(type, op) ? shadow : NULL;
}
