/* The entry points that applications call instead of the library's. */
#include "shim.h"

#include <limits.h>

#pragma GCC visibility push(default)

/* A large count for a library that has none. That an application finds the
 * name here may be why it calls it, so small counts have to work. */
#define WITH_COUNT(name, count, comm, ...) \
	(mpi.name##_c ? mpi.name##_c(__VA_ARGS__) : \
	 (count) <= INT_MAX ? mpi.name(__VA_ARGS__) : told(comm, 0, ERR_COUNT))

int MPI_Allreduce(word in, word out, word count, word type, word op, word comm)
{
	word on = reducing(comm, type, op, CREATE);

	return told(comm, on, mpi.Allreduce(in, out, count, type, op, on));
}

int MPI_Allreduce_c(word in, word out, word count, word type, word op, word comm)
{
	word on = reducing(comm, type, op, CREATE);

	return told(comm, on, WITH_COUNT(Allreduce, count, comm, in, out, count,
	                                 type, op, on));
}

int MPI_Iallreduce(word in, word out, word count, word type, word op, word comm,
                   word request)
{
	word on = reducing(comm, type, op, IF_THERE);

	return told(comm, on,
	            mpi.Iallreduce(in, out, count, type, op, on, request));
}

int MPI_Iallreduce_c(word in, word out, word count, word type, word op,
                     word comm, word request)
{
	word on = reducing(comm, type, op, IF_THERE);

	return told(comm, on, WITH_COUNT(Iallreduce, count, comm, in, out, count,
	                                 type, op, on, request));
}

/* Where a reduction to a root belongs. */
static word reducing_to(word comm, word type, word op, word *root,
                        enum creation creation)
{
	word on = reducing(comm, type, op, creation);

	return on == comm ? comm : rooted(shadow_of(comm, creation), comm, root);
}

int MPI_Reduce(word in, word out, word count, word type, word op, word root,
               word comm)
{
	word on = reducing_to(comm, type, op, &root, CREATE);

	return told(comm, on, mpi.Reduce(in, out, count, type, op, root, on));
}

int MPI_Reduce_c(word in, word out, word count, word type, word op, word root,
                 word comm)
{
	word on = reducing_to(comm, type, op, &root, CREATE);

	return told(comm, on, WITH_COUNT(Reduce, count, comm, in, out, count, type,
	                                 op, root, on));
}

int MPI_Ireduce(word in, word out, word count, word type, word op, word root,
                word comm, word request)
{
	word on = reducing_to(comm, type, op, &root, IF_THERE);

	return told(comm, on,
	            mpi.Ireduce(in, out, count, type, op, root, on, request));
}

int MPI_Ireduce_c(word in, word out, word count, word type, word op, word root,
                  word comm, word request)
{
	word on = reducing_to(comm, type, op, &root, IF_THERE);

	return told(comm, on, WITH_COUNT(Ireduce, count, comm, in, out, count, type,
	                                 op, root, on, request));
}

int MPI_Bcast(word data, word count, word type, word root, word comm)
{
	word on = rooted(shadow_of(comm, CREATE), comm, &root);

	return told(comm, on, mpi.Bcast(data, count, type, root, on));
}

int MPI_Bcast_c(word data, word count, word type, word root, word comm)
{
	word on = rooted(shadow_of(comm, CREATE), comm, &root);

	return told(comm, on,
	            WITH_COUNT(Bcast, count, comm, data, count, type, root, on));
}

int MPI_Ibcast(word data, word count, word type, word root, word comm,
               word request)
{
	word on = rooted(shadow_of(comm, IF_THERE), comm, &root);

	return told(comm, on, mpi.Ibcast(data, count, type, root, on, request));
}

int MPI_Ibcast_c(word data, word count, word type, word root, word comm,
                 word request)
{
	word on = rooted(shadow_of(comm, IF_THERE), comm, &root);

	return told(comm, on, WITH_COUNT(Ibcast, count, comm, data, count, type,
	                                 root, on, request));
}

int MPI_Barrier(word comm)
{
	const struct shadow *shadow = shadow_of(comm, CREATE);
	word on = shadow ? shadow->comm : comm;

	return told(comm, on, mpi.Barrier(on));
}

int MPI_Ibarrier(word comm, word request)
{
	const struct shadow *shadow = shadow_of(comm, IF_THERE);
	word on = shadow ? shadow->comm : comm;

	return told(comm, on, mpi.Ibarrier(on, request));
}

int MPI_Allgather(word in, word in_count, word in_type, word out, word count,
                  word type, word comm)
{
	return gather(in, (int)in_count, in_type, out, (int)count, type, comm, 0);
}

int MPI_Allgather_c(word in, word in_count, word in_type, word out, word count,
                    word type, word comm)
{
	return gather(in, in_count, in_type, out, count, type, comm, 1);
}

int MPI_Allgatherv(word in, word in_count, word in_type, word out, word counts,
                   word places, word type, word comm)
{
	return gatherv(in, (int)in_count, in_type, out, (const void *)counts,
	               (const void *)places, type, comm, 0);
}

int MPI_Allgatherv_c(word in, word in_count, word in_type, word out, word counts,
                     word places, word type, word comm)
{
	return gatherv(in, in_count, in_type, out, (const void *)counts,
	               (const void *)places, type, comm, 1);
}

int MPI_Finalize(void)
{
	close_shadows();
	return mpi.Finalize(0);
}
