/* What makes a datagram one of this job's: launch/seal.py has the whole. */
#ifndef CLOUDCOLL_SEAL_H
#define CLOUDCOLL_SEAL_H

#include <stddef.h>
#include <stdint.h>

#define COOKIE 16           /* digits, in clear */
#define SEALED (COOKIE + 18) /* "COOKIE MAC ", in front of the text */

struct seal {
	char cookie[COOKIE + 1];
	uint64_t key[2];
};

/* Read a secret; return whether it is one. */
int read_secret(struct seal *seal, const char *secret);

/* SipHash-2-4 of a text. */
uint64_t mac_of(const struct seal *seal, const char *text, size_t length);

/* Whether "COOKIE MAC TEXT" is this job's. Of a text "SELF all PLACES" the MAC is
 * that of "SELF all " and of the MAC of PLACES: the same for all, and long. */
int is_sealed(const struct seal *seal, const char *datagram);

#endif
