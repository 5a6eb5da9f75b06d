/* The entry points that applications call instead of the library's. */
#include "shim.h"

#pragma GCC visibility push(default)

/* What every entry point ends with; `comm` and `on` are where it was asked to
 * run and where it runs. */
#define RUN(collective, bytes, call) \
	told(comm, on, COUNTED(collective, comm, bytes, call))

/* The same of a blocking call. */
#define SEEN(collective, bytes, call) \
	RUN(collective, bytes, WATCHED(collective, comm, bytes, call))

int MPI_Allreduce(word in, word out, word count, word type, word op, word comm)
{
	word on = reducing(comm, type, op, CREATE,
	                   ORDER(ALLREDUCE, payload((int)count, type)));

	return SEEN(ALLREDUCE, payload((int)count, type),
	           mpi.Allreduce(in, out, count, type, op, on));
}

int MPI_Allreduce_c(word in, word out, word count, word type, word op, word comm)
{
	word on = reducing(comm, type, op, CREATE,
	                   ORDER(ALLREDUCE, payload(count, type)));

	return SEEN(ALLREDUCE, payload(count, type),
	           WITH_COUNT(Allreduce, count, on, in, out, count, type, op,
	                      on));
}

int MPI_Iallreduce(word in, word out, word count, word type, word op, word comm,
                   word request)
{
	word on = reducing(comm, type, op, IF_THERE,
	                   ORDER(ALLREDUCE, payload((int)count, type)));

	return RUN(ALLREDUCE, payload((int)count, type),
	           mpi.Iallreduce(in, out, count, type, op, on, request));
}

int MPI_Iallreduce_c(word in, word out, word count, word type, word op,
                     word comm, word request)
{
	word on = reducing(comm, type, op, IF_THERE,
	                   ORDER(ALLREDUCE, payload(count, type)));

	return RUN(ALLREDUCE, payload(count, type),
	           WITH_COUNT(Iallreduce, count, on, in, out, count, type, op, on,
	                      request));
}

/* Where a reduction to a root belongs. */
static word reducing_to(word comm, word type, word op, word *root,
                        enum creation creation, int order)
{
	word on = reducing(comm, type, op, creation, order);

	return on == comm ? comm :
	       rooted(shadow_of(comm, creation, order), comm, root);
}

int MPI_Reduce(word in, word out, word count, word type, word op, word root,
               word comm)
{
	word on = reducing_to(comm, type, op, &root, CREATE,
	                      ORDER(REDUCE, payload((int)count, type)));

	return SEEN(REDUCE, payload((int)count, type),
	           mpi.Reduce(in, out, count, type, op, root, on));
}

int MPI_Reduce_c(word in, word out, word count, word type, word op, word root,
                 word comm)
{
	word on = reducing_to(comm, type, op, &root, CREATE,
	                      ORDER(REDUCE, payload(count, type)));

	return SEEN(REDUCE, payload(count, type),
	           WITH_COUNT(Reduce, count, on, in, out, count, type, op, root,
	                      on));
}

int MPI_Ireduce(word in, word out, word count, word type, word op, word root,
                word comm, word request)
{
	word on = reducing_to(comm, type, op, &root, IF_THERE,
	                      ORDER(REDUCE, payload((int)count, type)));

	return RUN(REDUCE, payload((int)count, type),
	           mpi.Ireduce(in, out, count, type, op, root, on, request));
}

int MPI_Ireduce_c(word in, word out, word count, word type, word op, word root,
                  word comm, word request)
{
	word on = reducing_to(comm, type, op, &root, IF_THERE,
	                      ORDER(REDUCE, payload(count, type)));

	return RUN(REDUCE, payload(count, type),
	           WITH_COUNT(Ireduce, count, on, in, out, count, type, op, root,
	                      on, request));
}

int MPI_Bcast(word data, word count, word type, word root, word comm)
{
	int order = ORDER(BCAST, payload((int)count, type));
	word on = rooted(shadow_of(comm, CREATE, order), comm, &root);

	return SEEN(BCAST, payload((int)count, type),
	           mpi.Bcast(data, count, type, root, on));
}

int MPI_Bcast_c(word data, word count, word type, word root, word comm)
{
	int order = ORDER(BCAST, payload(count, type));
	word on = rooted(shadow_of(comm, CREATE, order), comm, &root);

	return SEEN(BCAST, payload(count, type),
	           WITH_COUNT(Bcast, count, on, data, count, type, root, on));
}

int MPI_Ibcast(word data, word count, word type, word root, word comm,
               word request)
{
	int order = ORDER(BCAST, payload((int)count, type));
	word on = rooted(shadow_of(comm, IF_THERE, order), comm, &root);

	return RUN(BCAST, payload((int)count, type),
	           mpi.Ibcast(data, count, type, root, on, request));
}

int MPI_Ibcast_c(word data, word count, word type, word root, word comm,
                 word request)
{
	int order = ORDER(BCAST, payload(count, type));
	word on = rooted(shadow_of(comm, IF_THERE, order), comm, &root);

	return RUN(BCAST, payload(count, type),
	           WITH_COUNT(Ibcast, count, on, data, count, type, root, on,
	                      request));
}

int MPI_Barrier(word comm)
{
	const struct shadow *shadow = shadow_of(comm, CREATE, ORDER(BARRIER, 0));
	word on = shadow ? shadow->comm : comm;

	return SEEN(BARRIER, 0, mpi.Barrier(on));
}

int MPI_Ibarrier(word comm, word request)
{
	const struct shadow *shadow = shadow_of(comm, IF_THERE, ORDER(BARRIER, 0));
	word on = shadow ? shadow->comm : comm;

	return RUN(BARRIER, 0, mpi.Ibarrier(on, request));
}

/* Persistent ones: the request is MPI's own, made on the shadow. Making it may
 * synchronise, so it makes a shadow, too; it counts as one call, whatever is
 * started later. */

int MPI_Allreduce_init(word in, word out, word count, word type, word op,
                       word comm, word info, word request)
{
	word on = reducing(comm, type, op, CREATE,
	                   ORDER(ALLREDUCE, payload((int)count, type)));

	return RUN(ALLREDUCE, payload((int)count, type),
	           IF_KNOWN(Allreduce_init, on, in, out, count, type, op, on, info,
	                    request));
}

int MPI_Allreduce_init_c(word in, word out, word count, word type, word op,
                         word comm, word info, word request)
{
	word on = reducing(comm, type, op, CREATE,
	                   ORDER(ALLREDUCE, payload(count, type)));

	return RUN(ALLREDUCE, payload(count, type),
	           WITH_COUNT(Allreduce_init, count, on, in, out, count, type, op,
	                      on, info, request));
}

int MPI_Reduce_init(word in, word out, word count, word type, word op, word root,
                    word comm, word info, word request)
{
	word on = reducing_to(comm, type, op, &root, CREATE,
	                      ORDER(REDUCE, payload((int)count, type)));

	return RUN(REDUCE, payload((int)count, type),
	           IF_KNOWN(Reduce_init, on, in, out, count, type, op, root, on,
	                    info, request));
}

int MPI_Reduce_init_c(word in, word out, word count, word type, word op,
                      word root, word comm, word info, word request)
{
	word on = reducing_to(comm, type, op, &root, CREATE,
	                      ORDER(REDUCE, payload(count, type)));

	return RUN(REDUCE, payload(count, type),
	           WITH_COUNT(Reduce_init, count, on, in, out, count, type, op,
	                      root, on, info, request));
}

int MPI_Bcast_init(word data, word count, word type, word root, word comm,
                   word info, word request)
{
	int order = ORDER(BCAST, payload((int)count, type));
	word on = rooted(shadow_of(comm, CREATE, order), comm, &root);

	return RUN(BCAST, payload((int)count, type),
	           IF_KNOWN(Bcast_init, on, data, count, type, root, on, info,
	                    request));
}

int MPI_Bcast_init_c(word data, word count, word type, word root, word comm,
                     word info, word request)
{
	int order = ORDER(BCAST, payload(count, type));
	word on = rooted(shadow_of(comm, CREATE, order), comm, &root);

	return RUN(BCAST, payload(count, type),
	           WITH_COUNT(Bcast_init, count, on, data, count, type, root, on,
	                      info, request));
}

int MPI_Barrier_init(word comm, word info, word request)
{
	const struct shadow *shadow = shadow_of(comm, CREATE, ORDER(BARRIER, 0));
	word on = shadow ? shadow->comm : comm;

	return RUN(BARRIER, 0, IF_KNOWN(Barrier_init, on, on, info, request));
}

/* As Open MPI 4.1 has them. */
#define EXTENSION(name, ...) \
	int MPIX_##name(__VA_ARGS__) __attribute__((alias("MPI_" #name)));
EXTENSION(Allreduce_init, word, word, word, word, word, word, word, word)
EXTENSION(Reduce_init, word, word, word, word, word, word, word, word, word)
EXTENSION(Bcast_init, word, word, word, word, word, word, word)
EXTENSION(Barrier_init, word, word, word)

int MPI_Allgather(word in, word in_count, word in_type, word out, word count,
                  word type, word comm)
{
	return COUNTED(ALLGATHER, comm, payload((int)count, type) * members_of(comm),
	               WATCHED(ALLGATHER, comm,
	                       payload((int)count, type) * members_of(comm),
	                       gather(in, (int)in_count, in_type, out, (int)count,
	                              type, comm, 0)));
}

int MPI_Allgather_c(word in, word in_count, word in_type, word out, word count,
                    word type, word comm)
{
	return COUNTED(ALLGATHER, comm, payload(count, type) * members_of(comm),
	               gather(in, in_count, in_type, out, count, type, comm, 1));
}

int MPI_Allgatherv(word in, word in_count, word in_type, word out, word counts,
                   word places, word type, word comm)
{
	return COUNTED(ALLGATHER, comm, payload(total(counts, comm, 0), type),
	               gatherv(in, (int)in_count, in_type, out,
	                       (const void *)counts, (const void *)places, type,
	                       comm, 0));
}

int MPI_Allgatherv_c(word in, word in_count, word in_type, word out, word counts,
                     word places, word type, word comm)
{
	return COUNTED(ALLGATHER, comm, payload(total(counts, comm, 1), type),
	               gatherv(in, in_count, in_type, out, (const void *)counts,
	                       (const void *)places, type, comm, 1));
}
