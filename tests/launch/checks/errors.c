/* Errors: their class, whose handler sees them, and that all goes on after. */
#include "checks.h"

static MPI_Comm returning(MPI_Comm comm)
{
	MPI_Comm made;

	MPI_Comm_dup(comm, &made);
	MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
	return made;
}

static int is(int code, int expected)
{
	int class;

	MPI_Error_class(code, &class);
	return class == expected;
}

/* The shadow has to survive an error as the communicator does. */
static int ends_well(MPI_Comm made, int good)
{
	good &= works(made);
	MPI_Comm_free(&made);
	return good;
}

static int root_out_of_range(MPI_Comm comm)
{
	MPI_Comm made = returning(comm);
	int data[2] = {0}, out[2], n = size_of(comm), good = works(made);

	good &= is(MPI_Bcast(data, 2, MPI_INT, n, made), MPI_ERR_ROOT);
	good &= is(MPI_Bcast(data, 2, MPI_INT, -7, made), MPI_ERR_ROOT);
	good &= is(MPI_Reduce(data, out, 2, MPI_INT, MPI_SUM, n, made),
	           MPI_ERR_ROOT);
	return ends_well(made, good);
}

static int operation_that_does_not_fit(MPI_Comm comm)
{
	MPI_Comm made = returning(comm);
	double in[2] = {0}, out[2];
	int good = works(made);

	good &= is(MPI_Allreduce(in, out, 2, MPI_DOUBLE, MPI_BXOR, made),
	           MPI_ERR_OP);
	return ends_well(made, good);
}

static int null_operation(MPI_Comm comm)
{
	MPI_Comm made = returning(comm);
	int in[2] = {0}, out[2], good = works(made);

	good &= is(MPI_Allreduce(in, out, 2, MPI_INT, MPI_OP_NULL, made),
	           MPI_ERR_OP);
	return ends_well(made, good);
}

static int null_datatype(MPI_Comm comm)
{
	MPI_Comm made = returning(comm);
	int data[2] = {0}, good = works(made);

	good &= is(MPI_Bcast(data, 2, MPI_DATATYPE_NULL, 0, made), MPI_ERR_TYPE);
	return ends_well(made, good);
}

static int null_communicator(MPI_Comm comm)
{
	int good;

	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	good = is(MPI_Barrier(MPI_COMM_NULL), MPI_ERR_COMM);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
	return good;
}

static MPI_Comm seen;
static int calls;

static void keep(MPI_Comm *comm, int *code, ...)
{
	(void)code;
	seen = *comm;
	calls++;
}

/* The application's, not its shadow, and once. */
static int handler_sees_the_communicator(MPI_Comm comm)
{
	double in[2] = {0}, out[2];
	MPI_Errhandler handler;
	MPI_Comm made;
	int good;

	MPI_Comm_dup(comm, &made);
	good = works(made);
	MPI_Comm_create_errhandler(keep, &handler);
	MPI_Comm_set_errhandler(made, handler);
	calls = 0;
	MPI_Allreduce(in, out, 2, MPI_DOUBLE, MPI_BXOR, made);
	good &= calls == 1 && seen == made;
	MPI_Errhandler_free(&handler);
	return ends_well(made, good);
}

static int handler_of_a_communicator_without_shadow(MPI_Comm comm)
{
	double in[2] = {0}, out[2];
	MPI_Errhandler handler, kept;
	MPI_Comm made;
	int good;

	MPI_Comm_dup(comm, &made);
	MPI_Comm_create_errhandler(keep, &handler);
	MPI_Comm_set_errhandler(made, handler);
	good = works(made); /* makes one, which leaves the handler where it is */
	MPI_Comm_get_errhandler(made, &kept);
	good &= kept == handler;
	MPI_Errhandler_free(&kept);
	MPI_Errhandler_free(&handler);
	calls = 0;
	MPI_Reduce(in, out, 2, MPI_DOUBLE, MPI_BXOR, 0, made);
	good &= calls == 1 && seen == made;
	return ends_well(made, good);
}

#if MPI_VERSION < 4
/* Found under the shim alone, by those who look for them. */
int MPI_Allreduce_c(const void *in, void *out, MPI_Count count,
                    MPI_Datatype type, MPI_Op op, MPI_Comm comm)
	__attribute__((weak));
int MPI_Allgatherv_c(const void *in, MPI_Count in_count, MPI_Datatype in_type,
                     void *out, const MPI_Count *counts, const MPI_Aint *places,
                     MPI_Datatype type, MPI_Comm comm) __attribute__((weak));

static int large_counts_that_do_not_fit(MPI_Comm comm)
{
	MPI_Count counts[MOST_RANKS];
	MPI_Aint places[MOST_RANKS] = {0};
	MPI_Errhandler handler;
	MPI_Comm made[2];
	int good = 1;

	if (!MPI_Allreduce_c || !MPI_Allgatherv_c)
		return 1;
	for (int i = 0; i < MOST_RANKS; i++)
		counts[i] = (MPI_Count)1 << 40;
	MPI_Comm_create_errhandler(keep, &handler);
	MPI_Comm_dup(comm, &made[0]); /* with a shadow, and without one */
	MPI_Comm_dup(MPI_COMM_SELF, &made[1]);
	for (int i = 0; i < 2; i++) {
		good &= works(made[i]);
		MPI_Comm_set_errhandler(made[i], handler);
		calls = 0;
		good &= is(MPI_Allreduce_c(NULL, NULL, counts[0], MPI_INT, MPI_SUM,
		                           made[i]), MPI_ERR_COUNT);
		good &= calls == 1 && seen == made[i];
		good &= is(MPI_Allgatherv_c(NULL, 0, MPI_INT, NULL, counts, places,
		                            MPI_INT, made[i]), MPI_ERR_COUNT);
		good &= calls == 2 && seen == made[i];
		MPI_Comm_free(&made[i]);
	}
	MPI_Errhandler_free(&handler);
	return good;
}
#endif

const struct check errors[] = {
	CHECK(root_out_of_range), CHECK(operation_that_does_not_fit),
	CHECK(null_operation), CHECK(null_datatype), CHECK(null_communicator),
	CHECK(handler_sees_the_communicator),
	CHECK(handler_of_a_communicator_without_shadow),
#if MPI_VERSION < 4
	CHECK(large_counts_that_do_not_fit),
#endif
	{0},
};
