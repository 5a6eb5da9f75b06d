/* Where the ranks of the world are, if the launcher's plan says so. */
#include "nccl.h"
#include "../order.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define MOST_RANKS (1 << 24)

static struct world own;

/* Append a host's ranks, "PLACE*COUNT"; return where the text goes on. */
static const char *read_host(const char *text)
{
	char *end;
	long place = strtol(text, &end, 10), count = 1;
	int *more;

	if (end == text || place < 0 || place >= MOST_RANKS)
		return NULL;
	if (*end == '*') {
		text = end + 1;
		count = strtol(text, &end, 10);
	}
	if (end == text || count < 1 || count > MOST_RANKS - own.count)
		return NULL;
	more = realloc(own.place, (size_t)(own.count + count) * sizeof *more);
	if (!more)
		return NULL;
	own.place = more;
	while (count--) {
		own.place[own.count++] = (int)place;
		own.digest = own.digest * 31 + (uint32_t)place + 1;
	}
	if (*end == ',')
		return end + 1;
	return *end ? NULL : end;
}

static void read_ranks(void)
{
	const char *text = getenv("CLOUDCOLL_SHIM_RANKS");

	while (text && *text)
		text = read_host(text);
	if (!text)
		own.count = 0;
}

const struct world *own_world(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_ranks);
	return &own;
}

/* Ranks of one host keep their order, as the split has them. */
int *ranks_by_place(const struct world *world)
{
	int *rank = malloc((size_t)world->count * sizeof *rank), next = 0, hosts = 0;

	for (int i = 0; i < world->count; i++)
		if (world->place[i] >= hosts)
			hosts = world->place[i] + 1;
	for (int host = 0; rank && host < hosts; host++)
		for (int i = 0; i < world->count; i++)
			if (world->place[i] == host)
				rank[i] = next++;
	return rank;
}
