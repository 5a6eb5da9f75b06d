/* Conjugate gradients for the five-point Laplacian on a grid of ROWS x COLUMNS ranks,
 * each with EDGE x EDGE points: `stencil ROWS COLUMNS EDGE ITERATIONS`. Every iteration
 * trades edges with four neighbours and takes two sums of 8 bytes over all ranks.
 * Neighbours trade in pairs: even with the next, then odd with the next, first along
 * rows, then along columns. Prints seconds of an iteration, without computation. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAYS = 4 };

static int edge;
static double *halo; /* received: left, right, above, below */

/* Trade edges of `x`; a rank that is not there leaves zeros. */
static void trade(const double *x, const int *peer, const int *order, double *sent)
{
    for (int i = 0; i < WAYS; i++) {
        int way = order[i];
        for (int k = 0; k < edge; k++)
            sent[k] = way == 0 ? x[k * edge] : way == 1 ? x[k * edge + edge - 1]
                    : way == 2 ? x[k] : x[(edge - 1) * edge + k];
        MPI_Sendrecv(sent, edge, MPI_DOUBLE, peer[way], 0, halo + way * edge, edge,
                     MPI_DOUBLE, peer[way], 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void multiply(const double *x, double *y)
{
    for (int r = 0; r < edge; r++)
        for (int c = 0; c < edge; c++) {
            double left = c ? x[r * edge + c - 1] : halo[r];
            double right = c < edge - 1 ? x[r * edge + c + 1] : halo[edge + r];
            double above = r ? x[(r - 1) * edge + c] : halo[2 * edge + c];
            double below = r < edge - 1 ? x[(r + 1) * edge + c] : halo[3 * edge + c];
            y[r * edge + c] = 4 * x[r * edge + c] - left - right - above - below;
        }
}

static double dot(const double *a, const double *b)
{
    double mine = 0, all;
    for (int i = 0; i < edge * edge; i++)
        mine += a[i] * b[i];
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Sets when the first iteration begins. */
static double solve(int iterations, const int *peer, const int *order, double *begin)
{
    int points = edge * edge;
    double *x = calloc(points, sizeof(double)), *r = calloc(points, sizeof(double));
    double *p = calloc(points, sizeof(double)), *q = calloc(points, sizeof(double));
    double *sent = calloc(edge, sizeof(double));
    for (int i = 0; i < points; i++)
        r[i] = p[i] = 1;
    double rest = dot(r, r);
    *begin = MPI_Wtime();
    for (int n = 0; n < iterations; n++) {
        trade(p, peer, order, sent);
        multiply(p, q);
        double step = rest / dot(p, q), before = rest;
        for (int i = 0; i < points; i++)
            x[i] += step * p[i], r[i] -= step * q[i];
        rest = dot(r, r);
        for (int i = 0; i < points; i++)
            p[i] = r[i] + rest / before * p[i];
    }
    free(x), free(r), free(p), free(q), free(sent);
    return rest;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 5)
        return fprintf(stderr, "usage: %s ROWS COLUMNS EDGE ITERATIONS\n", argv[0]), 2;
    int rank, rows = atoi(argv[1]), columns = atoi(argv[2]), iterations = atoi(argv[4]);
    edge = atoi(argv[3]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int row = rank / columns, column = rank % columns;
    int peer[WAYS] = {column ? rank - 1 : MPI_PROC_NULL,
                      column < columns - 1 ? rank + 1 : MPI_PROC_NULL,
                      row ? rank - columns : MPI_PROC_NULL,
                      row < rows - 1 ? rank + columns : MPI_PROC_NULL};
    int order[WAYS] = {!(column % 2), column % 2, 2 + !(row % 2), 2 + row % 2};
    halo = calloc(WAYS * edge, sizeof(double));
    double begin, rest = solve(iterations, peer, order, &begin);
    double mine = (MPI_Wtime() - begin) / iterations, slowest;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("%.9e\n", slowest);
    MPI_Finalize();
    return !(rest >= 0);
}
