/* NCCL's tuner interface, versions 2 to 6, as far as the plugin needs it.
 *
 * Facts read in NVIDIA/nccl (2026-06): `src/include/plugin/tuner/tuner_v2.h` to
 * `tuner_v6.h`, how they are called in `src/plugin/tuner/tuner_v*.cc` and
 * `src/enqueue.cc`, algorithms in `nccl_tuner.h`, functions in `nccl_common.h`.
 * First NCCL that asks for each: v2 2.21, v3 2.22, v4 2.24, v5 2.28, v6 2.30; RCCL
 * asks for the same names (v2 in 2024-10, later v5).
 */
#ifndef CLOUDCOLL_NCCL_TUNER_H
#define CLOUDCOLL_NCCL_TUNER_H

#include <stddef.h>
#include <stdint.h>

enum { BROADCAST, REDUCE, ALLGATHER, REDUCE_SCATTER, ALLREDUCE, FUNCTIONS };
enum { TREE = 0, RING = 1, PAT = 6 };

/* The table of costs travels as float **, and is float[algorithms][protocols]: in
 * microseconds, -1 for what is impossible. The least one wins. */
typedef float **costs_t;

struct tuner_v2 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, void *logger, void **context);
	int (*choose)(void *context, int function, size_t bytes, int collnet, int nvls,
	              int operations, int *algorithm, int *protocol, int *channels);
	int (*destroy)(void *context);
};

struct tuner_v3 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, void *logger, void **context);
	int (*choose)(void *context, int function, size_t bytes, int operations,
	              costs_t costs, int algorithms, int protocols, int *channels);
	int (*destroy)(void *context);
};

struct tuner_v4 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, void *logger, void **context);
	int (*choose)(void *context, int function, size_t bytes, int operations,
	              costs_t costs, int algorithms, int protocols, int registered,
	              int *channels);
	int (*destroy)(void *context);
};

struct tuner_v5 {
	const char *name;
	int (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes,
	            void *logger, void *domains, void *constants);
	int (*choose)(void *context, int function, size_t bytes, int operations,
	              costs_t costs, int algorithms, int protocols, int registered,
	              int *channels);
	int (*destroy)(void *context);
};

struct tuner_v6 {
	struct tuner_v5 as_v5;
	/* Sees what NCCL takes after all. */
	int (*chunk)(void *context, int function, size_t bytes, int algorithm,
	             int protocol, int channels, size_t *chunk);
};

#endif
