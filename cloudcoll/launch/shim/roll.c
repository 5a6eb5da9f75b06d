/* Has every process this library? A host without the file would hang the job:
 * its ranks take no part in what the shim does together.
 *
 * Whoever started the job counts (launch/roll.py). Each process says by datagram that
 * it is here, and again until it is told the outcome. "all" is told only after
 * every one of them has heard an answer, so that nobody is left without it. */
#include "shim.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGAIN_MS 100 /* until heard; then in case the outcome gets lost */
#define AGAIN_HEARD_MS 500
#define UNHEARD_MS 2000 /* for a first answer */
#define UNDECIDED_MS 30000 /* for the last one: it is decided much earlier */
#define MOST_ADDRESSES 8
#define LONGEST 256

/* One process that asks. */
struct caller {
	int socket, addresses, heard;
	struct sockaddr_in to[MOST_ADDRESSES];
	char token[64], question[LONGEST];
	unsigned long long self; /* tells it from others of the same rank */
};

static int all_here;

int all_are_here(void)
{
	/* By hand nobody counts: who set it up says so. */
	return all_here || !getenv("CLOUDCOLL_SHIM_ROLL");
}

/* FNV-1a over variables that are the same in all processes of a world, and
 * tell what they are about to do together. */
static uint32_t world_digest(void)
{
	static const char *const names[] = {
		"CLOUDCOLL_SHIM_ORDER", "CLOUDCOLL_SHIM_MAP", "CLOUDCOLL_PROFILE",
		"PMIX_NAMESPACE",
	};
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *at = getenv(names[i]);

		for (; at && *at; at++)
			hash = (hash ^ (unsigned char)*at) * 16777619u;
		hash = (hash ^ '\n') * 16777619u;
	}
	return hash;
}

/* Read "TOKEN PORT ADDRESS..."; return whether there is anybody to ask. */
static int read_address(struct caller *caller, const char *text)
{
	char words[LONGEST], *rest, *word;
	int port = 0;

	snprintf(words, sizeof words, "%s", text);
	if ((word = strtok_r(words, " ", &rest)))
		snprintf(caller->token, sizeof caller->token, "%s", word);
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

static void ask(struct caller *caller)
{
	char text[LONGEST + 8];
	int length = snprintf(text, sizeof text, "%s %d", caller->question,
	                      caller->heard);

	/* What gets lost is sent again. */
	for (int i = 0; i < caller->addresses; i++)
		sendto(caller->socket, text, (size_t)length, 0,
		       (struct sockaddr *)&caller->to[i], sizeof caller->to[i]);
}

/* Take one answer: 1 all, 0 not all, -1 wait. */
static int answer(struct caller *caller)
{
	char text[LONGEST], wait[LONGEST], all[LONGEST], none[LONGEST];
	struct sockaddr_in from = {0};
	socklen_t room = sizeof from;
	ssize_t length = recvfrom(caller->socket, text, sizeof text - 1, MSG_DONTWAIT,
	                          (struct sockaddr *)&from, &room);

	text[length > 0 ? length : 0] = '\0';
	snprintf(wait, sizeof wait, "%s %llx wait", caller->token, caller->self);
	snprintf(all, sizeof all, "%s %llx all", caller->token, caller->self);
	snprintf(none, sizeof none, "%s %llx no", caller->token, caller->self);
	if (!strcmp(text, wait) && !caller->heard) {
		caller->heard = 1;
		caller->to[0] = from;
		caller->addresses = 1;
		ask(caller);
	}
	return !strcmp(text, all) ? 1 : !strcmp(text, none) ? 0 : -1;
}

/* Ask until it is decided, or nobody answers. */
static int decided(struct caller *caller)
{
	struct pollfd ready = {caller->socket, POLLIN, 0};
	int64_t start = now_ns() / 1000000, next = 0, passed = 0;
	int all = -1;

	while (all < 0 && passed < (caller->heard ? UNDECIDED_MS : UNHEARD_MS)) {
		if (passed >= next) {
			ask(caller);
			next = passed + (caller->heard ? AGAIN_HEARD_MS : AGAIN_MS);
		}
		if (poll(&ready, 1, (int)(next - passed)) > 0)
			all = answer(caller);
		passed = now_ns() / 1000000 - start;
	}
	return all;
}

void call_roll(void)
{
	const char *text = getenv("CLOUDCOLL_SHIM_ROLL");
	struct caller caller = {0};
	int rank = -1, all = -1;

	if (!text)
		return;
	mpi.Comm_rank(mpi.comm_world, (word)&rank);
	caller.socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (caller.socket >= 0 && read_address(&caller, text) &&
	    getrandom(&caller.self, sizeof caller.self, 0) == sizeof caller.self) {
		snprintf(caller.question, sizeof caller.question, "%s here %08x %d %d %llx",
		         caller.token, world_digest(), rank, members_of(mpi.comm_world),
		         caller.self);
		all = decided(&caller);
	}
	if (caller.socket >= 0)
		close(caller.socket);
	all_here = all > 0;
	if (all < 0 && (!rank || debugging()))
		say("cloudcoll run does not answer: running in the order given");
}
