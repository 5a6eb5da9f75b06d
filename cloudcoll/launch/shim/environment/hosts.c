/* Which host of the table is this one, and where is the first? */
#define _GNU_SOURCE
#include "ranks.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME_SIZE 256

struct address {
	int family, length;
	union {
		struct in_addr four;
		struct in6_addr six;
	} bytes;
};

static int read_address(const char *text, struct address *address)
{
	if (inet_pton(AF_INET, text, &address->bytes) == 1)
		address->family = AF_INET;
	else if (inet_pton(AF_INET6, text, &address->bytes) == 1)
		address->family = AF_INET6;
	else
		return 0;
	return 1;
}

static int is_address(const char *text)
{
	struct address address;

	return read_address(text, &address);
}

static int is_loopback(const char *text)
{
	struct address address;

	if (!strcmp(text, "localhost"))
		return 1;
	if (!read_address(text, &address))
		return 0;
	return address.family == AF_INET ?
	       ntohl(address.bytes.four.s_addr) >> 24 == 127 :
	       IN6_IS_ADDR_LOOPBACK(&address.bytes.six);
}

/* Whether two names are of one host, with or without a domain. */
static int same_name(const char *one, const char *other)
{
	const char *brief = strlen(one) <= strlen(other) ? one : other;
	const char *full = brief == one ? other : one;
	size_t length = strlen(brief);

	if (!strcasecmp(brief, full))
		return 1;
	return !strncasecmp(brief, full, length) && full[length] == '.' &&
	       !is_address(brief) && !is_address(full);
}

/* Whether an address is one of this machine's: only these can be bound. */
static int is_here(const char *text)
{
	struct address address;
	struct sockaddr_storage at = {0};
	struct sockaddr_in *four = (struct sockaddr_in *)&at;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
	int trial, bound;

	if (!read_address(text, &address) || is_loopback(text))
		return 0;
	at.ss_family = (sa_family_t)address.family;
	if (address.family == AF_INET)
		four->sin_addr = address.bytes.four;
	else
		six->sin6_addr = address.bytes.six;
	trial = socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (trial < 0)
		return 0;
	bound = !bind(trial, (struct sockaddr *)&at,
	              address.family == AF_INET ? sizeof *four : sizeof *six);
	close(trial);
	return bound;
}

enum how { EXACTLY, BY_NAME, BY_ADDRESS, WAYS };

static int matches(enum how how, const char *host, const char *name)
{
	return how == EXACTLY ? !strcmp(host, name) :
	       how == BY_NAME ? same_name(host, name) : is_here(host);
}

int own_place(const struct table *table, const char *path)
{
	const char *name = value_of("CLOUDCOLL_HOST");
	char own[NAME_SIZE] = "";
	int found = 0, place = -1;

	if (!name || !name[0]) {
		gethostname(own, sizeof own - 1);
		name = own;
	}
	for (enum how how = EXACTLY; how < WAYS && !found; how++)
		for (int i = 0; i < table->count; i++)
			if (matches(how, table->hosts[i].name, name)) {
				place = i;
				found++;
			}
	if (found == 1)
		return place;
	refuse("this host, %s, %s %s: say which it is with CLOUDCOLL_HOST", name,
	       found ? "could be several of" : "is not in", path);
	return -1;
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
