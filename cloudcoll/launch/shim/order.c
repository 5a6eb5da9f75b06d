/* Read the order of hosts and find this host in it. */
#define _GNU_SOURCE
#include "order.h"
#include "own_host.h"
#include "plain.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 3 /* of the contract: ranks with another one do not agree */
#define NAME_SIZE 256
#define SPACE " \t\r\n"

#define MOST_RULES 64
#define START (2166136261u + VERSION)

/* Which calls have an order of their own. */
struct rule {
	enum collective collective;
	int64_t least, most; /* bytes */
	int order;
};

/* What is being read: hosts of one order, and the orders before it. */
struct reading {
	uint32_t hash, known[MOST_ORDERS];
	struct search search;
	int orders;
	struct rule *rule; /* whom the hosts are for; NULL: for all */
};

static struct order own;
static struct rule rules[MOST_RULES];
static char host[NAME_SIZE];
static char *lines; /* what fmemopen reads in place */

static int is_set(const char *value)
{
	return value && value[0] && strcmp(value, "0");
}

int debugging(void)
{
	return is_set(getenv("CLOUDCOLL_DEBUG"));
}

void say(const char *format, ...)
{
	char line[512], shown[PLAIN * sizeof line];
	va_list values;

	va_start(values, format);
	vsnprintf(line, sizeof line, format, values);
	va_end(values);
	plain(shown, line);
	fprintf(stderr, "cloudcoll: %s\n", shown);
}

static void refuse(const char *format, const char *what)
{
	own.color = 0;
	snprintf(own.reason, sizeof own.reason, format, what);
}

uint32_t mixed_text(uint32_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return (hash ^ '\n') * 16777619u;
}

/* Read "COLLECTIVE LEAST MOST", which the hosts of the next lines are for; one
 * that is not known here is read and never asked for, as those beyond the most
 * that there can be. */
static struct rule *new_rule(const char *name, const char *least,
                             const char *most)
{
	static const char *const names[COLLECTIVES] = COLLECTIVE_NAMES;
	static struct rule spare;
	struct rule *rule = own.rules < MOST_RULES ? &rules[own.rules++] : &spare;

	rule->collective = COLLECTIVES;
	for (int i = 0; i < COLLECTIVES; i++)
		if (!strcmp(name, names[i]))
			rule->collective = i;
	rule->least = least ? atoll(least) : 0;
	rule->most = most ? atoll(most) : INT64_MAX;
	return rule;
}

/* The hosts of one order have been read; return whether it can be used. */
static int end_order(struct reading *reading, const char *path)
{
	int which = 0, count = reading->search.count;
	int place = end_list(&reading->search);

	if (place < 0) {
		refuse(!count ? "%s names no hosts" :
		       place == SEVERAL ?
		       "%s names this host twice, or several that it could be" :
		       "%s does not name this host", path);
		return 0;
	}
	while (which < reading->orders && reading->known[which] != reading->hash)
		which++;
	if (which == MOST_ORDERS) {
		which = 0; /* too many: the first one is for the rest */
	} else if (which == reading->orders) {
		reading->known[reading->orders++] = reading->hash;
		own.place[which] = place;
	}
	if (reading->rule)
		reading->rule->order = which;
	reading->hash = START;
	return 1;
}

/* Read lines; `given` is whether the user said which host this is. Return how many
 * orders there are, or 0 after a refusal. */
static int read_lines(FILE *file, const char *path, int given)
{
	struct reading reading = {.hash = START};
	char *line = NULL, *rest, *name;
	size_t room = 0;
	uint32_t all = START;
	int good = 1;

	begin_search(&reading.search, host, given);
	while (good && getline(&line, &room, file) > 0) {
		line[strcspn(line, "#")] = '\0';
		if (line[0] == '@')
			all = mixed_text(all, line);
		name = strtok_r(line, SPACE, &rest);
		if (name)
			all = mixed_text(all, name);
		if (name && *name == '@') {
			good = end_order(&reading, path);
			const char *least = strtok_r(NULL, SPACE, &rest);
			reading.rule =
				new_rule(name + 1, least, strtok_r(NULL, SPACE, &rest));
		} else if (name) {
			look_at(&reading.search, name, strtok_r(NULL, SPACE, &rest));
			reading.hash = mixed_text(reading.hash, name);
		}
	}
	free(line);
	good = good && end_order(&reading, path);
	end_search(&reading.search);
	if (!good)
		return 0;
	own.color = (int)((all >> 4) << 1) | own.exact | 1 << 30;
	return reading.orders;
}

int order_for(enum collective collective, int64_t bytes)
{
	for (int i = 0; i < own.rules; i++)
		if (rules[i].collective == collective && rules[i].least <= bytes &&
		    bytes <= rules[i].most)
			return rules[i].order;
	return 0;
}

/* Open what names the hosts: a variable, or a file that one names. */
static FILE *open_order(const char **source)
{
	const char *order = getenv("CLOUDCOLL_SHIM_ORDER");
	const char *path = getenv("CLOUDCOLL_SHIM_MAP");
	FILE *file = NULL;

	if (is_set(order)) {
		*source = "CLOUDCOLL_SHIM_ORDER";
		lines = strdup(order);
		for (char *at = lines; at && (at = strchr(at, ',')); at++)
			*at = '\n';
		if (lines)
			file = fmemopen(lines, strlen(lines), "r");
	} else if (is_set(path)) {
		*source = path;
		file = fopen(path, "re");
	} else {
		refuse("%s is not set", "CLOUDCOLL_SHIM_MAP");
		return NULL;
	}
	if (!file)
		refuse("cannot read %s", *source);
	return file;
}

static void read_order(void)
{
	const char *name = getenv("CLOUDCOLL_HOST"), *source = "";
	const char *order = getenv("CLOUDCOLL_SHIM_ORDER");
	FILE *file;
	int count;

	own.unwanted = order && !strcmp(order, "-");
	if (own.unwanted)
		return;
	own.exact = is_set(getenv("CLOUDCOLL_EXACT"));
	if (is_set(name)) {
		snprintf(host, sizeof host, "%s", name);
	} else if (gethostname(host, sizeof host - 1)) {
		refuse("this host has no name: %s", strerror(errno));
		return;
	}
	file = open_order(&source);
	if (!file)
		return;
	count = read_lines(file, source, is_set(name));
	fclose(file);
	free(lines);
	if (!count)
		own.color = 0;
	else if (debugging())
		say("%s has place %d in the first order of %d in %s", host, own.place[0],
		    count, source);
}

const struct order *own_order(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_order);
	return &own;
}
