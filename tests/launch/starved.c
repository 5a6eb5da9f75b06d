/* Preloaded by test_shim_jobs.py: what the library asks for itself, it does not get;
 * the MPI library and the program get what they want. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

static int is_library(void *caller)
{
	Dl_info owner;

	return dladdr(caller, &owner) && strstr(owner.dli_fname, "/shim/preload");
}

void *malloc(size_t size)
{
	return is_library(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return is_library(__builtin_return_address(0)) ? NULL :
	       __libc_calloc(count, size);
}

char *strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	int starved = is_library(__builtin_return_address(0));
	char *copy = starved ? NULL : __libc_malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}
