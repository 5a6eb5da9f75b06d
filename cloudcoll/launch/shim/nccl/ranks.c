/* Where the ranks of a communicator are, as the roll has told. */
#include "nccl.h"

#include <stdlib.h>

#define MOST_HOSTS (1 << 24)

/* Read the places; return one more than the last of them, 0 if they make no sense. */
static int read_places(const char *text, int size, int *place)
{
	int known = 0, hosts = 0;

	while (known < size) {
		char *end;
		long host = strtol(text, &end, 10), count = 1;

		if (*end == '*')
			count = strtol(end + 1, &end, 10);
		if (end == text || host < 0 || host >= MOST_HOSTS || count < 1 ||
		    count > size - known)
			return 0;
		hosts = host >= hosts ? (int)host + 1 : hosts;
		while (count--)
			place[known++] = (int)host;
		text = *end == ',' ? end + 1 : end;
	}
	return *text ? 0 : hosts;
}

/* Ranks of one host keep their order, as the split has them. */
int *ranks_by_place(const char *places, int size)
{
	int *rank = malloc((size_t)size * sizeof *rank), *next = NULL;
	int hosts = rank ? read_places(places, size, rank) : 0;

	if (hosts)
		next = calloc((size_t)hosts + 1, sizeof *next);
	if (!next) {
		free(rank);
		return NULL;
	}
	for (int i = 0; i < size; i++)
		next[rank[i] + 1]++;
	for (int host = 0; host < hosts; host++)
		next[host + 1] += next[host];
	for (int i = 0; i < size; i++)
		rank[i] = next[rank[i]]++;
	free(next);
	return rank;
}
