/* Where a call of Fortran's entry points runs. */
#include "fortran.h"

struct place found(word comm)
{
	return (struct place){mpi.Comm_f2c(AT(comm)), NULL, AT(comm), 0};
}

void move(struct place *place, enum creation creation, int order)
{
	place->shadow = shadow_of(place->comm, creation, order);
	if (place->shadow)
		place->on = place->shadow->fortran;
}

void stay(struct place *place, word comm)
{
	place->shadow = NULL;
	place->on = AT(comm);
}

struct place reduced(word comm, word count, word type, word op,
                     enum creation creation, enum collective collective)
{
	struct place place = found(comm);

	MOVE(creation, collective, payload_f(AT(count), type));
	if (place.shadow && !may_reorder(mpi.Type_f2c(AT(type)), mpi.Op_f2c(AT(op))))
		stay(&place, comm);
	return place;
}

void translate(struct place *place, word comm, word root)
{
	word rank = AT(root);

	if (rooted(place->shadow, place->comm, &rank) == place->comm)
		stay(place, comm);
	place->root = (fint)rank;
}

void finish(struct place place, fint code, word ierr)
{
	if (place.shadow)
		told(place.comm, place.shadow->comm, code);
	if (ierr)
		AT(ierr) = code;
}
