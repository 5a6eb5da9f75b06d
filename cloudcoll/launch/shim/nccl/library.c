/* Find the functions of NCCL. They come next after the shim where the library
 * is loaded for everybody; where Python loads it as part of a module, only
 * whoever called the shim knows it. */
#define _GNU_SOURCE
#include "nccl.h"
#include "../order.h"

#include <dlfcn.h>
#include <stdatomic.h>

struct library nccl;

/* Return the function as the object that `caller` is in would find it. */
static void *known_to(const void *caller, const char *name)
{
	Dl_info object;
	void *found = NULL, *handle = NULL;

	if (dladdr(caller, &object))
		handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (handle) {
		found = dlsym(handle, name);
		dlclose(handle); /* it stays: it is running */
	}
	return found;
}

static void *find(const void *caller, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	return found ? found : known_to(caller, name);
}

void load_nccl(const void *caller)
{
	static atomic_int loaded;

	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return;
#define FIND(name, parameters) nccl.name = find(caller, "nccl" #name);
	FUNCTIONS(FIND)
#undef FIND
	atomic_store_explicit(&loaded, nccl.AllReduce != NULL, memory_order_release);
}

result_t missing(const char *name)
{
	say("this NCCL has no %s", name);
	return INVALID_USAGE;
}
