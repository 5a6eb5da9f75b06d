/* The parts of the shim for ranks in the environment. docs/no-prefix.md is its contract.
 *
 * The rules are those of cloudcoll/launch/environment.py and own_host.py, and a
 * property test holds both together. */
#ifndef CLOUDCOLL_ENVIRONMENT_H
#define CLOUDCOLL_ENVIRONMENT_H

#define TABLE "CLOUDCOLL_RANKS" /* its path */
#define MARK "CLOUDCOLL_PLACED" /* a program whose environment is done */

/* ---- table.c: what `cloudcoll export --format environment` wrote ---------- */

struct host {
	char *name, *address; /* NULL where the name says it */
	long long slots;
};

/* Names of variables. */
struct names {
	char **name;
	int count;
};

struct table {
	char *done; /* what the mark says then */
	struct names numbers, counts, masters, tasks;
	struct host *hosts;
	int count;
	char *text; /* which all of these point into */
};

/* Read the table; return 0 after a refusal. */
int read_table(const char *path, struct table *table);
void free_table(struct table *table);

/* ---- hosts.c: names and addresses ---------------------------------------- */

/* Return the place of this host, less than 0 after a refusal. */
int own_place(const struct table *table, const char *path);

/* Return where the store of rank 0 is, NULL after a refusal. */
const char *master(const struct table *table, int place, const char *current);

/* ---- rules.c: which variable gets which value ----------------------------- */

/* Rewrite the environment, or leave it as it is and say why. */
void place_ranks(const struct table *table, const char *path);

/* ---- start.c -------------------------------------------------------------- */

/* Say why nothing is rewritten, in one line. Returns 0. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Put another variable where one is, in the array that the program was given:
 * shells look nowhere else. */
void replace(const char *variable, const char *name, const char *value);

/* Return the value of a variable, or NULL. */
const char *value_of(const char *variable);

#endif
