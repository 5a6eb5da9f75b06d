/* Has every process this library? For MPI's shim and NCCL's. */
#ifndef CLOUDCOLL_ROLL_H
#define CLOUDCOLL_ROLL_H

enum outcome { WAITING, ALL_HERE, NOT_ALL, NO_ANSWER };

/* One rank that asks. */
struct caller;

/* Whether anybody counts. By hand nobody does: who set it up says that all are
 * here. */
int is_counted(void);

/* The number of this process among those of its launcher, from what launchers set:
 * return whether any of them does. */
int place_in_world(int *rank, int *ranks);

/* The same, by what torchrun sets before all others: mpirun or srun may start one of
 * it on each host, with several ranks below. */
int place_in_torch(int *rank, int *ranks);

/* Begin to ask for a rank of a world. `world` is the same text in all its
 * processes, and in no other's; `place` is that of the rank's host in the order,
 * -1 if it has none. NULL if it can't be asked. */
struct caller *begin_roll(const char *world, int rank, int ranks, int place);

/* Wait longer for others: they may still have to be started. */
void be_patient(struct caller *caller);

/* Say what is wrong with the algorithms that were chosen, "" for nothing. */
void tell_roll(struct caller *caller, const char *wrong);

/* Go on for at most so long. NULL has no answer. */
enum outcome await_roll(struct caller *caller, int milliseconds);

/* With ALL_HERE: the places of all ranks in turn, as "PLACE*COUNT,...", or "". */
const char *told_places(const struct caller *caller);

void end_roll(struct caller *caller);

#endif
