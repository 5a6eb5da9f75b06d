/* A program, or a library, that is linked with NCCL as torch is: two ranks in
 * one process, on communicators that come and go. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct unique_id { char bytes[128]; };

int ncclGetUniqueId(struct unique_id *id);
int ncclCommInitRank(void **comm, int count, struct unique_id id, int rank);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                  void *comm, void *stream);
void *standinStream(void);
void standinSynchronize(void *stream);

static int make_both(void **comms)
{
	struct unique_id id;
	int code = ncclGetUniqueId(&id) + ncclGroupStart();

	for (int i = 0; i < 2; i++)
		code += ncclCommInitRank(comms + i, 2, id, i);
	return code + ncclGroupEnd();
}

/* Return how many sums were wrong. */
int allreduces(int turns)
{
	void *comms[2], *streams[2] = {standinStream(), standinStream()};
	int wrong = 0;

	for (int turn = 0; turn < turns; turn++) {
		double in[2] = {turn, 1}, out[2] = {0, 0};

		wrong += make_both(comms) + ncclGroupStart();
		for (int i = 0; i < 2; i++)
			wrong += ncclAllReduce(in + i, out + i, 1, 8, 0, comms[i], streams[i]);
		wrong += ncclGroupEnd();
		for (int i = 0; i < 2; i++) {
			standinSynchronize(streams[i]);
			wrong += out[i] != turn + 1;
		}
		for (int i = 0; i < 2; i++)
			wrong += ncclCommDestroy(comms[i]);
	}
	return wrong;
}

int main(int count, char **arguments)
{
	int wrong = allreduces(count > 1 ? atoi(arguments[1]) : 1);

	printf("%d wrong\n", wrong);
	return wrong != 0;
}
