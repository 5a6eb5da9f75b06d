/* Read the table of hosts and of the variables that count. */
#define _GNU_SOURCE
#include "ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (64 << 20) /* bytes */
#define SPACE " \t"

static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t size = 0;
	char *text = NULL;

	if (!file) {
		refuse("cannot read %s: %s", path, strerror(errno));
		return NULL;
	}
	if (getdelim(&text, &size, '\0', file) < 0) {
		refuse("%s is empty", path);
		free(text);
		text = NULL;
	} else if (size > MOST) {
		refuse("%s is no table of ranks", path);
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

static int add_names(struct names *names, char **rest)
{
	for (char *name; (name = strtok_r(NULL, SPACE, rest));) {
		char **more = realloc(names->name,
		                      (size_t)(names->count + 1) * sizeof *more);
		if (!more)
			return 0;
		names->name = more;
		names->name[names->count++] = name;
	}
	return names->count > 0;
}

static int add_host(struct table *table, char **rest)
{
	char *name = strtok_r(NULL, SPACE, rest), *slots = strtok_r(NULL, SPACE, rest);
	char *address = slots ? strtok_r(NULL, SPACE, rest) : NULL;
	struct host *more = realloc(table->hosts,
	                            (size_t)(table->count + 1) * sizeof *more);

	if (!more)
		return 0;
	table->hosts = more;
	if (!name || !slots || atoll(slots) < 1)
		return 0;
	table->hosts[table->count++] = (struct host){name, address, atoll(slots)};
	return 1;
}

static int read_line(struct table *table, char *line)
{
	char *rest, *word = strtok_r(line, SPACE, &rest);

	if (!word || word[0] == '#')
		return 1;
	if (!strcmp(word, "mark"))
		return (table->done = strtok_r(NULL, SPACE, &rest)) != NULL;
	return !strcmp(word, "numbers") ? add_names(&table->numbers, &rest) :
	       !strcmp(word, "counts") ? add_names(&table->counts, &rest) :
	       !strcmp(word, "masters") ? add_names(&table->masters, &rest) :
	       !strcmp(word, "task") ? add_names(&table->tasks, &rest) :
	       !strcmp(word, "host") && add_host(table, &rest);
}

int read_table(const char *path, struct table *table)
{
	char *rest, *line;

	table->text = read_text(path);
	if (!table->text)
		return 0;
	line = strtok_r(table->text, "\n", &rest);
	for (; line; line = strtok_r(NULL, "\n", &rest))
		if (!read_line(table, line))
			return refuse("%s is no table of ranks", path);
	if (!table->done || !table->count)
		return refuse("%s is no table of ranks", path);
	return 1;
}

void free_table(struct table *table)
{
	free(table->numbers.name);
	free(table->counts.name);
	free(table->masters.name);
	free(table->tasks.name);
	free(table->hosts);
	free(table->text);
}
