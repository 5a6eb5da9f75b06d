/* Drives the tuner plugin as NCCL does: PLUGIN RANKS NODES ALGORITHMS [time].
 *
 * Asks each version for each function, size and set of what is impossible, as ranks
 * whose own costs differ. Prints what it changes, and counts as
 * wrong what NCCL could not live with: ranks that would differ, too. */
#include "../../cloudcoll/launch/shim/nccl/tuner/tuner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROTOCOLS = 3, MEMBERS = 11, CALLS = 10000, TURNS = 100, OLDEST = 2, NEWEST = 6 };
#define IMPOSSIBLE (-1.0f)

static struct tuner_v2 *v2;
static struct tuner_v3 *v3;
static struct tuner_v4 *v4;
static struct tuner_v5 *v5;
static struct tuner_v6 *v6;
static int algorithms, wrong;
static float *own, *costs; /* before and after; as large as NCCL's and no more */

static void check(int holds, const char *what)
{
	if (!holds && wrong++ < 9)
		printf("wrong: %s\n", what);
}

static void load(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!plugin) {
		puts(dlerror());
		exit(1);
	}
	v2 = dlsym(plugin, "ncclTunerPlugin_v2");
	v3 = dlsym(plugin, "ncclTunerPlugin_v3");
	v4 = dlsym(plugin, "ncclTunerPlugin_v4");
	v5 = dlsym(plugin, "ncclTunerPlugin_v5");
	v6 = dlsym(plugin, "ncclTunerPlugin_v6");
	dlclose(plugin); /* as NCCL with its last communicator: it has to stay */
}

/* What a rank thinks of each; some is impossible to all. */
static void fill(int member, int without)
{
	for (int i = 0; i < algorithms * PROTOCOLS; i++) {
		int algorithm = i / PROTOCOLS;

		own[i] = (float)((member * 7 + i * 5) % 11 + 1);
		if (algorithm == without || (algorithm > RING && algorithm < PAT) ||
		    (i + without) % 7 == 6)
			own[i] = IMPOSSIBLE;
	}
	memcpy(costs, own, sizeof *costs * (size_t)(algorithms * PROTOCOLS));
}

/* As NCCL's topoGetAlgoInfo; -1 if nothing is possible. */
static int least(const float *of)
{
	int found = -1;

	for (int i = 0; i < algorithms * PROTOCOLS; i++)
		if (of[i] >= 0 && (found < 0 || of[i] < of[found]))
			found = i;
	return found;
}

static int begin(int version, size_t ranks, size_t nodes, void **context)
{
	switch (version) {
	case 2:
		return v2->init(ranks, nodes, NULL, context);
	case 3:
		return v3->init(ranks, nodes, NULL, context);
	case 4:
		return v4->init(ranks, nodes, NULL, context);
	case 5:
		return v5->init(context, 1, ranks, nodes, NULL, NULL, NULL);
	default:
		return v6->as_v5.init(context, 1, ranks, nodes, NULL, NULL, NULL);
	}
}

static int choose(int version, void *context, int function, size_t bytes, int *channels)
{
	float **table = (float **)costs;
	int algorithm = -1, protocol = -1, code;

	switch (version) {
	case 2:
		code = v2->choose(context, function, bytes, 0, 0, 1, &algorithm, &protocol,
		                  channels);
		check(algorithm == -1 && protocol == -1, "version 2 chooses");
		return code;
	case 3:
		return v3->choose(context, function, bytes, 1, table, algorithms, PROTOCOLS,
		                  channels);
	case 4:
		return v4->choose(context, function, bytes, 1, table, algorithms, PROTOCOLS, 1,
		                  channels);
	case 5:
		return v5->choose(context, function, bytes, 1, table, algorithms, PROTOCOLS, 1,
		                  channels);
	default:
		return v6->as_v5.choose(context, function, bytes, 1, table, algorithms,
		                        PROTOCOLS, 1, channels);
	}
}

static int end(int version, void *context)
{
	switch (version) {
	case 2:
		return v2->destroy(context);
	case 3:
		return v3->destroy(context);
	case 4:
		return v4->destroy(context);
	case 5:
		return v5->destroy(context);
	default:
		return v6->as_v5.destroy(context);
	}
}

/* What was done to the costs of one rank: return the algorithm chosen, -1 for none. */
static int chosen(void)
{
	int before = least(own), after = least(costs), algorithm = -1;

	for (int i = 0; i < algorithms * PROTOCOLS; i++)
		if (memcmp(&costs[i], &own[i], sizeof *own)) {
			check(own[i] >= 0, "what is impossible is offered");
			check(algorithm < 0 || algorithm == i / PROTOCOLS, "two are chosen");
			algorithm = i / PROTOCOLS;
		}
	if (algorithm < 0) {
		check(before == after, "NCCL's own choice is another");
		return -1;
	}
	check(after / PROTOCOLS == algorithm, "what is chosen does not win");
	for (int i = algorithm * PROTOCOLS; i < (algorithm + 1) * PROTOCOLS; i++)
		check(own[i] < 0 || own[i] >= own[after], "the protocol is not NCCL's");
	return algorithm;
}

/* One call by all ranks; return what all of them choose. */
static int ask(int version, void *context, int function, size_t bytes, int without,
               int *channels)
{
	int first = -1, first_channels = 0;

	for (int member = 0; member < MEMBERS; member++) {
		int algorithm;

		fill(member, without);
		*channels = 0;
		check(!choose(version, context, function, bytes, channels), "it fails");
		algorithm = chosen();
		if (!member) {
			first = algorithm;
			first_channels = *channels;
		}
		check(algorithm == first && *channels == first_channels, "ranks differ");
	}
	return first;
}

static void ask_all(int version, void *context)
{
	for (int function = -1; function < 16; function++)
		for (int shift = -1; shift < 44; shift += 3) {
			size_t bytes = shift < 0 ? 0 : (size_t)1 << shift;

			for (int without = -1; without <= PAT; without++) {
				int channels;
				int found = ask(version, context, function, bytes, without, &channels);

				if (found >= 0 || channels)
					printf("v%d %d %zu without %d: %d %d\n", version, function, bytes,
					       without, found, channels);
			}
		}
}

/* Of the fastest turn: what else runs only adds to it. */
static void measure(void *context)
{
	double least = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		struct timespec from, to;
		double taken;
		int channels;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		for (int i = 0; i < CALLS; i++) {
			fill(0, -1);
			choose(NEWEST, context, ALLREDUCE, (size_t)i << 8, &channels);
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		taken = (double)(to.tv_sec - from.tv_sec) * 1e9 +
		        (double)(to.tv_nsec - from.tv_nsec);
		if (!turn || taken < least)
			least = taken;
	}
	printf("%.0f ns\n", least / CALLS);
}

int main(int count, char **words)
{
	size_t ranks, nodes;

	if (count < 5)
		return 2;
	load(words[1]);
	ranks = (size_t)atol(words[2]);
	nodes = (size_t)atol(words[3]);
	algorithms = atoi(words[4]);
	own = calloc((size_t)(algorithms * PROTOCOLS), sizeof *own);
	costs = calloc((size_t)(algorithms * PROTOCOLS), sizeof *costs);
	for (int version = OLDEST; version <= NEWEST; version++) {
		void *context = costs;

		check(!begin(version, ranks, nodes, &context), "it does not begin");
		if (count > 5 && version == NEWEST)
			measure(context);
		else if (count == 5)
			ask_all(version, context);
		check(!end(version, context), "it does not end");
	}
	free(own);
	free(costs);
	printf("%d wrong\n", wrong);
	return 0;
}
