/* Which variable gets which value. */
#include "ranks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHANGES 32
#define VALUE_SIZE 512

struct changes {
	const char *variable[MOST_CHANGES];
	char value[MOST_CHANGES][VALUE_SIZE];
	int count;
};

static int change(struct changes *changes, const char *variable, const char *value)
{
	if (changes->count == MOST_CHANGES || strlen(value) >= VALUE_SIZE)
		return refuse("%s can't become %.40s", variable, value);
	changes->variable[changes->count] = variable;
	strcpy(changes->value[changes->count++], value);
	return 1;
}

/* Read a variable's number, of a range such as 2:4 the upper end. */
static int number(const char *variable, long long *value)
{
	const char *text = value_of(variable), *colon = strrchr(text, ':');
	const char *digits = colon ? colon + 1 : text;
	size_t length = strlen(digits);

	for (size_t i = 0; i < length; i++)
		if (!isdigit((unsigned char)digits[i]))
			length = 0;
	if (!length || length > 17)
		return refuse("%s is '%s', not a number", variable, text);
	*value = atoll(digits);
	return 1;
}

/* The same, or another number where the variable is not set. */
static int number_or(const char *variable, long long other, long long *value)
{
	*value = other;
	return !value_of(variable) || number(variable, value);
}

static int counts_fit(const struct table *table, const char *path)
{
	for (int i = 0; i < table->counts.count; i++) {
		const char *variable = table->counts.name[i];
		long long hosts;

		if (!value_of(variable))
			continue;
		if (!number(variable, &hosts))
			return 0;
		if (hosts != table->count)
			return refuse("%s is of %d hosts and %s says %lld: solve for the hosts "
			              "of this job", path, table->count, variable, hosts);
	}
	return 1;
}

/* The rank of this process, or of its host where it has no local one. */
static int find_rank(const struct table *table, int place, long long *rank)
{
	long long sum = 0, before = 0, world, even, local, own = 0;
	int fits;

	for (int i = 0; i < table->count; i++) {
		sum += table->hosts[i].slots;
		before += i < place ? table->hosts[i].slots : 0;
	}
	if (!number_or("WORLD_SIZE", sum, &world))
		return 0;
	even = world / table->count;
	fits = world == sum || world == even * table->count;
	*rank = place;
	if (fits && !value_of("LOCAL_RANK"))
		return 1;
	if (!number_or("LOCAL_WORLD_SIZE", even, &local) ||
	    !number_or("LOCAL_RANK", 0, &own))
		return 0;
	if (world == sum && local == table->hosts[place].slots)
		*rank = before + own;
	else if (fits && local == even)
		*rank = place * local + own;
	else
		return refuse("the table is of %d hosts and this job has %lld ranks, %lld "
		              "of them here: solve for the hosts of this job",
		              table->count, world, local);
	return 1;
}

static int change_numbers(const struct table *table, int place,
                          struct changes *changes)
{
	char value[VALUE_SIZE];
	long long rank;

	snprintf(value, sizeof value, "%d", place);
	for (int i = 0; i < table->numbers.count; i++)
		if (value_of(table->numbers.name[i]) &&
		    !change(changes, table->numbers.name[i], value))
			return 0;
	if (value_of("RANK")) {
		if (!find_rank(table, place, &rank))
			return 0;
		snprintf(value, sizeof value, "%lld", rank);
		change(changes, "RANK", value);
	}
	for (int i = 0; i < table->tasks.count; i++) {
		const char *task = value_of(table->tasks.name[i]);

		if (!task)
			continue;
		snprintf(value, sizeof value, "%06d-%s", place, task);
		if (!change(changes, table->tasks.name[i], value))
			return 0;
	}
	return 1;
}

static int change_masters(const struct table *table, int place,
                          struct changes *changes)
{
	const char *agent = value_of("TORCHELASTIC_USE_AGENT_STORE");

	if (agent && !strcmp(agent, "True"))
		return 1;
	for (int i = 0; i < table->masters.count; i++) {
		const char *variable = table->masters.name[i], *now = value_of(variable);
		const char *then = now ? master(table, place, now) : NULL;

		if (now && (!then || !change(changes, variable, then)))
			return 0;
	}
	return 1;
}

/* Whether there is anything to rewrite: a launcher's parents have no ranks. */
static int concerned(const struct table *table)
{
	int found = value_of("RANK") != NULL;

	for (int i = 0; i < table->numbers.count; i++)
		found |= value_of(table->numbers.name[i]) != NULL;
	for (int i = 0; i < table->tasks.count; i++)
		found |= value_of(table->tasks.name[i]) != NULL;
	return found;
}

void place_ranks(const struct table *table, const char *path)
{
	struct changes *changes;
	int place, done;

	if (value_of(MARK) || !concerned(table))
		return;
	changes = calloc(1, sizeof *changes);
	place = changes ? own_place(table, path) : -1;
	done = place >= 0 && counts_fit(table, path) &&
	       change_numbers(table, place, changes) &&
	       change_masters(table, place, changes);
	for (int i = 0; done && i < changes->count; i++)
		replace(changes->variable[i], changes->variable[i], changes->value[i]);
	/* Children find no table, and what reads the mark finds that. */
	replace(TABLE, MARK, done ? table->done : "none");
	free(changes);
}
