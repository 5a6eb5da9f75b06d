/* What a program of Fortran whose integers have 8 bytes calls, without a compiler for
 * it: of Intel MPI's library for these. Numbers are those of MPICH's mpif.h. */
#include <stdint.h>
#include <stdio.h>

void mpi_init_(int64_t *code);
void mpi_comm_rank_(int64_t *comm, int64_t *rank, int64_t *code);
void mpi_allreduce_(void *in, void *out, int64_t *count, int64_t *type, int64_t *op,
                    int64_t *comm, int64_t *code);
void mpi_bcast_(void *data, int64_t *count, int64_t *type, int64_t *root,
                int64_t *comm, int64_t *code);
void mpi_barrier_(int64_t *comm, int64_t *code);
void mpi_finalize_(int64_t *code);

int main(void)
{
	int64_t world = 0x44000000, integer8 = 0x4c000831, max = 0x58000001;
	int64_t codes[6], wrong = 0, rank = -1, most = -1, one = 1, root = 1;

	for (int i = 0; i < 6; i++)
		codes[i] = -1; /* all 8 bytes have to be written */
	mpi_init_(&codes[0]);
	mpi_comm_rank_(&world, &rank, &codes[1]);
	mpi_allreduce_(&rank, &most, &one, &integer8, &max, &world, &codes[2]);
	mpi_bcast_(&rank, &one, &integer8, &root, &world, &codes[3]);
	mpi_barrier_(&world, &codes[4]);
	mpi_finalize_(&codes[5]);
	for (int i = 0; i < 6; i++)
		wrong += codes[i] != 0;
	/* At once: ranks' pieces would mix. */
	printf("%ld %ld %ld\n", (long)most, (long)rank, (long)wrong);
	return 0;
}
