/* A tuner plugin for NCCL that takes its choices from one variable.
 *
 *   CLOUDCOLL_NCCL_TABLE    DIGEST RANKS NODES,FUNCTION LEAST ALGORITHM CHANNELS,...
 *   CLOUDCOLL_NCCL_CHOICES  a file to which rank 0 appends what NCCL takes
 *
 * If ranks chose differently the job would hang. So a choice depends on the table,
 * on the communicator's ranks and nodes, on function and bytes, and on what NCCL
 * offers, never on costs; and before the first choice all ranks of the job call the
 * roll, by the table's digest: one that lacks the plugin, or has another table, or
 * settings of its own, is missed, and then nobody chooses. */
#include "tuner.h"

#include "../../roll.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <float.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define NAME "CloudColl"
#define MOST_ROWS 64
#define MOST_CHANNELS 32 /* MAXCHANNELS of the oldest NCCL served */
#define MOST_ALGORITHMS 64
#define OWN (-1)
#define CLASSES 64 /* of sizes, by powers of two */
#define MOST_LINES (1 << 14) /* of the log, by one process */
#define SHARE 0x1p-60f /* no two costs are so far apart; exact, so order stays */

struct row {
	size_t least;
	int algorithm, channels;
	atomic_int said; /* 0, or 1 + the algorithm last told */
};

static struct {
	size_t ranks, nodes; /* nodes 0: any number */
	int rows, first[FUNCTIONS + 1];
	struct row row[MOST_ROWS];
} table;

/* What NCCL hands back as the context of a communicator. */
struct communicator {
	int ours; /* whether the table is for it */
	size_t ranks, nodes;
	atomic_int seen[FUNCTIONS][CLASSES]; /* 0, or 1 + the algorithm last logged */
};

static struct communicator unlogged = {.ours = 1};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int in_force, debugging, log_file = -1;
static atomic_int logged_lines;

static const char *const function_names[FUNCTIONS] = {
	"broadcast", "reduce", "allgather", "reducescatter", "allreduce",
};

static const char *algorithm_name(int algorithm)
{
	static const char *const names[] = {
		"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat",
	};

	if (algorithm == OWN)
		return "-";
	return algorithm < (int)(sizeof names / sizeof *names) ? names[algorithm] : "another";
}

/* FNV-1a of 64 bits. */
static uint64_t digest(const char *text)
{
	uint64_t hash = 14695981039346656037u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 1099511628211u;
	return hash;
}

/* Read a decimal number of at most 15 digits; return whether there is one. */
static int read_number(const char **text, size_t *number, char end)
{
	int digits = 0;

	for (*number = 0; **text >= '0' && **text <= '9' && digits < 16; digits++)
		*number = *number * 10 + (size_t)(*(*text)++ - '0');
	if (!digits || digits > 15 || (**text != end && !(end == ',' && !**text)))
		return 0;
	*text += **text != 0;
	return 1;
}

/* Read one of several words; return its place, -1 for none. */
static int read_word(const char **text, const char *const *words, int count)
{
	for (int i = 0; i < count; i++) {
		size_t length = strlen(words[i]);

		if (!strncmp(*text, words[i], length) && (*text)[length] == ' ') {
			*text += length + 1;
			return i;
		}
	}
	return -1;
}

/* Rows are by function, in the order of the enumeration, and their sizes rise. */
static int read_row(const char **text, int *last)
{
	static const char *const names[] = {"-", "tree", "ring", "pat"};
	static const int algorithms[] = {OWN, TREE, RING, PAT};
	struct row *row = &table.row[table.rows];
	int function = read_word(text, function_names, FUNCTIONS), algorithm;
	size_t channels;

	if (function < 0 || function < *last || table.rows == MOST_ROWS ||
	    !read_number(text, &row->least, ' '))
		return 0;
	algorithm = read_word(text, names, sizeof names / sizeof *names);
	if (algorithm < 0 || !read_number(text, &channels, ',') ||
	    channels > MOST_CHANNELS)
		return 0;
	if (function == *last && row->least <= row[-1].least)
		return 0;
	while (*last < function)
		table.first[++*last] = table.rows;
	row->algorithm = algorithms[algorithm];
	row->channels = (int)channels;
	table.rows++;
	return 1;
}

/* Return whether the whole of the text is a table; a part of one counts as none. */
static int read_table(const char *text)
{
	char *rest;
	uint64_t wanted;
	int last = -1;

	errno = 0;
	wanted = strtoull(text, &rest, 16);
	text = rest + 1;
	if (errno || *rest != ' ' || digest(text) != wanted ||
	    !read_number(&text, &table.ranks, ' ') ||
	    !read_number(&text, &table.nodes, ','))
		return 0;
	while (*text)
		if (!read_row(&text, &last))
			return 0;
	while (last < FUNCTIONS)
		table.first[++last] = table.rows;
	return table.rows > 0 && table.ranks > 1;
}

static void say(int rank, const char *reason)
{
	if (!rank || debugging)
		fprintf(stderr, "cloudcoll: NCCL's own algorithms run: %s\n", reason);
}

/* Whether all ranks of the job have this plugin and this table. */
static int all_agree(int rank, int ranks, const char *text)
{
	struct caller *caller;
	enum outcome outcome;
	char world[32];

	snprintf(world, sizeof world, "tuner-%.16s", text);
	caller = begin_roll(world, rank, ranks, -1);
	while ((outcome = await_roll(caller, INT_MAX)) == WAITING)
		continue;
	end_roll(caller);
	if (outcome == NO_ANSWER)
		say(rank, "cloudcoll run does not answer");
	return outcome == ALL_HERE; /* else cloudcoll run says who is missing */
}

static void open_log(const char *path)
{
	log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (log_file < 0)
		fprintf(stderr, "cloudcoll: NCCL's choices are not logged: %s: %s\n", path,
		        strerror(errno));
	else if (!lseek(log_file, 0, SEEK_END))
		dprintf(log_file, "cloudcoll NCCL choices 1\n");
}

static void begin(void)
{
	static const char *const users[] = {"NCCL_ALGO", "NCCL_PROTO"};
	const char *text = getenv("CLOUDCOLL_NCCL_TABLE");
	const char *debug = getenv("CLOUDCOLL_DEBUG");
	const char *path = getenv("CLOUDCOLL_NCCL_CHOICES");
	int rank = 0, ranks = 0, placed = place_in_torch(&rank, &ranks);

	debugging = debug && *debug && strcmp(debug, "0");
	if (path && *path && placed && !rank)
		open_log(path);
	if (!text || !*text)
		return;
	if (!read_table(text)) {
		say(rank, "CLOUDCOLL_NCCL_TABLE is no table");
		return;
	}
	for (size_t i = 0; i < sizeof users / sizeof *users; i++)
		if (getenv(users[i])) {
			say(rank, "your own NCCL_ALGO or NCCL_PROTO holds");
			return;
		}
	if (!is_counted()) /* by hand: who set it up says that all are alike */
		in_force = 1;
	else if (!placed)
		say(rank, "no variable tells a rank its number");
	else
		in_force = all_agree(rank, ranks, text);
}

/* Only a rank that logs needs memory: with or without it, its choices are the same. */
static int init(size_t ranks, size_t nodes, void *logger, void **context)
{
	struct communicator *logged;
	int ours;

	(void)logger;
	pthread_once(&once, begin);
	ours = in_force && ranks == table.ranks && (!table.nodes || nodes == table.nodes);
	*context = ours ? &unlogged : NULL;
	logged = log_file < 0 ? NULL : calloc(1, sizeof *logged);
	if (logged) {
		logged->ours = ours;
		logged->ranks = ranks;
		logged->nodes = nodes;
		*context = logged;
	}
	return 0;
}

static struct row *row_of(const struct communicator *of, int function, size_t bytes)
{
	struct row *found = NULL;

	if (!of || !of->ours || function < 0 || function >= FUNCTIONS)
		return NULL;
	for (int i = table.first[function]; i < table.first[function + 1]; i++)
		if (table.row[i].least <= bytes)
			found = &table.row[i];
	return found;
}

/* A line whenever something else is taken in a range of sizes than before. */
static void tell(struct row *row, int function, size_t bytes, int algorithm)
{
	if (debugging && atomic_exchange(&row->said, algorithm + 2) != algorithm + 2)
		fprintf(stderr, "cloudcoll: NCCL %s of %zu bytes: %s, chosen %s\n",
		        function_names[function], bytes, algorithm_name(algorithm),
		        algorithm_name(row->algorithm));
}

static int is_offered(float cost)
{
	return cost >= 0 && cost < FLT_MAX;
}

/* Write what NCCL takes, the least of all costs, where it is another than before. */
static void log_choice(struct communicator *of, int function, size_t bytes,
                       costs_t costs, int algorithms, int protocols)
{
	const float *all = (float *)costs;
	int least = -1, class = 0;

	if (!of || of == &unlogged || !costs || function < 0 || function >= FUNCTIONS ||
	    algorithms > MOST_ALGORITHMS)
		return;
	for (int i = 0; i < algorithms * protocols; i++)
		if (is_offered(all[i]) && (least < 0 || all[i] < all[least]))
			least = i;
	if (least < 0)
		return;
	least /= protocols;
	while (class < CLASSES - 1 && bytes >> (class + 1))
		class++;
	if (atomic_exchange(&of->seen[function][class], least + 1) != least + 1 &&
	    logged_lines < MOST_LINES && logged_lines++ < MOST_LINES)
		dprintf(log_file, "%zu %zu %s %zu %s\n", of->ranks, of->nodes,
		        function_names[function], bytes, algorithm_name(least));
}

/* Put all protocols of one algorithm below all other costs, in their own order. */
static void prefer(void *context, int function, size_t bytes, costs_t costs,
                   int algorithms, int protocols, int *channels)
{
	struct row *row = row_of(context, function, bytes);
	int offered = 0;
	float *own;

	if (!row || !costs || protocols < 1 || algorithms > MOST_ALGORITHMS)
		return;
	if (row->algorithm >= algorithms)
		return; /* an NCCL without PAT */
	if (row->algorithm != OWN) {
		own = (float *)costs + row->algorithm * protocols;
		for (int i = 0; i < protocols; i++)
			if (is_offered(own[i])) {
				own[i] *= SHARE;
				offered = 1;
			}
		tell(row, function, bytes, offered ? row->algorithm : OWN);
	}
	if (row->channels && channels && (offered || row->algorithm == OWN))
		*channels = row->channels;
}

static int choose(void *context, int function, size_t bytes, costs_t costs,
                  int algorithms, int protocols, int *channels)
{
	prefer(context, function, bytes, costs, algorithms, protocols, channels);
	log_choice(context, function, bytes, costs, algorithms, protocols);
	return 0;
}

/* Version 2 takes an algorithm and a protocol together, or neither: neither. */
static int choose_v2(void *context, int function, size_t bytes, int collnet, int nvls,
                     int operations, int *algorithm, int *protocol, int *channels)
{
	(void)context, (void)function, (void)bytes, (void)collnet, (void)nvls;
	(void)operations, (void)algorithm, (void)protocol, (void)channels;
	return 0;
}

static int choose_v3(void *context, int function, size_t bytes, int operations,
                     costs_t costs, int algorithms, int protocols, int *channels)
{
	(void)operations;
	return choose(context, function, bytes, costs, algorithms, protocols, channels);
}

static int choose_v4(void *context, int function, size_t bytes, int operations,
                     costs_t costs, int algorithms, int protocols, int registered,
                     int *channels)
{
	(void)operations, (void)registered;
	return choose(context, function, bytes, costs, algorithms, protocols, channels);
}

static int init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   void *logger, void *domains, void *constants)
{
	(void)communicator, (void)domains, (void)constants;
	return init(ranks, nodes, logger, context);
}

static int destroy(void *context)
{
	if (context != &unlogged)
		free(context);
	return 0;
}

EXPORTED const struct tuner_v2 ncclTunerPlugin_v2 = {NAME, init, choose_v2, destroy};
EXPORTED const struct tuner_v3 ncclTunerPlugin_v3 = {NAME, init, choose_v3, destroy};
EXPORTED const struct tuner_v4 ncclTunerPlugin_v4 = {NAME, init, choose_v4, destroy};
EXPORTED const struct tuner_v5 ncclTunerPlugin_v5 = {NAME, init_v5, choose_v4, destroy};
EXPORTED const struct tuner_v6 ncclTunerPlugin_v6 = {
	{NAME, init_v5, choose_v4, destroy},
	NULL,
};
