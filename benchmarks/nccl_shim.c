/* Time calls of ncclAllReduce that the library refuses at once, so that what is
 * left is the way there: nccl_shim COMMUNICATORS CALLS prints ns per call. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 16
#define NO_OPERATION 99

struct unique_id { char bytes[128]; };

int ncclGetUniqueId(struct unique_id *id);
int ncclCommInitRank(void **comm, int count, struct unique_id id, int rank);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                  void *comm, void *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);

static int make_all(void **comms, int count)
{
	struct unique_id id;
	int code = ncclGetUniqueId(&id) + ncclGroupStart();

	for (int i = 0; i < count; i++)
		code += ncclCommInitRank(comms + i, count, id, i);
	return code + ncclGroupEnd();
}

int main(int count, char **arguments)
{
	void *comms[MOST];
	struct timespec begin, end;
	long calls, refused = 0;
	int wanted;

	if (count != 3)
		return 2;
	wanted = atoi(arguments[1]);
	calls = atol(arguments[2]);
	if (wanted < 1 || wanted > MOST || make_all(comms, wanted))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (long i = 0; i < calls; i++)
		refused += ncclAllReduce(NULL, NULL, 0, 7, NO_OPERATION,
		                         comms[i % wanted], NULL) != 0;
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%g\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 +
	                (double)(end.tv_nsec - begin.tv_nsec)) / (double)calls);
	return refused != calls;
}
