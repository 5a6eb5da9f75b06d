/* Times one collective: `collectives allreduce|allgather BYTES CALLS`. BYTES are those of
 * the whole vector. Prints the seconds of a call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 4)
        return fprintf(stderr, "usage: %s allreduce|allgather BYTES CALLS\n", argv[0]), 2;
    int rank, ranks, count = atoi(argv[2]) / (int)sizeof(float), calls = atoi(argv[3]);
    int gather = !strcmp(argv[1], "allgather");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    float *from = calloc(count, sizeof(float)), *into = calloc(count, sizeof(float));
    for (int i = 0; i < count; i++)
        from[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int call = 0; call < calls; call++)
        if (gather)
            MPI_Allgather(from, count / ranks, MPI_FLOAT, into, count / ranks, MPI_FLOAT,
                          MPI_COMM_WORLD);
        else
            MPI_Allreduce(from, into, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mine = (MPI_Wtime() - begin) / calls, slowest;
    int wrong = into[count / ranks * ranks - 1] != (gather ? 1 : ranks), any;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("%.9e\n", slowest);
    MPI_Finalize();
    return !rank && any;
}
