/* Shared memory between the ranks of a communicator, and waiting for them. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_S 60
#define LOOK_NS 20000000 /* between two looks at whether it was aborted */

void broken(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("standin: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	_exit(99);
}

int changed(_Atomic uint32_t *at, uint32_t value, comm_t comm)
{
	const struct timespec look = {0, LOOK_NS};
	time_t end = time(NULL) + DEADLINE_S;

	while (atomic_load(at) == value) {
		if (time(NULL) > end)
			broken("a rank waits for something that never comes");
		if (comm && atomic_load(&comm->aborted))
			return 0;
		if (comm && atomic_load(&comm->segment->gone)) {
			atomic_store(&comm->state, REMOTE_ERROR);
			return 0;
		}
		syscall(SYS_futex, at, FUTEX_WAIT, value, &look, NULL, 0);
	}
	return 1;
}

static void wake(_Atomic uint32_t *at)
{
	syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void set(_Atomic uint32_t *at, uint32_t value)
{
	atomic_store(at, value);
	wake(at);
}

static size_t segment_bytes(comm_t comm)
{
	return sizeof(struct segment) + (size_t)PLANES * comm->size * comm->size *
	                                        sizeof(struct channel);
}

int attach(comm_t comm)
{
	int file = shm_open(comm->name, O_CREAT | O_RDWR, 0600);
	uint32_t seen, size = (uint32_t)comm->size;

	if (file < 0 || ftruncate(file, (off_t)segment_bytes(comm)))
		broken("no shared memory: %s", strerror(errno));
	comm->segment = mmap(NULL, segment_bytes(comm), PROT_READ | PROT_WRITE,
	                     MAP_SHARED, file, 0);
	close(file);
	if (comm->segment == MAP_FAILED)
		broken("no shared memory: %s", strerror(errno));
	atomic_fetch_add(&comm->segment->attached, 1);
	wake(&comm->segment->attached);
	while ((seen = atomic_load(&comm->segment->attached)) < size)
		if (!changed(&comm->segment->attached, seen, comm))
			return 0;
	if (comm->rank == 0)
		shm_unlink(comm->name);
	return 1;
}

void detach(comm_t comm)
{
	munmap(comm->segment, segment_bytes(comm));
}

static struct channel *channel(comm_t comm, enum plane plane, int from, int to)
{
	return &comm->segment->channels[((size_t)plane * comm->size + from) *
	                                comm->size + to];
}

int send_to(comm_t comm, enum plane plane, int peer, const void *data, size_t bytes)
{
	struct channel *way = channel(comm, plane, comm->rank, peer);
	const char *at = data;

	for (size_t left = bytes, part; left; left -= part, at += part) {
		part = left < CHUNK ? left : CHUNK;
		if (!changed(&way->full, 1, comm))
			return 0;
		memcpy(way->data, at, part);
		way->bytes = (uint32_t)part;
		set(&way->full, 1);
	}
	return 1;
}

int receive(comm_t comm, enum plane plane, int peer, void *data, size_t bytes)
{
	struct channel *way = channel(comm, plane, peer, comm->rank);
	char *at = data;

	for (size_t left = bytes, part; left; left -= part, at += part) {
		if (!changed(&way->full, 0, comm))
			return 0;
		part = way->bytes;
		if (part > left)
			broken("%d bytes too many", (int)(part - left));
		memcpy(at, way->data, part);
		set(&way->full, 0);
	}
	return 1;
}
