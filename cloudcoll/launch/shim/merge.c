/* Bring the counters of all ranks together, and write them as JSON. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_VERSION 8192 /* MPI_MAX_LIBRARY_VERSION_STRING is no more */

/* One counter of one rank, or of several added up. */
struct row {
	uint64_t group;
	int64_t calls, bytes, ns, least_ns;
	int collective, class;
};

/* What a rank sends: rows, and the members of groups it is the first of, each
 * as size, digest in two halves, ranks. */
struct parcel {
	struct row *rows;
	int *members;
	int row_bytes, member_bytes;
};

static const char *const names[COLLECTIVES] = COLLECTIVE_NAMES;

/* FNV-1a of the members. */
static uint64_t digest(const struct group *group)
{
	uint64_t hash = 14695981039346656037u;

	for (int i = 0; i < group->size; i++)
		hash = (hash ^ (uint64_t)group->members[i]) * 1099511628211u;
	return hash;
}

static int used(const struct group *group)
{
	const struct counter *counter = group->counters[0];
	int count = 0;

	for (int i = 0; i < COLLECTIVES * CLASSES; i++)
		count += counter[i].calls > 0;
	return count;
}

static void pack_rows(const struct group *group, uint64_t id, struct row *row)
{
	for (int i = 0; i < COLLECTIVES; i++) {
		for (int k = 0; k < CLASSES; k++) {
			const struct counter *counter = &group->counters[i][k];

			if (counter->calls)
				*row++ = (struct row){id, counter->calls, counter->bytes,
				                      counter->ns, counter->ns, i, k};
		}
	}
}

/* Return this rank's parcel; without memory it is empty. */
static struct parcel packed(int rank)
{
	struct parcel parcel = {0};
	size_t rows = 0, ints = 0;
	int *member;

	for (const struct group *g = counted_groups(); g; g = g->next) {
		rows += (size_t)used(g);
		ints += (size_t)g->size + 3;
	}
	parcel.rows = malloc((rows + 1) * sizeof(struct row));
	parcel.members = member = malloc((ints + 1) * sizeof(int));
	if (!parcel.rows || !member)
		return parcel;
	rows = 0;
	for (const struct group *g = counted_groups(); g; g = g->next) {
		uint64_t id = digest(g);

		pack_rows(g, id, parcel.rows + rows);
		rows += (size_t)used(g);
		if (g->members[0] != rank)
			continue;
		*member++ = g->size;
		*member++ = (int)(uint32_t)id;
		*member++ = (int)(uint32_t)(id >> 32);
		memcpy(member, g->members, sizeof(int) * (size_t)g->size);
		member += g->size;
	}
	parcel.row_bytes = (int)(rows * sizeof(struct row));
	parcel.member_bytes = (int)((char *)member - (char *)parcel.members);
	return parcel;
}

/* Whether rank 0 has room, as all hear. */
static int has_room(const void *room, word comm)
{
	int has = !!room;

	mpi.Bcast((word)&has, sizeof has, mpi.byte, 0, comm);
	return has;
}

/* Gather blocks of bytes at rank 0 of `comm`: returns them and their total. */
static void *gathered(const void *mine, int bytes, word comm, int rank,
                      int64_t *all)
{
	int size = members_of(comm);
	int *lengths = rank ? NULL : malloc(2 * sizeof(int) * (size_t)size);
	int *places = rank ? NULL : lengths + size;
	char *blocks = NULL;

	*all = 0;
	if (!has_room(lengths, comm))
		return NULL;
	mpi.Gather((word)&bytes, sizeof bytes, mpi.byte, (word)lengths,
	           sizeof bytes, mpi.byte, 0, comm);
	for (int i = 0; !rank && i < size; i++) {
		places[i] = (int)*all;
		*all += lengths[i];
	}
	if (!rank && *all <= INT_MAX)
		blocks = malloc((size_t)*all + 1);
	if (has_room(blocks, comm))
		mpi.Gatherv((word)mine, bytes, mpi.byte, (word)blocks, (word)lengths,
		            (word)places, mpi.byte, 0, comm);
	free(lengths);
	return blocks;
}

static int compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	if (x->collective != y->collective)
		return x->collective - y->collective;
	return x->class - y->class;
}

/* Add up the rows of a counter that follow each other; returns how many are
 * left. */
static size_t fold(struct row *rows, size_t count)
{
	size_t kept = 0;

	qsort(rows, count, sizeof *rows, compare);
	for (size_t i = 0; i < count; i++) {
		struct row *into = kept ? &rows[kept - 1] : NULL;

		if (!into || compare(into, &rows[i])) {
			rows[kept++] = rows[i];
			continue;
		}
		into->calls += rows[i].calls;
		into->bytes += rows[i].bytes;
		into->ns += rows[i].ns;
		if (rows[i].least_ns < into->least_ns)
			into->least_ns = rows[i].least_ns;
	}
	return kept;
}

/* By integers: a program's locale may have a decimal comma. */
static void print_seconds(FILE *file, const char *name, int64_t ns)
{
	fprintf(file, "\"%s\": %lld.%09lld", name, (long long)(ns / 1000000000),
	        (long long)(ns % 1000000000));
}

/* The first line, without what JSON would have to escape. */
static void print_library(FILE *file)
{
	char text[MOST_VERSION] = "";
	int length = 0;

	mpi.Get_library_version((word)text, (word)&length);
	fprintf(file, ",\n \"library\": \"");
	for (char *at = text; *at && *at != '\n'; at++)
		putc(*at < ' ' || *at == '"' || *at == '\\' ? ' ' : *at, file);
	putc('"', file);
}

static void print_groups(FILE *file, const int *members, int64_t ints)
{
	for (int64_t at = 0; at < ints; at += members[at] + 3) {
		fprintf(file, "%s\n  \"%08x%08x\": [", at ? "," : "",
		        (unsigned)members[at + 2], (unsigned)members[at + 1]);
		for (int i = 0; i < members[at]; i++)
			fprintf(file, "%s%d", i ? ", " : "", members[at + 3 + i]);
		putc(']', file);
	}
}

static void print_rows(FILE *file, const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		fprintf(file,
		        "%s\n  {\"group\": \"%016llx\", \"collective\": \"%s\", \"calls\": "
		        "%lld, \"bytes\": %lld, ", i ? "," : "",
		        (unsigned long long)rows[i].group, names[rows[i].collective],
		        (long long)rows[i].calls, (long long)rows[i].bytes);
		print_seconds(file, "seconds", rows[i].ns);
		fprintf(file, ", ");
		print_seconds(file, "least_seconds", rows[i].least_ns);
		putc('}', file);
	}
}

/* Have the whole file or the one before, and say what stands in the way. */
static void save(const char *path, const struct parcel *all, int64_t row_bytes,
                 int64_t member_bytes, int64_t ns)
{
	char unfinished[PATH_MAX];
	size_t count = fold(all->rows, (size_t)row_bytes / sizeof(struct row));
	struct stat there;
	FILE *file;
	int failed;

	/* Another file in the place of /dev/null would harm every program. */
	if (!lstat(path, &there) && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) {
		say("no profile: %s is no file", path);
		return;
	}
	snprintf(unfinished, sizeof unfinished, "%s.%ld", path, (long)getpid());
	file = fopen(unfinished, "wxe");
	if (!file) {
		say("no profile: cannot write %s: %s", unfinished, strerror(errno));
		return;
	}
	fprintf(file, "{\"schema\": \"cloudcoll-profile-1\",\n \"ranks\": %d,\n ",
	        members_of(mpi.comm_world));
	print_seconds(file, "seconds", ns);
	print_library(file);
	fprintf(file, ",\n \"groups\": {");
	print_groups(file, all->members, member_bytes / (int64_t)sizeof(int));
	fprintf(file, "},\n \"calls\": [");
	print_rows(file, all->rows, count);
	fprintf(file, "]}\n");
	failed = ferror(file);
	if (fclose(file) || failed || rename(unfinished, path)) {
		say("no profile: cannot write %s: %s", path, strerror(errno));
		unlink(unfinished);
	}
}

void write_profile(const char *path, int64_t began)
{
	int64_t row_bytes, member_bytes, ns = now_ns() - began;
	struct parcel mine, all;
	word comm = 0;
	int rank = 0;

	/* Messages of our own, and errors that end no job. */
	if (mpi.Comm_split(mpi.comm_world, 0, 0, (word)&comm))
		return;
	mpi.Comm_set_errhandler(comm, mpi.errors_return);
	mpi.Comm_rank(comm, (word)&rank);
	mine = packed(rank);
	all.rows = gathered(mine.rows, mine.row_bytes, comm, rank, &row_bytes);
	all.members =
		gathered(mine.members, mine.member_bytes, comm, rank, &member_bytes);
	if (all.rows && all.members)
		save(path, &all, row_bytes, member_bytes, ns);
	else if (!rank)
		say("no profile: it takes %lld bytes",
		    (long long)(row_bytes + member_bytes));
	free(mine.rows);
	free(mine.members);
	free(all.rows);
	free(all.members);
	mpi.Comm_free((word)&comm);
}
