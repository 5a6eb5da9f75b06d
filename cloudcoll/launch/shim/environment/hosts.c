/* Which host of the table is this one, and where is the first? */
#define _GNU_SOURCE
#include "ranks.h"
#include "../own_host.h"

#include <netdb.h>
#include <string.h>
#include <unistd.h>

#define NAME_SIZE 256

int own_place(const struct table *table, const char *path)
{
	const char *name = value_of("CLOUDCOLL_HOST");
	int given = name && name[0], place;
	char own[NAME_SIZE] = "";
	struct search search;

	if (!given) {
		gethostname(own, sizeof own - 1);
		name = own;
	}
	begin_search(&search, name, given);
	for (int i = 0; i < table->count; i++)
		look_at(&search, table->hosts[i].name, table->hosts[i].address);
	place = end_list(&search);
	end_search(&search);
	if (place >= 0)
		return place;
	refuse("this host, %s, %s %s: say which it is with CLOUDCOLL_HOST", name,
	       place == SEVERAL ? "could be several of" : "is not in", path);
	return place;
}

static struct addrinfo *look_up(const char *name)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *all = NULL;

	return getaddrinfo(name, NULL, &hints, &all) ? NULL : all;
}

static int same_address(const struct addrinfo *a, const struct addrinfo *b)
{
	return a->ai_addrlen == b->ai_addrlen &&
	       !memcmp(a->ai_addr, b->ai_addr, a->ai_addrlen);
}

/* Whether two names share an address; `known` is whether the first has any. */
static int share_address(const char *one, const char *other, int *known)
{
	struct addrinfo *ours = look_up(one), *theirs = look_up(other);
	int shared = 0;

	*known = ours != NULL;
	for (const struct addrinfo *a = ours; a; a = a->ai_next)
		for (const struct addrinfo *b = theirs; b; b = b->ai_next)
			shared |= same_address(a, b);
	if (ours)
		freeaddrinfo(ours);
	if (theirs)
		freeaddrinfo(theirs);
	return shared;
}

const char *master(const struct table *table, int place, const char *current)
{
	const char *first = table->hosts[0].name, *allowed = value_of("CLOUDCOLL_FREE_RANK0");
	int known = 0;

	if (is_loopback(current) ? place == 0 : same_name(first, current))
		return current;
	if (share_address(first, current, &known))
		return current;
	if (!allowed || strcmp(allowed, "1"))
		refuse("rank 0 would move from %s to %s: solve again, or allow it with "
		       "CLOUDCOLL_FREE_RANK0=1", current, first);
	else if (!known)
		refuse("rank 0 would move to %s, a name that has no address here", first);
	else
		return first;
	return NULL;
}
