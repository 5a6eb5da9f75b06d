/* Groups, and what does not wait: jobs that make or end communicators. */
#include "standin.h"

#include <stdlib.h>

static __thread int depth;
static __thread struct job *jobs;
static __thread struct operation *operations;

static void *run(void *context)
{
	struct job *job = context;

	job->result = job->run(job);
	return NULL;
}

/* On its own: the communicator that tells of it is not ready until it ended. */
static void *run_alone(void *context)
{
	struct job *job = context;
	comm_t told = job->parent ? job->parent : job->comm;

	atomic_store(&told->state, job->run(job));
	free(job);
	return NULL;
}

/* All at once, since one may wait for another. */
static result_t run_jobs(void)
{
	result_t result = SUCCESS;
	struct job *first = jobs, *next;

	jobs = NULL;
	for (struct job *job = first; job; job = next) {
		comm_t told = job->parent ? job->parent : job->comm;
		next = job->next; /* one that runs alone is gone at any time */
		if (told->blocking) {
			if (pthread_create(&job->thread, NULL, run, job))
				broken("no thread");
			continue;
		}
		atomic_store(&told->state, IN_PROGRESS);
		result = IN_PROGRESS;
		if (pthread_create(&job->thread, NULL, run_alone, job))
			broken("no thread");
		pthread_detach(job->thread);
	}
	if (result == IN_PROGRESS)
		return result;
	for (struct job *job = first; job; job = next) {
		next = job->next;
		pthread_join(job->thread, NULL);
		if (job->result)
			result = job->result;
		free(job);
	}
	return result;
}

result_t launch(struct job job, comm_t told)
{
	struct job *kept = malloc(sizeof *kept);

	if (!kept)
		broken("no memory");
	if (jobs && (jobs->parent ? jobs->parent : jobs->comm)->blocking != told->blocking)
		return INVALID_ARGUMENT;
	*kept = job;
	kept->next = jobs;
	jobs = kept;
	return depth ? SUCCESS : run_jobs();
}

result_t issue(struct operation operation)
{
	struct operation *kept, **at = &operations;

	if (atomic_load(&operation.comm->state) || operation.comm->suspended ||
	    atomic_load(&operation.comm->aborted))
		return INVALID_ARGUMENT;
	if (operation.op > 4 && !made_op(operation.op, operation.comm))
		return INVALID_ARGUMENT;
	trace(&operation);
	kept = malloc(sizeof *kept);
	if (!kept)
		broken("no memory");
	*kept = operation;
	while (*at)
		at = &(*at)->next;
	*at = kept;
	if (!depth) {
		enqueue(operations);
		operations = NULL;
	}
	return SUCCESS;
}

EXPORT result_t ncclGroupStart(void)
{
	depth++;
	return SUCCESS;
}

EXPORT result_t ncclGroupEnd(void)
{
	result_t result = SUCCESS;

	if (!depth)
		return INVALID_USAGE;
	if (--depth)
		return SUCCESS;
	if (jobs)
		result = run_jobs();
	enqueue(operations);
	operations = NULL;
	return result;
}

EXPORT result_t ncclGroupSimulateEnd(void *info)
{
	(void)info;
	depth--;
	for (struct operation *next; operations; operations = next) {
		next = operations->next;
		free(operations);
	}
	return SUCCESS;
}
