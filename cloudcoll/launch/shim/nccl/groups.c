/* When a communicator can be split: once the library is done with making it.
 *
 * In a group that is at the end of the outermost one; where nothing waits, it
 * is when the application is about to be told that it is ready. */
#include "nccl.h"

static __thread int depth;
static __thread struct shadow *queue; /* begun in the group of this thread */

/* Split all at once: they may be of one communicator, on several devices. */
static result_t split_queue(void)
{
	struct shadow *shadow, *next, *here = NULL;
	result_t code = nccl.GroupStart(), ended;

	for (shadow = queue; shadow; shadow = next) {
		next = shadow->queued;
		if (!appeared(shadow))
			continue;
		shadow->queued = here;
		here = shadow;
		if (!code)
			code = begin_split(shadow);
	}
	ended = nccl.GroupEnd();
	for (shadow = here; shadow; shadow = shadow->queued)
		settle(shadow);
	queue = NULL;
	return code ? code : ended;
}

/* Go on with the queue after a call that made, or began, all of it. */
static result_t go_on(result_t code)
{
	struct shadow *next;

	if (code == SUCCESS)
		return queue ? split_queue() : SUCCESS;
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

result_t begun(result_t code, comm_t parent, comm_t *slot)
{
	struct shadow *shadow;

	if (code != SUCCESS && code != IN_PROGRESS)
		return code;
	/* Of one that has no parent the address is known at once. */
	shadow = remember(parent ? parent : *slot, slot);
	if (!shadow)
		return SYSTEM_ERROR;
	shadow->queued = queue;
	queue = shadow;
	return depth ? code : go_on(code);
}

result_t begun_all(result_t code, comm_t *slots, int count)
{
	result_t last = code;

	depth++;
	for (int i = 0; i < count && last == code; i++)
		last = begun(code, NULL, slots + i);
	depth--;
	return depth ? last : go_on(last);
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
