/* What happens before the program starts. */
#define _GNU_SOURCE
#include "ranks.h"
#include "../plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int refuse(const char *format, ...)
{
	char line[512], shown[PLAIN * sizeof line];
	va_list values;

	va_start(values, format);
	vsnprintf(line, sizeof line, format, values);
	va_end(values);
	plain(shown, line);
	fprintf(stderr, "cloudcoll: %s; starting the program unchanged\n", shown);
	return 0;
}

/* A shell may bring a getenv of its own, which is not ready yet. */
static char **entry_of(const char *variable)
{
	size_t length = strlen(variable);

	for (char **at = environ; at && *at; at++)
		if (!strncmp(*at, variable, length) && (*at)[length] == '=')
			return at;
	return NULL;
}

const char *value_of(const char *variable)
{
	char **entry = entry_of(variable);

	return entry ? *entry + strlen(variable) + 1 : NULL;
}

void replace(const char *variable, const char *name, const char *value)
{
	char **entry = entry_of(variable), *text;

	/* The text is the program's from now on. */
	if (entry && asprintf(&text, "%s=%s", name, value) >= 0)
		*entry = text;
}

__attribute__((constructor)) static void start(void)
{
	const char *path = value_of(TABLE);
	struct table table = {0};
	char *kept;

	if (!path || !path[0] || !(kept = strdup(path)))
		return;
	if (read_table(kept, &table))
		place_ranks(&table, kept);
	else
		replace(TABLE, MARK, "none");
	free_table(&table);
	free(kept);
}
