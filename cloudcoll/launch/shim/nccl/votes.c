/* Whether a communicator gets a shadow: something that all its ranks do, or none.
 *
 * First the roll: whether all have this library, and where they are. Then colors
 * decide together with the split: whoever has no order, or another one, ends up
 * elsewhere, and everybody sees that some are missing. */
#include "nccl.h"
#include "../order.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Where some lack the library, nobody waits for them a second time: whoever counts
 * refuses all other communicators of the job as well. */
static atomic_int refused;

/* One line for the job: from the first rank of the world, the first time. */
static void explain(const struct shadow *shadow, const char *reason)
{
	static const char *const names[] = {
		"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
	};
	static atomic_int said;
	const char *world = NULL;

	for (size_t i = 0; !world && i < sizeof names / sizeof *names; i++)
		world = getenv(names[i]);
	if (debugging() || (!shadow->rank && !(world && atoi(world)) &&
	                    !atomic_exchange(&said, 1)))
		say("%s: running in the order given", reason);
}

/* Whether there is anything that all of the ranks could do. */
static int is_possible(const struct shadow *shadow)
{
	if (shadow->size < 2 || own_order()->unwanted || atomic_load(&refused))
		return 0;
	if (!nccl.CommSplit)
		explain(shadow, "this NCCL has no ncclCommSplit (2.18 has)");
	return nccl.CommSplit != NULL;
}

result_t begin_asking(struct shadow *shadow)
{
	const struct order *own = own_order();
	result_t code = nccl.CommCount(shadow->comm, &shadow->size);
	char world[32];

	if (!code)
		code = nccl.CommUserRank(shadow->comm, &shadow->rank);
	shadow->state = ASKING;
	if (code || !is_counted() || !is_possible(shadow))
		return code;
	snprintf(world, sizeof world, "nccl.%016llx", (unsigned long long)shadow->name);
	shadow->caller = begin_roll(world, shadow->rank, shadow->size,
	                            own->color ? own->place[0] : -1);
	return shadow->caller ? SUCCESS : SYSTEM_ERROR;
}

int answered(struct shadow *shadow, int milliseconds)
{
	return !shadow->caller || await_roll(shadow->caller, milliseconds) != WAITING;
}

/* Whether any rank would have another place. */
static int moves(const struct shadow *shadow)
{
	int at = 0;

	while (at < shadow->size && shadow->place[at] == at)
		at++;
	return at < shadow->size;
}

/* Whether the roll leaves something to split for. */
static int is_worth_it(struct shadow *shadow)
{
	enum outcome outcome;

	if (!shadow->caller)
		return is_possible(shadow);
	outcome = await_roll(shadow->caller, 0);
	if (outcome == ALL_HERE)
		shadow->place = ranks_by_place(told_places(shadow->caller), shadow->size);
	end_roll(shadow->caller);
	shadow->caller = NULL;
	if (outcome == ALL_HERE)
		return !shadow->place || moves(shadow);
	atomic_store(&refused, 1);
	if (outcome == NO_ANSWER)
		explain(shadow, "cloudcoll run does not answer");
	return 0;
}

result_t begin_split(struct shadow *shadow)
{
	const struct order *own = own_order();

	shadow->state = SPLIT;
	if (!is_worth_it(shadow))
		return SUCCESS;
	shadow->asked = 1;
	/* Without a configuration of its own it has that of the application's. */
	return nccl.CommSplit(shadow->comm, own->color ? own->color : NO_COLOR,
	                      own->place[0], &shadow->twin, NULL);
}

/* Not all have the same order. */
static void explain_split(const struct shadow *shadow, int alike)
{
	char reason[96];

	snprintf(reason, sizeof reason, "only %d of %d ranks have the order that rank %d "
	         "has", alike, shadow->size, shadow->rank);
	explain(shadow, own_order()->color ? reason : own_order()->reason);
}

void settle(struct shadow *shadow)
{
	int alike = 0, place = 0;

	shadow->parent = NULL;
	shadow->state = SETTLED;
	if (!shadow->asked)
		return;
	if (shadow->twin && !nccl.CommCount(shadow->twin, &alike) &&
	    alike == shadow->size) {
		if (debugging() && !nccl.CommUserRank(shadow->twin, &place))
			say("rank %d of %d is rank %d of the shadow", shadow->rank,
			    shadow->size, place);
		return;
	}
	explain_split(shadow, alike);
	if (shadow->twin)
		nccl.CommDestroy(shadow->twin);
	shadow->twin = NULL;
}
