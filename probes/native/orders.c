/* Start each order: a communicator in which all ranks can call. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TROUBLE_SIZE (MPI_MAX_ERROR_STRING + 64)

/* Find who is where; return whether each rank has a place of its own. */
static int find_places(struct order *order)
{
	int i, key;

	order->members = allocate(ranks, sizeof *order->members);
	memset(order->members, -1, ranks * sizeof *order->members);
	for (i = 0; i < order->keys.count && i < ranks; i++) {
		key = (int)order->keys.values[i];
		if (key >= 0 && key < ranks)
			order->members[key] = i;
	}
	order->place = rank < order->keys.count ? (int)order->keys.values[rank] : 0;
	for (i = 0; i < ranks; i++)
		if (order->members[i] < 0)
			return 0;
	return order->keys.count == ranks;
}

/* Make the communicator and let it connect; return what is in the way, or "". */
static void try_order(struct order *order, char *trouble)
{
	const struct text *missing = apply_settings(order);
	struct vectors vectors;
	int code, length;

	if (missing) {
		snprintf(trouble, TROUBLE_SIZE, "the library has no variable %.*s",
			 missing->length, missing->start);
		return;
	}
	if (!find_places(order)) {
		snprintf(trouble, TROUBLE_SIZE,
			 "its keys are no permutation of %d ranks", ranks);
		return;
	}
	code = MPI_Comm_split(MPI_COMM_WORLD, 0, order->place, &order->comm);
	if (code == MPI_SUCCESS) {
		vectors = make_vectors(spec.sizes.values[0]);
		prepare(order, &vectors);
		code = call(order, &vectors);
		free_vectors(&vectors);
	}
	if (code != MPI_SUCCESS)
		MPI_Error_string(code, trouble, &length);
}

/* Return whether all ranks can call an order; rank 0 says if not. */
static int start_order(struct order *order)
{
	char trouble[TROUBLE_SIZE] = "";
	int first, mine;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	try_order(order, trouble);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	mine = *trouble ? rank : ranks;
	MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (first == ranks) {
		MPI_Comm_set_errhandler(order->comm, MPI_ERRORS_ARE_FATAL);
		order->times = allocate((size_t)spec.repeats, sizeof(double));
		return 1;
	}
	MPI_Bcast(trouble, sizeof trouble, MPI_CHAR, first, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("{\"order\": \"%.*s\", \"trouble\": ", order->name.length,
		       order->name.start);
		print_quoted(trouble);
		puts("}");
	}
	return 0;
}

/* Leave out the orders that cannot be started. */
void start_orders(void)
{
	int i, kept = 0;

	find_settings();
	for (i = 0; i < spec.count; i++)
		if (start_order(&spec.orders[i]))
			spec.orders[kept++] = spec.orders[i];
	spec.count = kept;
}
