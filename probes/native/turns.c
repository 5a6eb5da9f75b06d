/* Take turns: timing.py's TimedJob, with an order's communicator as its group. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_CALLS 200
#define SLOW_S 0.1
#define SMALL (1 << 20)
#define SPARE 1.25
#define MIN_SAMPLES 6

static double *calls; /* seconds of one call: of each size, of each order */
static double end;
static int past; /* the last size that there is time for, and one */

/* Return seconds of one call, averaged, on this rank. */
static double call_times(struct order *order, struct vectors *vectors, int times)
{
	double elapsed = 0, start;
	int i;

	for (i = 0; i < times; i++) {
		prepare(order, vectors);
		MPI_Barrier(order->comm);
		start = MPI_Wtime();
		call(order, vectors);
		elapsed += MPI_Wtime() - start;
	}
	return elapsed / times;
}

/* Return seconds of one call, averaged, on the slowest rank. */
static double time_call(struct order *order, struct vectors *vectors, int times)
{
	double mine, slowest;

	apply_settings(order);
	mine = call_times(order, vectors, times);
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

/* Return the seconds of one call of each order. */
static double *calls_at(int size)
{
	return calls + (size_t)size * spec.count;
}

static int all_slow(int size)
{
	int i;

	for (i = 0; i < spec.count; i++)
		if (calls_at(size)[i] <= SLOW_S)
			return 0;
	return 1;
}

/* Call everything once; after slow calls that aren't small, larger sizes are left to be
 * slower in proportion. */
static void warm_up(void)
{
	const double *sizes = spec.sizes.values;
	struct vectors vectors;
	int i, size;

	for (size = 0; size < spec.sizes.count; size++) {
		if (size && sizes[size - 1] >= SMALL && all_slow(size - 1)) {
			for (i = 0; i < spec.count; i++)
				calls_at(size)[i] = calls_at(size - 1)[i] *
						    sizes[size] / sizes[size - 1];
			continue;
		}
		vectors = make_vectors(sizes[size]);
		for (i = 0; i < spec.count; i++)
			calls_at(size)[i] = time_call(&spec.orders[i], &vectors, 1);
		free_vectors(&vectors);
	}
}

static int calls_of(double seconds)
{
	double wanted = spec.min_seconds / fmax(seconds, 1e-9);

	return wanted < 1 ? 1 : wanted > MAX_CALLS ? MAX_CALLS : (int)wanted;
}

/* Return about how long one measurement of every order takes. */
static double round_s(int size)
{
	double sum = 0;
	int i;

	for (i = 0; i < spec.count; i++)
		sum += calls_at(size)[i] * calls_of(calls_at(size)[i]);
	return sum;
}

/* Return about how many seconds the job will still take. */
static double left_s(int size, int repeat)
{
	double left = (spec.repeats - repeat - 1) * round_s(size);

	while (++size < past)
		left += spec.repeats * round_s(size);
	return fmax(0, fmin(left, end - MPI_Wtime()));
}

static int by_size(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

/* Whether every order's ratio to the reference's is known well enough. */
static int is_narrow(int count)
{
	const struct order *reference = NULL;
	int cut = (int)fmax(0, count / 2.0 - 0.98 * sqrt(count)), i, k;
	double *ratios, width, median;

	for (i = 0; i < spec.count; i++)
		if (same_text(spec.orders[i].name, spec.reference))
			reference = &spec.orders[i];
	if (!reference || count < MIN_SAMPLES)
		return 0;
	ratios = allocate(count, sizeof *ratios);
	for (i = 0, width = 0; i < spec.count && width <= 2 * spec.narrow; i++) {
		for (k = 0; k < count; k++)
			ratios[k] = spec.orders[i].times[k] / reference->times[k];
		qsort(ratios, count, sizeof *ratios, by_size);
		median = (ratios[(count - 1) / 2] + ratios[count / 2]) / 2;
		width = (ratios[count - 1 - cut] - ratios[cut]) / median;
	}
	free(ratios);
	return width <= 2 * spec.narrow;
}

/* Rank 0 decides: clocks differ. */
static int enough(int size, int done, double box)
{
	/* Small sizes may take from large ones, but nothing from the user. */
	if (done < spec.least)
		box = end;
	return share(MPI_Wtime() + round_s(size) > box || is_narrow(done));
}

static void measure_order(int size, int number, int repeat, struct vectors *vectors)
{
	struct order *order = &spec.orders[number];
	int times = calls_of(calls_at(size)[number]), i;
	long long mine, wrong;

	for (i = 0; i < vectors->received; i++)
		vectors->recv[i] = -1;
	order->times[repeat] = time_call(order, vectors, times);
	mine = count_wrong(order, vectors);
	MPI_Allreduce(&mine, &wrong, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank)
		return;
	printf("{\"op\": \"%s\", \"bytes\": %.0f, \"order\": \"%.*s\", "
	       "\"repeat\": %d, \"time_us\": %.6f, \"calls\": %d, \"wrong\": %lld, "
	       "\"left_s\": %.3f}\n",
	       operation_names[spec.op], spec.sizes.values[size], order->name.length,
	       order->name.start, repeat, order->times[repeat] * 1e6, times, wrong,
	       left_s(size, repeat));
	fflush(stdout);
}

/* Which order is measured in a turn of a repeat: see whose_turn of timing.py. */
static int whose_turn(int repeat, int turn, int count)
{
	int place;

	if (count % 2 && repeat / count % 2)
		turn = count - 1 - turn;
	place = turn % 2 ? (turn + 1) / 2 : count - turn / 2;
	return (place + repeat) % count;
}

/* Measure every order once per repeat. */
static void measure(int size, double box)
{
	struct vectors vectors = make_vectors(spec.sizes.values[size]);
	int repeat = 0, turn;

	do
		for (turn = 0; turn < spec.count; turn++)
			measure_order(size, whose_turn(repeat, turn, spec.count), repeat,
				      &vectors);
	while (++repeat < spec.repeats && !enough(size, repeat, box));
	free_vectors(&vectors);
}

/* Find the sizes that can be measured often enough, and name the others:
 * sizes_in_time of timing.py. Return the first. */
static int fit_sizes(void)
{
	double left = (end - MPI_Wtime()) / SPARE, sum = 0;
	int first = 0, size;

	past = spec.sizes.count;
	for (size = 0; size < past; size++)
		sum += round_s(size);
	while (first < past - 1 && spec.least * sum > left)
		if (spec.least * round_s(past - 1) > left)
			sum -= round_s(--past);
		else
			sum -= round_s(first++);
	first = share(first);
	past = share(past);
	for (size = 0; size < spec.sizes.count && !rank; size++)
		if (size < first || size >= past)
			printf("{\"spared\": %.0f}\n", spec.sizes.values[size]);
	return first;
}

/* Warm up, then measure size by size. */
void take_turns(double until)
{
	double left, now;
	int size, later;

	end = until;
	calls = allocate((size_t)spec.sizes.count * spec.count, sizeof *calls);
	warm_up();
	for (size = fit_sizes(); size < past; size++) {
		for (left = 0, later = size; later < past; later++)
			left += round_s(later);
		now = MPI_Wtime();
		measure(size, now + (end - now) * round_s(size) / left);
	}
	free(calls);
}
