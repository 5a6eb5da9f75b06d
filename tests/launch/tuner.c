/* Drives the tuner plugin as NCCL does: PLUGIN. Prints what each interface takes. */
#include "../../cloudcoll/launch/shim/nccl/tuner/tuner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ALGORITHMS = 7, PROTOCOLS = 3 };
static float costs[ALGORITHMS][PROTOCOLS];

/* What a rank's own figures are; `without` is impossible. */
static void fill(int rank, int without)
{
	for (int a = 0; a < ALGORITHMS; a++)
		for (int p = 0; p < PROTOCOLS; p++)
			costs[a][p] = a == without || a > RING
			                      ? -1
			                      : (float)((rank * 7 + a * 5 + p * 3) % 11 + 1);
}

/* As topoGetAlgoInfo; -1 if what was impossible no longer is. */
static int taken(int without, int *protocol)
{
	float least = 1e30f;
	int found = -1;

	for (int a = 0; a < ALGORITHMS; a++)
		for (int p = 0; p < PROTOCOLS; p++) {
			if ((a == without || a > RING) != (costs[a][p] == -1))
				return -1;
			if (costs[a][p] >= 0 && costs[a][p] < least) {
				least = costs[a][p];
				found = a;
				*protocol = p;
			}
		}
	return found;
}

int main(int count, char **words)
{
	void *plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL), *context = NULL;
	size_t ranks = count > 2 ? (size_t)atol(words[2]) : 1000;
	struct tuner_v2 *v2 = dlsym(plugin, "ncclTunerPlugin_v2");
	struct tuner_v3 *v3 = dlsym(plugin, "ncclTunerPlugin_v3");
	struct tuner_v4 *v4 = dlsym(plugin, "ncclTunerPlugin_v4");
	struct tuner_v5 *v5 = dlsym(plugin, "ncclTunerPlugin_v5");
	struct tuner_v6 *v6 = dlsym(plugin, "ncclTunerPlugin_v6");
	int algorithm = -1, protocol = -1, channels = 0, wrong = 0;
	struct timespec from, to;

	wrong += v2->init(ranks, ranks, NULL, &context);
	wrong += v2->choose(context, ALLREDUCE, 1 << 20, 0, 0, 1, &algorithm, &protocol,
	                    &channels);
	printf("v2 %d %d %d\n", algorithm, protocol, channels);
	wrong += v2->destroy(context);
	for (int version = 3; version <= 6; version++) {
		struct tuner_v5 *later = version == 6 ? &v6->as_v5 : v5;

		wrong += version == 3   ? v3->init(ranks, ranks, NULL, &context)
		         : version == 4 ? v4->init(ranks, ranks, NULL, &context)
		                        : later->init(&context, 1, ranks, ranks, NULL, NULL, NULL);
		printf("v%d", version);
		for (int function = -1; function < 16; function++)
			for (int shift = 0; shift < 40; shift += 13)
				for (int without = -1; without <= RING; without++) {
					int first = -2;

					for (int rank = 0; rank < 11; rank++) {
						size_t bytes = (size_t)1 << shift;
						int best = 0, now, before = 0;

						fill(rank, without);
						(void)taken(without, &before);
						channels = 0;
						wrong += version == 3
						                 ? v3->choose(context, function, bytes, 1, (float **)costs, ALGORITHMS, PROTOCOLS, &channels)
						         : version == 4
						                 ? v4->choose(context, function, bytes, 1, (float **)costs, ALGORITHMS, PROTOCOLS, 0, &channels)
						                 : later->choose(context, function, bytes, 1, (float **)costs, ALGORITHMS, PROTOCOLS, 0, &channels);
						now = taken(without, &best);
						if (now < 0)
							wrong++;
						first = rank && first != now ? 9 : now;
					}
					if (function == ALLREDUCE)
						printf(" %d.%d", first, channels);
				}
		printf("\n");
		wrong += later->destroy(context);
	}
	wrong += v6->as_v5.init(&context, 1, ranks, ranks, NULL, NULL, NULL);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 1000000; i++) {
		fill(0, -1);
		v4->choose(context, ALLREDUCE, (size_t)i << 8, 1, (float **)costs, ALGORITHMS,
		           PROTOCOLS, 0, &channels);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	fprintf(stderr, "%ld ns with its table\n",
	        ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec) / 1000000);
	printf("%d wrong\n", wrong);
	return 0;
}
