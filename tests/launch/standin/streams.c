/* Streams and graphs: operations run after the call that asked for them. */
#include "standin.h"

#include <stdlib.h>

struct batch {
	struct batch *next;
	struct operation *operations;
};

struct graph {
	struct batch *first, **last;
};

struct stream {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct batch *first;
	int left; /* batches that are not done */
	struct graph *graph; /* being captured */
	struct stream *next;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams; /* the first one made stands for NULL */
static atomic_int captures;

static void *allocate(size_t size)
{
	void *room = calloc(1, size);

	if (!room)
		broken("no memory");
	return room;
}

/* All that one group has asked of one communicator, in order. */
static void *run_communicator(void *context)
{
	struct operation *first = context;

	for (struct operation *o = first; o; o = o->next) {
		if (o->comm != first->comm)
			continue;
		for (uint32_t now; (now = atomic_load(&o->comm->done)) != o->ticket;)
			if (!changed(&o->comm->done, now, o->comm))
				break;
		perform(o);
		set(&o->comm->done, atomic_load(&o->comm->done) + 1);
	}
	return NULL;
}

static void run_batch(struct operation *operations)
{
	pthread_t threads[MOST];
	int count = 0;

	for (struct operation *o = operations; o; o = o->next) {
		int seen = 0;
		for (struct operation *p = operations; p != o; p = p->next)
			seen |= p->comm == o->comm;
		if (seen)
			continue;
		if (count == MOST ||
		    pthread_create(&threads[count++], NULL, run_communicator, o))
			broken("no thread");
	}
	while (count)
		pthread_join(threads[--count], NULL);
	for (struct operation *next; operations; operations = next) {
		next = operations->next;
		free(operations);
	}
}

static void *work(void *context)
{
	struct stream *stream = context;

	for (struct batch *batch;;) {
		pthread_mutex_lock(&stream->lock);
		while (!stream->first)
			pthread_cond_wait(&stream->changed, &stream->lock);
		batch = stream->first;
		stream->first = batch->next;
		pthread_mutex_unlock(&stream->lock);
		run_batch(batch->operations);
		free(batch);
		pthread_mutex_lock(&stream->lock);
		stream->left--;
		pthread_cond_broadcast(&stream->changed);
		pthread_mutex_unlock(&stream->lock);
	}
	return NULL;
}

EXPORT struct stream *standinStream(void)
{
	struct stream *stream = allocate(sizeof *stream);
	pthread_t thread;

	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	if (pthread_create(&thread, NULL, work, stream))
		broken("no thread");
	pthread_detach(thread);
	return stream;
}

static struct stream *given(struct stream *stream)
{
	pthread_mutex_lock(&streams_lock);
	if (!stream && !streams)
		streams = standinStream();
	if (!stream)
		stream = streams;
	pthread_mutex_unlock(&streams_lock);
	return stream;
}

static void append(struct stream *stream, struct batch *batch)
{
	struct batch **at = &stream->first;

	for (struct operation *o = batch->operations; o; o = o->next)
		o->ticket = atomic_fetch_add(&o->comm->issued, 1);
	pthread_mutex_lock(&stream->lock);
	while (*at)
		at = &(*at)->next;
	*at = batch;
	stream->left++;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
}

static void give(struct stream *stream, struct operation *operations)
{
	struct batch *batch = allocate(sizeof *batch);

	batch->operations = operations;
	if (!stream->graph) {
		append(stream, batch);
		return;
	}
	*stream->graph->last = batch;
	stream->graph->last = &batch->next;
}

void enqueue(struct operation *operations)
{
	while (operations) {
		struct stream *stream = operations->stream;
		struct operation *same = NULL, **end = &same, **at = &operations;

		while (*at) {
			struct operation *o = *at;
			if (o->stream != stream) {
				at = &o->next;
				continue;
			}
			*at = o->next;
			o->next = NULL;
			*end = o;
			end = &o->next;
		}
		give(given(stream), same);
	}
}

void drain(comm_t comm)
{
	for (uint32_t now; (now = atomic_load(&comm->done)) != atomic_load(&comm->issued);)
		changed(&comm->done, now, NULL);
}

int capturing(void)
{
	return atomic_load(&captures) > 0;
}

EXPORT void standinSynchronize(struct stream *stream)
{
	stream = given(stream);
	pthread_mutex_lock(&stream->lock);
	while (stream->left)
		pthread_cond_wait(&stream->changed, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

EXPORT void standinBeginCapture(struct stream *stream)
{
	stream->graph = allocate(sizeof *stream->graph);
	stream->graph->last = &stream->graph->first;
	atomic_fetch_add(&captures, 1);
}

EXPORT struct graph *standinEndCapture(struct stream *stream)
{
	struct graph *graph = stream->graph;

	stream->graph = NULL;
	atomic_fetch_sub(&captures, 1);
	return graph;
}

EXPORT void standinLaunch(const struct graph *graph, struct stream *stream)
{
	for (struct batch *kept = graph->first; kept; kept = kept->next) {
		struct batch *batch = allocate(sizeof *batch);
		struct operation **end = &batch->operations;

		for (struct operation *o = kept->operations; o; o = o->next) {
			*end = allocate(sizeof **end);
			**end = *o;
			(*end)->next = NULL;
			end = &(*end)->next;
		}
		append(stream, batch);
	}
}
