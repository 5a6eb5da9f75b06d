/* Which host of a list is this one? The rule is that of cloudcoll/launch/own_host.py,
 * and one table of cases holds both to it (tests/data/own_host.json). */
#ifndef CLOUDCOLL_OWN_HOST_H
#define CLOUDCOLL_OWN_HOST_H

enum { ABSENT = -1, SEVERAL = -2 };

/* How well a name of the list fits the one that this host has. */
enum fit { NOT_AT_ALL, BUT_FOR_DOMAIN, EXACTLY };

/* What was found so far. */
struct search {
	const char *own; /* name of this host */
	int given;       /* the user said so: its addresses say nothing against it */
	struct ifaddrs *addresses;
	int count; /* of the list */
	enum fit fit;
	int named, place, is_here; /* how many fit as well, the last one; has it an address
	                            * of this machine? */
	int addressed, address_place; /* the same of those that have such an address */
};

/* Begin to look for a host of this name, which has to stay where it is. */
void begin_search(struct search *search, const char *own, int given);

/* Look at the next host of the list; it may have no address. */
void look_at(struct search *search, const char *name, const char *address);

/* Return the place of this host in the list, ABSENT, or SEVERAL that it could be;
 * what is looked at next belongs to another list. */
int end_list(struct search *search);

void end_search(struct search *search);

/* Whether two names are of one host, with or without a domain. */
int same_name(const char *one, const char *other);

/* Whether a name or address means whatever machine it is used on. */
int is_loopback(const char *text);

#endif
