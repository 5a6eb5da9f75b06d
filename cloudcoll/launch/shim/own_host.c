#define _GNU_SOURCE
#include "own_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <string.h>
#include <strings.h>

/* An address as it is sent; `family` is 0 for a name. */
struct address {
	int family;
	unsigned char bytes[sizeof(struct in6_addr)];
};

static struct address read_address(const char *text)
{
	struct address address = {0};

	if (inet_pton(AF_INET, text, address.bytes) == 1)
		address.family = AF_INET;
	else if (inet_pton(AF_INET6, text, address.bytes) == 1)
		address.family = AF_INET6;
	return address;
}

static int same_address(const struct address *address, const struct sockaddr *other)
{
	if (!other || other->sa_family != address->family)
		return 0;
	if (address->family == AF_INET)
		return !memcmp(address->bytes,
		               &((const struct sockaddr_in *)other)->sin_addr,
		               sizeof(struct in_addr));
	return !memcmp(address->bytes,
	               &((const struct sockaddr_in6 *)other)->sin6_addr,
	               sizeof(struct in6_addr));
}

int is_loopback(const char *text)
{
	struct address address = read_address(text);

	return address.family == AF_INET ? address.bytes[0] == 127 :
	       address.family == AF_INET6 ?
	       !memcmp(address.bytes, &in6addr_loopback, sizeof in6addr_loopback) :
	       !strcmp(text, "localhost");
}

int same_name(const char *one, const char *other)
{
	const char *brief = strlen(one) <= strlen(other) ? one : other;
	const char *full = brief == one ? other : one;
	size_t length = strlen(brief);

	if (!strcasecmp(brief, full))
		return 1;
	return !strncasecmp(brief, full, length) && full[length] == '.' &&
	       !read_address(brief).family && !read_address(full).family;
}

/* Whether an address is one of this machine's and tells it from others. */
static int is_here(const char *text, const struct ifaddrs *own)
{
	struct address address = read_address(text);

	if (!address.family || is_loopback(text))
		return 0;
	while (own && !same_address(&address, own->ifa_addr))
		own = own->ifa_next;
	return own != NULL;
}

void begin_search(struct search *search, const char *own, int given)
{
	*search = (struct search){.own = own, .given = given};
	if (getifaddrs(&search->addresses))
		search->addresses = NULL; /* names are still names */
}

void look_at(struct search *search, const char *name, const char *address)
{
	int place = search->count++;
	int here = is_here(name, search->addresses) ||
	           (address && is_here(address, search->addresses));
	enum fit fit = !strcmp(name, search->own) ? EXACTLY :
	               same_name(name, search->own) ? BUT_FOR_DOMAIN : NOT_AT_ALL;

	if (here) {
		search->addressed++;
		search->address_place = place;
	}
	if (!fit || fit < search->fit)
		return;
	search->named = fit > search->fit ? 1 : search->named + 1;
	search->fit = fit;
	search->place = place;
	search->is_here = here;
}

int end_list(struct search *search)
{
	struct search found = *search;

	*search = (struct search){
		.own = found.own, .given = found.given, .addresses = found.addresses};
	if (found.named)
		return found.named == 1 &&
		       (found.given || found.is_here || !found.addressed) ?
		       found.place : SEVERAL;
	return found.addressed == 1 ? found.address_place :
	       found.addressed ? SEVERAL : ABSENT;
}

void end_search(struct search *search)
{
	if (search->addresses)
		freeifaddrs(search->addresses);
	search->addresses = NULL;
}
