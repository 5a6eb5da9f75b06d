/* The largest of some times and the sum of their squares, kept up to date. */
#ifndef PEAK_H
#define PEAK_H

#include <math.h>

#include "kernel.h"

static void change_peak(peak *k, double old, double new)
{
    k->holders -= old == k->top;
    if (new > k->top) {
        k->top = new;
        k->holders = 0;
    }
    k->holders += new == k->top;
}

static void find_peak(peak *k, const double *values, int64_t n)
{
    k->top = 0;
    k->holders = 0;
    for (int64_t i = 0; i < n; i++)
        k->top = values[i] > k->top ? values[i] : k->top;
    for (int64_t i = 0; i < n; i++)
        k->holders += values[i] == k->top;
}

static wide square(double seconds, double units)
{
    uint64_t fine = (uint64_t)(seconds * units);
    return (wide)fine * fine;
}

/* Of a step: what the tie-break takes for its paths. */
static void find_root(const problem *p, peak *step)
{
    step->root = p->alpha ? sqrt((double)step->squares) / p->path_fine : step->top;
}

#endif
