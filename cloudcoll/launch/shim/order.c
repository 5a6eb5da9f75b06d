/* Read the order of hosts and find this host in it. */
#define _GNU_SOURCE
#include "order.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 1 /* of the contract: ranks with another one do not agree */
#define NAME_SIZE 256
#define SPACE " \t\r\n"

static struct order own;
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
	char line[512];
	va_list values;

	va_start(values, format);
	vsnprintf(line, sizeof line, format, values);
	va_end(values);
	fprintf(stderr, "cloudcoll: %s\n", line);
}

static void refuse(const char *format, const char *what)
{
	own.color = 0;
	snprintf(own.reason, sizeof own.reason, format, what);
}

/* FNV-1a: whoever read other hosts, or the same in another order, differs. */
static uint32_t mixed(uint32_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return (hash ^ '\n') * 16777619u;
}

static size_t short_length(const char *name)
{
	return strcspn(name, ".");
}

/* Whether a name means this host; a name without domain means any domain. */
static int names_host(const char *name)
{
	size_t length = short_length(name);

	if (!strcasecmp(name, host))
		return 1;
	if (name[length] && host[short_length(host)])
		return 0;
	return length == short_length(host) && !strncasecmp(name, host, length);
}

static int is_own_address(const char *text, const struct ifaddrs *all)
{
	char shown[INET6_ADDRSTRLEN];

	for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
		const struct sockaddr *at = one->ifa_addr;
		const void *bytes = NULL;

		if (at && at->sa_family == AF_INET)
			bytes = &((const struct sockaddr_in *)at)->sin_addr;
		else if (at && at->sa_family == AF_INET6)
			bytes = &((const struct sockaddr_in6 *)at)->sin6_addr;
		if (bytes && inet_ntop(at->sa_family, bytes, shown, sizeof shown) &&
		    !strcmp(shown, text))
			return 1;
	}
	return 0;
}

static int is_address(const char *text)
{
	unsigned char bytes[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, text, bytes) == 1 ||
	       inet_pton(AF_INET6, text, bytes) == 1;
}

/* Whether a line of the map, a name and perhaps an address, is of this host. */
static int is_here(const char *name, const char *address,
                   const struct ifaddrs *addresses)
{
	if (is_address(name))
		return is_own_address(name, addresses);
	return names_host(name) || (address && is_own_address(address, addresses));
}

/* Read lines; return how many hosts there are, or 0 after a refusal. */
static int read_lines(FILE *file, const char *path)
{
	struct ifaddrs *addresses = NULL;
	char *line = NULL, *rest;
	size_t room = 0;
	uint32_t hash = 2166136261u + VERSION;
	int count = 0, found = 0;

	if (getifaddrs(&addresses))
		addresses = NULL; /* names are still names */
	while (getline(&line, &room, file) > 0) {
		line[strcspn(line, "#")] = '\0';
		char *name = strtok_r(line, SPACE, &rest);
		if (!name)
			continue;
		if (is_here(name, strtok_r(NULL, SPACE, &rest), addresses)) {
			own.place = count;
			found++;
		}
		hash = mixed(hash, name);
		count++;
	}
	free(line);
	if (addresses)
		freeifaddrs(addresses);
	if (!count)
		refuse("%s names no hosts", path);
	else if (found != 1)
		refuse(found ? "%s names this host twice" : "%s does not name this host",
		       path);
	own.color = (int)((hash >> 4) << 1) | own.exact | 1 << 30;
	return found == 1 ? count : 0;
}

/* Open what names the hosts: a variable, or a file that one names. */
static FILE *open_order(const char **source)
{
	const char *order = getenv("CLOUDCOLL_SHIM_ORDER");
	const char *path = getenv("CLOUDCOLL_SHIM_MAP");
	FILE *file;

	if (is_set(order) && (lines = strdup(order))) {
		*source = "CLOUDCOLL_SHIM_ORDER";
		for (char *at = lines; (at = strchr(at, ',')); at++)
			*at = '\n';
		return fmemopen(lines, strlen(lines), "r");
	}
	if (!is_set(path)) {
		refuse("%s is not set", "CLOUDCOLL_SHIM_MAP");
		return NULL;
	}
	*source = path;
	file = fopen(path, "re");
	if (!file)
		refuse("cannot read %s", path);
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
	count = read_lines(file, source);
	fclose(file);
	free(lines);
	if (!count)
		own.color = 0;
	else if (debugging())
		say("%s has place %d of %d in %s", host, own.place, count, source);
}

const struct order *own_order(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_order);
	return &own;
}
