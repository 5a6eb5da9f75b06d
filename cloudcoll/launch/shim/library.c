/* Find the MPI library. RTLD_NEXT is not enough: where Python loads MPI as part
 * of a module, the library is no one's next. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct library mpi;

struct objects {
	char **name;
	size_t count;
};

static int keep_name(struct dl_phdr_info *object, size_t size, void *context)
{
	struct objects *objects = context;
	char **more;

	(void)size;
	if (!object->dlpi_name || !object->dlpi_name[0])
		return 0;
	more = realloc(objects->name, (objects->count + 1) * sizeof(*more));
	if (!more)
		return 1;
	objects->name = more;
	objects->name[objects->count] = strdup(object->dlpi_name);
	if (!objects->name[objects->count])
		return 1;
	objects->count++;
	return 0;
}

/* Return the function as one loaded object and what that needs define it. */
static void *in_object(const char *object, const char *name)
{
	Dl_info shim, owner;
	void *found, *handle = dlopen(object, RTLD_LAZY | RTLD_NOLOAD);

	if (!handle)
		return NULL;
	found = dlsym(handle, name);
	dlclose(handle); /* it stays: somebody else has loaded it */
	if (found && dladdr(found, &owner) && dladdr((void *)in_object, &shim) &&
	    owner.dli_fbase == shim.dli_fbase)
		return NULL;
	return found;
}

void *find_function(const char *name)
{
	struct objects objects = {NULL, 0};
	void *found = dlsym(RTLD_NEXT, name);

	if (found)
		return found;
	/* Not from within the iteration: it holds the loader's lock. */
	dl_iterate_phdr(keep_name, &objects);
	for (size_t i = 0; i < objects.count; i++) {
		if (!found)
			found = in_object(objects.name[i], name);
		free(objects.name[i]);
	}
	free(objects.name);
	return found;
}

/* A program may have copied them to itself: ask for the one in use first. */
void *find_variable(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	return found ? found : find_function(name);
}

/* The handles that every MPI has, by family. Open MPI's are addresses. */
static void know_handles(void)
{
	if (find_variable("ompi_mpi_comm_world")) {
		mpi.fortran = mpi.Comm_c2f && mpi.Comm_f2c && mpi.Op_f2c &&
		              mpi.Type_f2c;
		mpi.comm_null = (word)find_variable("ompi_mpi_comm_null");
		mpi.comm_world = (word)find_variable("ompi_mpi_comm_world");
		mpi.op_null = (word)find_variable("ompi_mpi_op_null");
		mpi.band = (word)find_variable("ompi_mpi_op_band");
		mpi.errors_return = (word)find_variable("ompi_mpi_errors_return");
		mpi.byte = (word)find_variable("ompi_mpi_byte");
		mpi.type_null = (word)find_variable("ompi_mpi_datatype_null");
		mpi.in_place = 1;
	} else if (strstr(mpi.file, "mpi_abi")) { /* mpi_abi.h of MPI 5.0 */
		mpi.comm_null = 0x100;
		mpi.comm_world = 0x101;
		mpi.op_null = 0x20;
		mpi.band = 0x28;
		mpi.errors_return = 0x143;
		mpi.byte = 0x247;
		mpi.type_null = 0x200;
		mpi.in_place = 1;
	} else { /* mpi.h of MPICH 4 and 5, and of its family */
		mpi.narrow = 1;
		mpi.comm_null = 0x04000000;
		mpi.comm_world = 0x44000000;
		mpi.op_null = 0x18000000;
		mpi.band = 0x58000006;
		mpi.errors_return = 0x54000001;
		mpi.byte = 0x4c00010d;
		mpi.type_null = 0x0c000000;
		mpi.in_place = -1;
	}
}

static void fill(void)
{
	Dl_info owner;
	void *first = find_function("PMPI_Comm_split");

	mpi.file = "";
	if (first && dladdr(first, &owner))
		mpi.file = owner.dli_fname;
#define FIND_AS(symbol, name) \
	mpi.name = (__typeof__(mpi.name))find_function(#symbol);
#define FIND(name, ...) FIND_AS(PMPI_##name, name)
#define NEED(name, ...) \
	FIND(name) \
	if (!mpi.name) \
		mpi.missing = "PMPI_" #name;
#define FIND_EXTENSION(name) /* what some libraries have as MPIX */ \
	FIND(name) \
	if (!mpi.name) \
		FIND_AS(PMPIX_##name, name)
#define FIND_BLOCKING NEED
#define FIND_NONBLOCKING NEED
#define FIND_PERSISTENT FIND_EXTENSION
#define FIND_ROUTINE(Name, name, NAME, counter, form, caller, place, size, large, \
                     ...) \
	FIND_##form(Name) \
	IF_##large(FIND(Name##_c))
	ROUTINES(FIND_ROUTINE)
	REQUIRED(NEED)
	OPTIONAL(FIND)
	FIND_EXTENSION(Comm_revoke)
	know_handles();
}

void load_library(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill);
}
