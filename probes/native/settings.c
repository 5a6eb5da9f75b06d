/* What the library is told through MPI_T: variables that choose algorithms. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A variable, with the value that it had before we came. */
struct variable {
	struct text name;
	MPI_T_cvar_handle handle;
	int size; /* bytes of its type */
	int before;
	int known;
};

static struct variable *variables;
static int variable_count;

static void copy_name(struct text name, char *text, size_t size)
{
	snprintf(text, size, "%.*s", name.length, name.start);
}

/* Booleans of Open MPI are single bytes. */
static int read_value(struct variable *variable)
{
	int value = 0;
	char bytes[sizeof(long long)] = {0};

	MPI_T_cvar_read(variable->handle, bytes);
	if (variable->size == 1)
		return bytes[0];
	memcpy(&value, bytes, sizeof value);
	return value;
}

static void write_value(struct variable *variable, int value)
{
	char byte = (char)value;

	if (variable->size == 1)
		MPI_T_cvar_write(variable->handle, &byte);
	else
		MPI_T_cvar_write(variable->handle, &value);
}

/* Find a variable; it is not known where the library has none that is a number. */
static void find(struct variable *variable)
{
	char name[256];
	int index, count, verbosity, bind, scope, length = 0, none = 0;
	MPI_Datatype type;
	MPI_T_enum values;

	copy_name(variable->name, name, sizeof name);
	if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS)
		return;
	if (MPI_T_cvar_get_info(index, NULL, &length, &verbosity, &type, &values,
				NULL, &none, &bind, &scope) != MPI_SUCCESS)
		return;
	if (MPI_T_cvar_handle_alloc(index, NULL, &variable->handle, &count) !=
	    MPI_SUCCESS)
		return;
	variable->size = type == MPI_INT ? (int)sizeof(int) : 1;
	if (type == MPI_CHAR || count != 1)
		return;
	variable->before = read_value(variable);
	variable->known = 1;
}

static struct variable *named(struct text name)
{
	int i;

	for (i = 0; i < variable_count; i++)
		if (same_text(variables[i].name, name))
			return &variables[i];
	return NULL;
}

/* Find all that any order is told. */
void find_settings(void)
{
	int i, k, provided, all = 0;

	for (i = 0; i < spec.count; i++)
		all += spec.orders[i].setting_count;
	if (!all)
		return;
	if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
		return;
	variables = allocate(all, sizeof *variables);
	for (i = 0; i < spec.count; i++)
		for (k = 0; k < spec.orders[i].setting_count; k++)
			if (!named(spec.orders[i].settings[k].name)) {
				variables[variable_count].name =
					spec.orders[i].settings[k].name;
				find(&variables[variable_count++]);
			}
}

/* Tell the library what an order is to run, and take back what others are.
 * Return the first variable that it does not have, or NULL. Open MPI looks when a
 * communicator is made, MPICH at each call. */
const struct text *apply_settings(const struct order *order)
{
	struct variable *variable;
	int i;

	for (i = 0; i < variable_count; i++)
		if (variables[i].known)
			write_value(&variables[i], variables[i].before);
	for (i = 0; i < order->setting_count; i++) {
		variable = named(order->settings[i].name);
		if (!variable || !variable->known)
			return &order->settings[i].name;
		write_value(variable, order->settings[i].value);
	}
	return NULL;
}

/* Print the numbers that variables have, as the environment sets them: MPICH has
 * names for algorithms there, but takes numbers through MPI_T. */
int print_settings(int count, char **names)
{
	struct variable variable;
	int i, provided;

	if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
		return 1;
	for (i = 0; i < count; i++) {
		memset(&variable, 0, sizeof variable);
		variable.name = (struct text){names[i], (int)strlen(names[i])};
		find(&variable);
		if (variable.known)
			printf("%d\n", variable.before);
		else
			puts("none");
	}
	return 0;
}
