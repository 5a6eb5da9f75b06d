/* Has every process this library? A host without the file would hang the job:
 * its ranks take no part in what the shim does together.
 *
 * Whoever started the job counts (launch/roll.py). Each rank says by datagram that
 * it is here, and again until it is told the outcome. "all" is told only after
 * every one of them has heard an answer, so that nobody is left without it. Both
 * sides believe only what is sealed with the job's secret (launch/seal.py). */
#include "roll.h"
#include "seal.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_MS 100 /* until heard; then in case the outcome gets lost */
#define AGAIN_HEARD_MS 500
#define UNHEARD_MS 2000 /* for a first answer */
#define UNDECIDED_MS 30000 /* for the last one: it is decided much earlier */
#define PATIENT_MS 90000 /* the same before MPI_Init */
#define TOLD_TIMES 3 /* nobody answers */
#define MOST_ADDRESSES 8
#define LONGEST 256
#define PUBLIC "000000000000000000000000000000000000000000000000"
#define LONGEST_ANSWER (1 << 16) /* of a datagram */

struct caller {
	int socket, addresses, heard, place, undecided_ms;
	enum outcome outcome;
	struct sockaddr_in to[MOST_ADDRESSES];
	struct seal seal;
	char question[LONGEST];
	unsigned long long self; /* tells it from others of the same rank */
	int64_t began, next;     /* in milliseconds; when to ask again */
	char answer[LONGEST_ANSWER];
	const char *places;
};

int is_counted(void)
{
	static _Atomic int answer; /* the first: programs change their environment */

	if (!answer)
		answer = getenv("CLOUDCOLL_SHIM_ROLL") ? 1 : -1;
	return answer > 0;
}

static int place_by(const char *const names[2], int *rank, int *ranks)
{
	const char *own = getenv(names[0]), *all = getenv(names[1]);

	if (!own || !all)
		return 0;
	*rank = atoi(own);
	*ranks = atoi(all);
	return *ranks > 0;
}

int place_in_world(int *rank, int *ranks)
{
	static const char *const names[][2] = {
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
		{"PMI_RANK", "PMI_SIZE"},
		{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
		{"SLURM_PROCID", "SLURM_NTASKS"},
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (place_by(names[i], rank, ranks))
			return 1;
	return 0;
}

int place_in_torch(int *rank, int *ranks)
{
	static const char *const names[] = {"RANK", "WORLD_SIZE"};

	return place_by(names, rank, ranks) || place_in_world(rank, ranks);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Read "VARIABLE PORT ADDRESS..."; return whether there is anybody to ask. The
 * variable has the secret; "-" where strangers know as much as ranks. */
static int read_address(struct caller *caller, const char *text)
{
	char words[LONGEST], *rest, *word;
	int port = 0;

	snprintf(words, sizeof words, "%s", text);
	if (!(word = strtok_r(words, " ", &rest)) ||
	    !read_secret(&caller->seal, strcmp(word, "-") ? getenv(word) : PUBLIC))
		return 0;
	if ((word = strtok_r(NULL, " ", &rest)))
		port = atoi(word);
	while ((word = strtok_r(NULL, " ", &rest)) &&
	       caller->addresses < MOST_ADDRESSES) {
		struct sockaddr_in *to = &caller->to[caller->addresses];

		to->sin_family = AF_INET;
		to->sin_port = htons((uint16_t)port);
		caller->addresses += inet_pton(AF_INET, word, &to->sin_addr) == 1;
	}
	return caller->addresses > 0;
}

struct caller *begin_roll(const char *world, int rank, int ranks, int place)
{
	const char *text = getenv("CLOUDCOLL_SHIM_ROLL");
	struct caller *caller = text ? calloc(1, sizeof *caller) : NULL;

	if (!caller)
		return NULL;
	caller->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	caller->place = place;
	caller->undecided_ms = UNDECIDED_MS;
	caller->places = "";
	caller->began = caller->next = now_ms();
	if (caller->socket < 0 || !read_address(caller, text) ||
	    getrandom(&caller->self, sizeof caller->self, 0) != sizeof caller->self)
		caller->outcome = NO_ANSWER;
	snprintf(caller->question, sizeof caller->question, "here %s %d %d %llx", world,
	         rank, ranks, caller->self);
	return caller;
}

void be_patient(struct caller *caller)
{
	if (caller)
		caller->undecided_ms = PATIENT_MS;
}

static void send_sealed(struct caller *caller, const char *text)
{
	char sealed[SEALED + LONGEST + 64];
	int length = snprintf(sealed, sizeof sealed, "%s %016" PRIx64 " %s",
	                      caller->seal.cookie,
	                      mac_of(&caller->seal, text, strlen(text)), text);

	for (int i = 0; i < caller->addresses; i++)
		sendto(caller->socket, sealed, (size_t)length, 0,
		       (struct sockaddr *)&caller->to[i], sizeof caller->to[i]);
}

void tell_roll(struct caller *caller, const char *wrong)
{
	char text[LONGEST];

	snprintf(text, sizeof text, "ran %s", wrong);
	for (int i = 0; i < TOLD_TIMES; i++)
		send_sealed(caller, text);
}

static void ask(struct caller *caller)
{
	char text[LONGEST + 32];

	snprintf(text, sizeof text, "%s %d %d", caller->question, caller->heard,
	         caller->place);
	send_sealed(caller, text); /* what gets lost is sent again */
	caller->next = now_ms() + (caller->heard ? AGAIN_HEARD_MS : AGAIN_MS);
}

/* Whether an answer comes from where we asked. */
static int was_asked(const struct caller *caller, const struct sockaddr_in *from)
{
	for (int i = 0; i < caller->addresses; i++)
		if (caller->to[i].sin_addr.s_addr == from->sin_addr.s_addr &&
		    caller->to[i].sin_port == from->sin_port)
			return 1;
	return 0;
}

/* Take one answer: "SELF" and "wait", "no" or "all PLACES". */
static void take_answer(struct caller *caller)
{
	char *text = caller->answer, own[LONGEST];
	int length = snprintf(own, sizeof own, "%llx ", caller->self);
	struct sockaddr_in from = {0};
	socklen_t room = sizeof from;
	ssize_t got = recvfrom(caller->socket, text, LONGEST_ANSWER - 1, MSG_DONTWAIT,
	                       (struct sockaddr *)&from, &room);

	text[got > 0 ? got : 0] = '\0';
	if (strlen(text) < SEALED || strncmp(text + SEALED, own, (size_t)length) ||
	    !is_sealed(&caller->seal, text))
		return;
	text += SEALED + length;
	if (!strcmp(text, "no"))
		caller->outcome = NOT_ALL;
	if (!strncmp(text, "all ", 4)) {
		caller->outcome = ALL_HERE;
		caller->places = text + 4;
	}
	if (!strcmp(text, "wait") && !caller->heard) {
		caller->heard = 1;
		/* A copy of an answer that somebody else sends leads nobody astray. */
		if (was_asked(caller, &from)) {
			caller->to[0] = from;
			caller->addresses = 1;
		}
		ask(caller);
	}
}

enum outcome await_roll(struct caller *caller, int milliseconds)
{
	int64_t now = now_ms(), end = now + milliseconds;

	if (!caller)
		return NO_ANSWER;
	do {
		struct pollfd ready = {caller->socket, POLLIN, 0};

		if (caller->outcome != WAITING)
			break;
		if (now >= caller->next)
			ask(caller);
		if (poll(&ready, 1, (int)((end < caller->next ? end : caller->next) - now)) > 0)
			take_answer(caller);
		now = now_ms();
		if (caller->outcome == WAITING &&
		    now - caller->began > (caller->heard ? caller->undecided_ms : UNHEARD_MS))
			caller->outcome = NO_ANSWER;
	} while (now < end);
	return caller->outcome;
}

const char *told_places(const struct caller *caller)
{
	return caller->places;
}

void end_roll(struct caller *caller)
{
	if (caller && caller->socket >= 0)
		close(caller->socket);
	free(caller);
}
