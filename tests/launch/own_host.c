/* Where is this host? As the shims for MPI and NCCL answer, and as that for ranks in
 * the environment does; POSE is the name that this machine is to have. */
#include "environment/ranks.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>

int gethostname(char *name, size_t size)
{
	return snprintf(name, size, "%s", getenv("POSE")) >= (int)size;
}

int main(int count, char **argument)
{
	const struct order *order = own_order();
	struct table table = {0};
	int place;

	if (count != 2 || !read_table(argument[1], &table))
		return 1;
	place = own_place(&table, argument[1]);
	if (order->color)
		printf("%d\n", order->place[0]);
	else
		printf("%s\n", order->reason);
	if (place >= 0)
		fprintf(stderr, "%d\n", place);
	free_table(&table);
	return 0;
}
