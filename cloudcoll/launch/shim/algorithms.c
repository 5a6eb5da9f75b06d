/* Open MPI's algorithms, called through here: each says that it ran, and one that
 * would mix up operations that do not commute gives way to one that does not.
 *
 * The component tuned calls them by the loader (they are exported for components),
 * so that a preloaded library comes before them. Rules in a file are not asked
 * whether an operation commutes, as Open MPI's own decisions are: a ring then adds
 * up in another order (coll_base_allreduce.c, "can be used only for commutative
 * operations"). Read in 4.1.4 to 5.0.10. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

int guarding;

/* The last of each collective since `forget_algorithm`, but for what another calls
 * inside or gives way to: HAN's first call makes communicators, and asks with small
 * calls of the same collective before (coll_han_subcomms.c). */
static _Thread_local const char *ran[COLLECTIVES]
	__attribute__((tls_model("initial-exec"))); /* needs no loader's help */
static _Thread_local int inside[COLLECTIVES]
	__attribute__((tls_model("initial-exec")));

void forget_algorithm(enum collective collective)
{
	ran[collective] = NULL;
}

const char *algorithm_that_ran(enum collective collective)
{
	return ran[collective];
}

static int commutes(word op)
{
	int answer = 1;

	mpi.Op_commutative(op, (word)&answer);
	return answer;
}

/* As many words as any of them takes, a chain of reduce (coll_base_functions.h);
 * registers and stack pass what they are given, whatever it means. */
#define ELEVEN_WORDS word a, word b, word c, word d, word e, word f, word g, word h, \
	word i, word j, word k
#define PASSED a, b, c, d, e, f, g, h, i, j, k

typedef word (*algorithm)(ELEVEN_WORDS);

#define NAMED(collective, name) ompi_coll_base_##collective##_intra_##name

#define ENTRY(kind, collective, name, instead) \
	word NAMED(collective, name)(ELEVEN_WORDS) \
	{ \
		static algorithm real; \
		if (!real) \
			real = (algorithm)find_function("ompi_coll_base_" #collective \
			                                "_intra_" #name); \
		if (!inside[kind]++) \
			ran[kind] = #name; \
		word done = instead(PASSED); \
		inside[kind]--; \
		return done; \
	}

#define PLAIN_ENTRY(kind, collective, name) ENTRY(kind, collective, name, real)

/* The operation is the fifth argument of all that reduce. */
#define GUARDED(kind, collective, name, instead) \
	ENTRY(kind, collective, name, \
	      (guarding && !commutes(e) ? NAMED(collective, instead) : real))

#pragma GCC visibility push(default)

PLAIN_ENTRY(ALLREDUCE, allreduce, basic_linear)
PLAIN_ENTRY(ALLREDUCE, allreduce, nonoverlapping)
PLAIN_ENTRY(ALLREDUCE, allreduce, recursivedoubling)
PLAIN_ENTRY(ALLREDUCE, allreduce, redscat_allgather)
GUARDED(ALLREDUCE, allreduce, ring, recursivedoubling)

/* Its last argument, the segment, means nothing to the other. */
GUARDED(ALLREDUCE, allreduce, ring_segmented, recursivedoubling)

PLAIN_ENTRY(REDUCE, reduce, basic_linear)
PLAIN_ENTRY(REDUCE, reduce, in_order_binary)
PLAIN_ENTRY(REDUCE, reduce, redscat_gather)
GUARDED(REDUCE, reduce, chain, basic_linear)
GUARDED(REDUCE, reduce, pipeline, basic_linear)
GUARDED(REDUCE, reduce, binary, basic_linear)
GUARDED(REDUCE, reduce, binomial, basic_linear)

PLAIN_ENTRY(REDUCE_SCATTER, reduce_scatter, nonoverlapping)
PLAIN_ENTRY(REDUCE_SCATTER, reduce_scatter, butterfly)
GUARDED(REDUCE_SCATTER, reduce_scatter, basic_recursivehalving, nonoverlapping)
GUARDED(REDUCE_SCATTER, reduce_scatter, ring, nonoverlapping)

PLAIN_ENTRY(BCAST, bcast, basic_linear)
PLAIN_ENTRY(BCAST, bcast, chain)
PLAIN_ENTRY(BCAST, bcast, pipeline)
PLAIN_ENTRY(BCAST, bcast, split_bintree)
PLAIN_ENTRY(BCAST, bcast, bintree)
PLAIN_ENTRY(BCAST, bcast, binomial)
PLAIN_ENTRY(BCAST, bcast, knomial)
PLAIN_ENTRY(BCAST, bcast, scatter_allgather)
PLAIN_ENTRY(BCAST, bcast, scatter_allgather_ring)

PLAIN_ENTRY(ALLGATHER, allgather, basic_linear)
PLAIN_ENTRY(ALLGATHER, allgather, bruck)
PLAIN_ENTRY(ALLGATHER, allgather, recursivedoubling)
PLAIN_ENTRY(ALLGATHER, allgather, ring)
PLAIN_ENTRY(ALLGATHER, allgather, neighborexchange)
PLAIN_ENTRY(ALLGATHER, allgather, two_procs)
PLAIN_ENTRY(ALLGATHER, allgather, sparbit)

PLAIN_ENTRY(ALLTOALL, alltoall, basic_linear)
PLAIN_ENTRY(ALLTOALL, alltoall, pairwise)
PLAIN_ENTRY(ALLTOALL, alltoall, bruck)
PLAIN_ENTRY(ALLTOALL, alltoall, linear_sync)
PLAIN_ENTRY(ALLTOALL, alltoall, two_procs)

PLAIN_ENTRY(BARRIER, barrier, basic_linear)
PLAIN_ENTRY(BARRIER, barrier, doublering)
PLAIN_ENTRY(BARRIER, barrier, recursivedoubling)
PLAIN_ENTRY(BARRIER, barrier, bruck)
PLAIN_ENTRY(BARRIER, barrier, two_procs)
PLAIN_ENTRY(BARRIER, barrier, tree)

#pragma GCC visibility pop

#define TRIED "ompi_coll_base_allreduce_intra_ring"

/* Whether a loaded object has the loader find the function that it calls. */
static int asks_for_it(struct dl_phdr_info *object, size_t size, void *unused)
{
	const ElfW(Dyn) *entry = NULL;
	const ElfW(Rela) *called = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	size_t bytes = 0;

	(void)size;
	(void)unused;
	for (int i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const void *)(object->dlpi_addr +
			                       object->dlpi_phdr[i].p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		ElfW(Addr) at = entry->d_un.d_ptr;

		/* musl leaves them as they are in the file. */
		if (at < object->dlpi_addr)
			at += object->dlpi_addr;
		if (entry->d_tag == DT_JMPREL)
			called = (const void *)at;
		if (entry->d_tag == DT_SYMTAB)
			symbols = (const void *)at;
		if (entry->d_tag == DT_STRTAB)
			names = (const void *)at;
		if (entry->d_tag == DT_PLTRELSZ)
			bytes = entry->d_un.d_val;
	}
	if (!called || !symbols || !names)
		return 0;
	for (size_t i = 0; i < bytes / sizeof *called; i++) {
		size_t symbol = sizeof(void *) == 8 ?
			called[i].r_info >> 32 : called[i].r_info >> 8;

		if (!strcmp(names + symbols[symbol].st_name, TRIED))
			return 1;
	}
	return 0;
}

int algorithms_come_through_here(void)
{
	/* Where tuned is a file of its own it is not loaded before MPI_Init, and can
	 * reach them by the loader alone. */
	return !find_function("mca_coll_tuned_component") ||
	       dl_iterate_phdr(asks_for_it, NULL);
}
