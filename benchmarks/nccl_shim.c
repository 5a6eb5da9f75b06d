/* Time calls of ncclAllReduce that the library refuses at once, so that what is
 * left is the way there: nccl_shim COMMUNICATORS CALLS prints ns per call. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 16
#define NO_OPERATION 99

int ncclCommInitAll(void **comms, int count, const int *devices);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                  void *comm, void *stream);

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
	if (wanted < 1 || wanted > MOST || ncclCommInitAll(comms, wanted, NULL))
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
