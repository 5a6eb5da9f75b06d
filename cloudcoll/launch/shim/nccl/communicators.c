/* How communicators come and go: the entry points that applications call. */
#include "nccl.h"
#include "../order.h"

#include <pthread.h>

/* One call of two that may have to run at the same time: each waits for the
 * GPU, and what the GPU waits for may be what the other one ends. */
struct call {
	result_t (*function)(comm_t, int);
	comm_t comm;
	int flags;
	pthread_t thread;
	int running;
};

static void *run(void *context)
{
	struct call *call = context;

	/* The answer is the application's communicator's to give. */
	call->function(call->comm, call->flags);
	return NULL;
}

static void begin(struct call *call)
{
	if (!call->comm)
		return;
	call->running = !pthread_create(&call->thread, NULL, run, call);
	if (!call->running)
		run(call);
}

static void end(struct call *call)
{
	if (call->running)
		pthread_join(call->thread, NULL);
}

static result_t abort_one(comm_t comm, int flags)
{
	(void)flags;
	return nccl.CommAbort(comm);
}

static comm_t twin_of(const struct shadow *shadow)
{
	return shadow ? shadow->twin : NULL;
}

static void say_memory(const struct shadow *shadow)
{
	unsigned long bytes = 0;

	/* 3: ncclStatGpuMemTotal of nccl.h 2.29 */
	if (debugging() && nccl.CommMemStats &&
	    !nccl.CommMemStats(shadow->twin, 3, &bytes))
		say("the shadow of %d ranks took %lu bytes of GPU memory", shadow->size,
		    bytes);
}

#pragma GCC visibility push(default)

result_t ncclCommInitRank(comm_t *comm, int size, unique_id id, int rank)
{
	return begun(REAL(CommInitRank, comm, size, id, rank), &id, comm);
}

result_t ncclCommInitRankConfig(comm_t *comm, int size, unique_id id, int rank,
                                void *config)
{
	return begun(REAL(CommInitRankConfig, comm, size, id, rank, config), &id,
	             comm);
}

result_t ncclCommInitRankScalable(comm_t *comm, int size, int rank, int count,
                                  unique_id *ids, void *config)
{
	return begun(REAL(CommInitRankScalable, comm, size, rank, count, ids, config),
	             ids, comm);
}

result_t ncclCommSplit(comm_t comm, int color, int key, comm_t *child,
                       void *config)
{
	return begun_child(REAL(CommSplit, comm, color, key, child, config), comm,
	                   color, child);
}

result_t ncclCommShrink(comm_t comm, int *without, int count, comm_t *child,
                        void *config, int flags)
{
	struct call call = {.function = abort_one};
	struct shadow *shadow = find_shadow(comm);
	result_t code;

	if (shadow && flags & SHRINK_ABORT) {
		call.comm = shadow->twin;
		shadow->twin = NULL;
	}
	begin(&call);
	code = REAL(CommShrink, comm, without, count, child, config, flags);
	end(&call);
	return begun_child(code, comm, 0, child);
}

result_t ncclCommGetAsyncError(comm_t comm, result_t *state)
{
	result_t code = REAL(CommGetAsyncError, comm, state), told;

	if (code || (*state != SUCCESS && *state != IN_PROGRESS))
		return code;
	told = advance(comm);
	if (*state == SUCCESS)
		*state = told;
	return code;
}

result_t ncclCommFinalize(comm_t comm)
{
	comm_t twin = twin_of(find_shadow(comm));
	result_t code = twin ? nccl.CommFinalize(twin) : SUCCESS;

	return code && code != IN_PROGRESS ? code : REAL(CommFinalize, comm);
}

result_t ncclCommDestroy(comm_t comm)
{
	struct shadow *shadow = take_shadow(comm);
	result_t code;

	if (shadow && shadow->state == SETTLED && shadow->twin) {
		say_memory(shadow);
		nccl.CommDestroy(shadow->twin);
	}
	code = REAL(CommDestroy, comm);
	/* A split that is under way would still write to it. */
	if (shadow && (shadow->state == SETTLED || !code))
		free_shadow(shadow);
	return code;
}

result_t ncclCommAbort(comm_t comm)
{
	struct shadow *shadow = take_shadow(comm);
	struct call call = {.function = abort_one, .comm = twin_of(shadow)};
	result_t code;

	begin(&call);
	code = REAL(CommAbort, comm);
	end(&call);
	if (shadow && shadow->twin != call.comm) /* the split has just ended */
		nccl.CommAbort(shadow->twin);
	free_shadow(shadow);
	return code;
}

result_t ncclCommRevoke(comm_t comm, int flags)
{
	struct call call = {.function = nccl.CommRevoke, .flags = flags};
	result_t code;

	if (nccl.CommRevoke)
		call.comm = twin_of(find_shadow(comm));
	begin(&call);
	code = REAL(CommRevoke, comm, flags);
	end(&call);
	return code;
}

result_t ncclCommSuspend(comm_t comm, int flags)
{
	comm_t twin = twin_of(find_shadow(comm));
	result_t code = twin && nccl.CommSuspend ? nccl.CommSuspend(twin, flags) : SUCCESS;

	return code ? code : REAL(CommSuspend, comm, flags);
}

result_t ncclCommResume(comm_t comm)
{
	comm_t twin = twin_of(find_shadow(comm));
	result_t code = twin && nccl.CommResume ? nccl.CommResume(twin) : SUCCESS;

	return code ? code : REAL(CommResume, comm);
}

/* A window belongs to one communicator, and all ranks register it: from here on
 * everything stays there, so that what needs the window finds it. */
result_t ncclCommWindowRegister(comm_t comm, void *buffer, size_t size,
                                void **window, int flags)
{
	struct shadow *shadow = find_shadow(comm);

	if (shadow)
		shadow->left = 1;
	return REAL(CommWindowRegister, comm, buffer, size, window, flags);
}
