/* SipHash-2-4: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF",
 * 2012. The secret is the cookie and the halves of the key, in hexadecimal digits. */
#include "seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int is_hexadecimal(const char *text, size_t digits)
{
	return strspn(text, "0123456789abcdef") >= digits;
}

int read_secret(struct seal *seal, const char *secret)
{
	if (!secret || strlen(secret) != 3 * COOKIE || !is_hexadecimal(secret, 3 * COOKIE))
		return 0;
	memcpy(seal->cookie, secret, COOKIE);
	return sscanf(secret + COOKIE, "%16" SCNx64 "%16" SCNx64, &seal->key[0],
	              &seal->key[1]) == 2;
}

static uint64_t turned(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static void rounds(uint64_t v[4], int count)
{
	while (count--) {
		v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
		v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
		v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
		v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
	}
}

uint64_t mac_of(const struct seal *seal, const char *text, size_t length)
{
	uint64_t v[4] = {seal->key[0] ^ 0x736f6d6570736575, seal->key[1] ^ 0x646f72616e646f6d,
	                 seal->key[0] ^ 0x6c7967656e657261, seal->key[1] ^ 0x7465646279746573};

	for (size_t at = 0; at <= length; at += 8) {
		uint64_t word = length - at < 8 ? (uint64_t)length << 56 : 0;

		for (size_t i = 0; i < 8 && at + i < length; i++)
			word |= (uint64_t)(unsigned char)text[at + i] << 8 * i;
		v[3] ^= word;
		rounds(v, 2);
		v[0] ^= word;
	}
	v[2] ^= 255;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int is_sealed(const struct seal *seal, const char *datagram)
{
	const char *text = datagram + SEALED, *places;
	char told[64];
	uint64_t claimed = 0;
	int length;

	if (strlen(datagram) < SEALED || strncmp(datagram, seal->cookie, COOKIE) ||
	    !is_hexadecimal(datagram + COOKIE + 1, 16) ||
	    sscanf(datagram + COOKIE + 1, "%16" SCNx64, &claimed) != 1)
		return 0;
	if (!(places = strstr(text, " all ")))
		return mac_of(seal, text, strlen(text)) == claimed;
	places += 5;
	length = snprintf(told, sizeof told, "%.*s%016" PRIx64, (int)(places - text), text,
	                  mac_of(seal, places, strlen(places)));
	return length < (int)sizeof told && mac_of(seal, told, (size_t)length) == claimed;
}
