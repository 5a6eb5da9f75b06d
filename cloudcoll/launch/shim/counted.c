/* Entry points that only count: what they do belongs to each rank's number, so
 * it stays on the communicator. */
#include "shim.h"

#include <stdlib.h>

#pragma GCC visibility push(default)

int MPI_Alltoall(word in, word in_count, word in_type, word out, word count,
                 word type, word comm)
{
	load_library();
	return COUNTED(ALLTOALL, comm,
	               payload((int)count, type) * members_of(comm),
	               WATCHED(ALLTOALL, comm,
	                       payload((int)count, type) * members_of(comm),
	                       mpi.Alltoall(in, in_count, in_type, out, count, type,
	                                    comm)));
}

int MPI_Alltoall_c(word in, word in_count, word in_type, word out, word count,
                   word type, word comm)
{
	load_library();
	return COUNTED(ALLTOALL, comm, payload(count, type) * members_of(comm),
	               WITH_COUNT(Alltoall, count | in_count, comm, in, in_count,
	                          in_type, out, count, type, comm));
}

int MPI_Ialltoall(word in, word in_count, word in_type, word out, word count,
                  word type, word comm, word request)
{
	load_library();
	return COUNTED(ALLTOALL, comm,
	               payload((int)count, type) * members_of(comm),
	               mpi.Ialltoall(in, in_count, in_type, out, count, type, comm,
	                             request));
}

int MPI_Ialltoall_c(word in, word in_count, word in_type, word out, word count,
                    word type, word comm, word request)
{
	load_library();
	return COUNTED(ALLTOALL, comm, payload(count, type) * members_of(comm),
	               WITH_COUNT(Ialltoall, count | in_count, comm, in, in_count,
	                          in_type, out, count, type, comm, request));
}

int MPI_Alltoallv(word in, word in_counts, word in_places, word in_type,
                  word out, word counts, word places, word type, word comm)
{
	load_library();
	return COUNTED(ALLTOALL, comm, payload(total(counts, comm, 0), type),
	               mpi.Alltoallv(in, in_counts, in_places, in_type, out, counts,
	                             places, type, comm));
}

int MPI_Ialltoallv(word in, word in_counts, word in_places, word in_type,
                   word out, word counts, word places, word type, word comm,
                   word request)
{
	load_library();
	return COUNTED(ALLTOALL, comm, payload(total(counts, comm, 0), type),
	               mpi.Ialltoallv(in, in_counts, in_places, in_type, out, counts,
	                              places, type, comm, request));
}

int MPI_Iallgather(word in, word in_count, word in_type, word out, word count,
                   word type, word comm, word request)
{
	load_library();
	return COUNTED(ALLGATHER, comm,
	               payload((int)count, type) * members_of(comm),
	               mpi.Iallgather(in, in_count, in_type, out, count, type, comm,
	                              request));
}

int MPI_Iallgather_c(word in, word in_count, word in_type, word out, word count,
                     word type, word comm, word request)
{
	load_library();
	return COUNTED(ALLGATHER, comm, payload(count, type) * members_of(comm),
	               WITH_COUNT(Iallgather, count | in_count, comm, in, in_count,
	                          in_type, out, count, type, comm, request));
}

int MPI_Iallgatherv(word in, word in_count, word in_type, word out, word counts,
                    word places, word type, word comm, word request)
{
	load_library();
	return COUNTED(ALLGATHER, comm, payload(total(counts, comm, 0), type),
	               mpi.Iallgatherv(in, in_count, in_type, out, counts, places,
	                               type, comm, request));
}

int MPI_Reduce_scatter(word in, word out, word counts, word type, word op,
                       word comm)
{
	load_library();
	return COUNTED(REDUCE_SCATTER, comm, payload(total(counts, comm, 0), type),
	               WATCHED(REDUCE_SCATTER, comm,
	                       payload(total(counts, comm, 0), type),
	                       mpi.Reduce_scatter(in, out, counts, type, op, comm)));
}

int MPI_Ireduce_scatter(word in, word out, word counts, word type, word op,
                        word comm, word request)
{
	load_library();
	return COUNTED(REDUCE_SCATTER, comm, payload(total(counts, comm, 0), type),
	               mpi.Ireduce_scatter(in, out, counts, type, op, comm, request));
}

int MPI_Reduce_scatter_block(word in, word out, word count, word type, word op,
                             word comm)
{
	return COUNTED(REDUCE_SCATTER, comm,
	               payload((int)count, type) * members_of(comm),
	               scatter(in, out, (int)count, type, op, comm, 0));
}

int MPI_Reduce_scatter_block_c(word in, word out, word count, word type, word op,
                               word comm)
{
	return COUNTED(REDUCE_SCATTER, comm, payload(count, type) * members_of(comm),
	               scatter(in, out, count, type, op, comm, 1));
}

int MPI_Ireduce_scatter_block(word in, word out, word count, word type, word op,
                              word comm, word request)
{
	load_library();
	return COUNTED(REDUCE_SCATTER, comm,
	               payload((int)count, type) * members_of(comm),
	               mpi.Ireduce_scatter_block(in, out, count, type, op, comm,
	                                         request));
}

int MPI_Ireduce_scatter_block_c(word in, word out, word count, word type,
                                word op, word comm, word request)
{
	load_library();
	return COUNTED(REDUCE_SCATTER, comm, payload(count, type) * members_of(comm),
	               WITH_COUNT(Ireduce_scatter_block, count, comm, in, out, count,
	                          type, op, comm, request));
}

static int small_alltoallv(word in, word in_counts, word in_places, word in_type,
                           word out, word counts, word places, word type,
                           word comm)
{
	word lists[] = {in_counts, in_places, counts, places};
	int *small[4], code = ERR_COUNT, fit = 1, n = peers_of(comm);

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

int MPI_Alltoallv_c(word in, word in_counts, word in_places, word in_type,
                    word out, word counts, word places, word type, word comm)
{
	load_library();
	return COUNTED(ALLTOALL, comm, payload(total(counts, comm, 1), type),
	               (mpi.Alltoallv_c ? mpi.Alltoallv_c : small_alltoallv)(
		               in, in_counts, in_places, in_type, out, counts, places,
		               type, comm));
}

static int small_reduce_scatter(word in, word out, word counts, word type,
                                word op, word comm)
{
	int *small = narrowed(counts, members_of(comm));
	int code;

	if (!small)
		return told(comm, 0, ERR_COUNT);
	code = mpi.Reduce_scatter(in, out, (word)small, type, op, comm);
	free(small);
	return code;
}

int MPI_Reduce_scatter_c(word in, word out, word counts, word type, word op,
                         word comm)
{
	load_library();
	return COUNTED(REDUCE_SCATTER, comm, payload(total(counts, comm, 1), type),
	               (mpi.Reduce_scatter_c ? mpi.Reduce_scatter_c :
	                small_reduce_scatter)(in, out, counts, type, op, comm));
}
