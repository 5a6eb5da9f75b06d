/* Algorithms chosen for this job: told to the library before MPI_Init, in memory, and
 * read back from the first call of each range of sizes.
 *
 *   CLOUDCOLL_TUNE   NAME=VALUE NAME=VALUE;FILE_VARIABLE;TEXT
 *   CLOUDCOLL_TUNED  RANKS,COLLECTIVE LEAST ALGORITHM,...
 *
 * If some ranks ran another algorithm than the others, the job would hang. So all of
 * them make ready first, and then call the roll: only when all have answered, all
 * tell their library. */
#define _GNU_SOURCE
#include "roll.h"
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_SETTINGS 16
#define MOST_RANGES 256
#define RULES "cloudcoll-rules" /* what the file in memory is called */
#define UNCHECKED "-" /* what the library takes by itself */

int watching;

static struct {
	char *text;                   /* what `setting` and `variable` point into */
	char *setting[MOST_SETTINGS]; /* NAME=VALUE */
	int settings, file;
	char *variable; /* that names the file */
	char path[32];
	const char *why; /* it is not in force; NULL if it is, or nobody asked */
} tuning = {.file = -1};

static struct range {
	enum collective collective;
	int64_t least;
	char *algorithm;
	int settled;
} range[MOST_RANGES];
static int ranges, members;

/* Take `text` apart; return whether it is as it should be. */
static int read_settings(const char *text)
{
	char *rest, *word, *settings, *body;

	if (!(tuning.text = strdup(text)))
		return 0;
	settings = tuning.text;
	if (!(tuning.variable = strchr(settings, ';')))
		return 0;
	*tuning.variable++ = 0;
	if (!(body = strchr(tuning.variable, ';')))
		return 0;
	*body++ = 0;
	for (word = strtok_r(settings, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		if (tuning.settings == MOST_SETTINGS || !strchr(word, '='))
			return 0;
		tuning.setting[tuning.settings++] = word;
	}
	if (*tuning.variable) {
		size_t size = strlen(body);

		tuning.file = memfd_create(RULES, MFD_CLOEXEC);
		if (tuning.file < 0 || write(tuning.file, body, size) != (ssize_t)size)
			return 0;
		snprintf(tuning.path, sizeof tuning.path, "/proc/self/fd/%d", tuning.file);
	}
	return 1;
}

static int collective_of(const char *name)
{
	static const char *const names[] = COLLECTIVE_NAMES;

	for (int i = 0; i < COLLECTIVES; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

static void read_ranges(const char *text)
{
	static char copy[1 << 14];
	char *rest, *word;

	if (!text || snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
		return;
	word = strtok_r(copy, ",", &rest);
	members = word ? atoi(word) : 0;
	while ((word = strtok_r(NULL, ",", &rest)) && ranges < MOST_RANGES) {
		char *name, *least, *algorithm, *more;
		int collective;

		name = strtok_r(word, " ", &more);
		least = strtok_r(NULL, " ", &more);
		algorithm = strtok_r(NULL, " ", &more);
		if (!algorithm || (collective = collective_of(name)) < 0)
			continue;
		range[ranges].collective = (enum collective)collective;
		range[ranges].least = atoll(least);
		range[ranges].algorithm = algorithm;
		range[ranges].settled = !strcmp(algorithm, UNCHECKED);
		ranges++;
	}
}

static int is_open_mpi(void)
{
	return find_variable("ompi_mpi_comm_world") != NULL;
}

/* Make ready; return why not, NULL if all is well. */
static const char *made_ready(const char *text, int *rank, int *ranks)
{
	if (!place_in_world(rank, ranks))
		return "no variable tells a rank its number before MPI_Init";
	if (is_open_mpi() && !algorithms_come_through_here())
		return "this Open MPI calls its algorithms directly, so that nobody "
		       "sees which one runs";
	if (!read_settings(text))
		return "there is no memory for the rules";
	return NULL;
}

void tune_before_init(void)
{
	static int asked;
	const char *text = getenv("CLOUDCOLL_TUNE");
	int rank, ranks;

	if (!text || !*text || mpi.missing || asked++)
		return;
	tuning.why = made_ready(text, &rank, &ranks);
	if (tuning.why)
		return;
	call_roll(rank, ranks);
	if (!all_are_here()) {
		tuning.why = "not all ranks are here"; /* which cloudcoll run says */
		return;
	}
	for (int i = 0; i < tuning.settings; i++) {
		char *value = strchr(tuning.setting[i], '=');

		*value = 0;
		setenv(tuning.setting[i], value + 1, 1);
		*value = '=';
	}
	if (*tuning.variable)
		setenv(tuning.variable, tuning.path, 1);
}

/* What was set is not for the programs that this one starts. */
static void unset(void)
{
	for (int i = 0; i < tuning.settings; i++) {
		char *value = strchr(tuning.setting[i], '=');

		*value = 0;
		unsetenv(tuning.setting[i]);
		*value = '=';
	}
	if (*tuning.variable)
		unsetenv(tuning.variable);
	if (tuning.file >= 0)
		close(tuning.file);
	tuning.file = -1;
}

/* Whether the library has mapped the file of rules, as MPICH does and keeps it so
 * (csel.c of 4.0 to 5.0). What it can't read there ends the job. MPI_T can't tell:
 * MPICH's reads of text are empty. */
static int library_has_read(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	int found = 0;

	while (maps && !found && fgets(line, sizeof line, maps))
		found = strstr(line, "/memfd:" RULES) != NULL;
	if (maps)
		fclose(maps);
	return found;
}

void tune_after_init(void)
{
	int rank = 0;

	if (!tuning.text && !tuning.why)
		return;
	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	if (tuning.why) {
		report(rank, tuning.why);
		return;
	}
	if (is_open_mpi()) {
		read_ranges(getenv("CLOUDCOLL_TUNED"));
		guarding = watching = 1;
	} else if (*tuning.variable) {
		report(rank, library_has_read() ? "" : "the library has not read the rules");
	}
	unset();
}

void watch(enum collective collective)
{
	forget_algorithm(collective);
}

/* Where all ranges are settled nothing is watched any more. */
static void settle(struct range *one, int rank)
{
	one->settled = 1;
	for (int i = 0; i < ranges; i++)
		if (!range[i].settled)
			return;
	watching = 0;
	report(rank, "");
}

void check(enum collective collective, word comm, int64_t bytes)
{
	const char *name = algorithm_that_ran(collective);
	struct range *one = NULL;
	char line[256];
	int rank = 0, inter = 0;

	for (int i = 0; i < ranges; i++)
		if (range[i].collective == collective && range[i].least <= bytes)
			one = &range[i];
	/* Of no bytes most is done without any algorithm. */
	if (!one || one->settled || (!bytes && collective != BARRIER))
		return;
	mpi.Comm_test_inter(comm, (word)&inter);
	if (inter || members_of(comm) != members)
		return;
	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	if (!name || strcmp(name, one->algorithm)) {
		static const char *const names[] = COLLECTIVE_NAMES;

		snprintf(line, sizeof line, "%s of %lld bytes ran %s, not %s",
		         names[collective], (long long)bytes,
		         name ? name : "outside of coll/tuned", one->algorithm);
		report(rank, line);
	}
	settle(one, rank);
}
