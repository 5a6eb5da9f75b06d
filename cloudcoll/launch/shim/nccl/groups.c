/* When a communicator can be split: once the library is done with making it.
 *
 * In a group that is at the end of the outermost one; where nothing waits, it
 * is when the application is about to be told that it is ready. */
#include "nccl.h"

#define TURN_MS 1 /* of one rank among several of a thread that ask */

/* Another model would need a library that musl's loader does not have. */
#define PER_THREAD static __thread __attribute__((tls_model("initial-exec")))

PER_THREAD int depth;
PER_THREAD struct shadow *queue; /* begun in the group of this thread */

/* Leave in the queue only what has appeared: this rank is part of it. */
static void sift_queue(void)
{
	struct shadow *shadow = queue, *next;

	for (queue = NULL; shadow; shadow = next) {
		next = shadow->queued;
		if (!appeared(shadow))
			continue;
		shadow->queued = queue;
		queue = shadow;
	}
}

/* All at once: they may be of one communicator, on several devices. */
static result_t split_queue(void)
{
	result_t code = SUCCESS, ended = SUCCESS;

	for (struct shadow *shadow = queue; shadow && !code; shadow = shadow->queued)
		code = begin_asking(shadow);
	for (int waiting = 1; waiting;) {
		waiting = 0;
		for (struct shadow *shadow = queue; shadow; shadow = shadow->queued)
			waiting |= !answered(shadow, TURN_MS);
	}
	if (!code && !(code = nccl.GroupStart())) {
		for (struct shadow *shadow = queue; shadow && !code; shadow = shadow->queued)
			code = begin_split(shadow);
		ended = nccl.GroupEnd();
	}
	for (struct shadow *shadow = queue; shadow; shadow = shadow->queued)
		settle(shadow);
	return code ? code : ended;
}

/* Go on with the queue after a call that made, or began, all of it. */
static result_t go_on(result_t code)
{
	struct shadow *next;

	if (code == SUCCESS) {
		sift_queue();
		code = queue ? split_queue() : SUCCESS;
		queue = NULL;
		return code;
	}
	for (; queue; queue = next) {
		next = queue->queued;
		queue->polled = code == IN_PROGRESS;
		if (queue->polled)
			continue;
		take_off(queue);
		free_shadow(queue);
	}
	return code;
}

static result_t enqueue(result_t code, comm_t parent, uint64_t name, comm_t *slot)
{
	struct shadow *shadow = remember(parent, name, slot);

	if (!shadow)
		return SYSTEM_ERROR;
	shadow->queued = queue;
	queue = shadow;
	return depth ? code : go_on(code);
}

static int has_begun(result_t code)
{
	return code == SUCCESS || code == IN_PROGRESS;
}

result_t begun(result_t code, const unique_id *id, comm_t *slot)
{
	if (!has_begun(code))
		return code;
	/* Of one that has no parent the address is known at once. */
	return enqueue(code, *slot, mixed(NAMELESS, id, sizeof *id), slot);
}

result_t begun_child(result_t code, comm_t parent, int color, comm_t *slot)
{
	struct shadow *shadow = find_shadow(parent);
	int who[2] = {color, 0};

	/* Of one host, or with ranks that may have no shim. */
	if (!has_begun(code) || !shadow)
		return code;
	who[1] = ++shadow->children;
	return enqueue(code, parent, mixed(shadow->name, who, sizeof who), slot);
}

#pragma GCC visibility push(default)

result_t ncclGroupStart(void)
{
	result_t code = REAL(GroupStart);

	if (!code)
		depth++;
	return code;
}

result_t ncclGroupEnd(void)
{
	result_t code = REAL(GroupEnd);

	if (depth)
		depth--;
	return depth ? code : go_on(code);
}

result_t ncclGroupSimulateEnd(void *info)
{
	result_t code = REAL(GroupSimulateEnd, info);

	if (depth)
		depth--;
	return code;
}
