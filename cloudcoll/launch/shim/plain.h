/* What is said to people: whatever could move a cursor or begin a line is shown. */
#ifndef CLOUDCOLL_PLAIN_H
#define CLOUDCOLL_PLAIN_H

#include <stdio.h>

#define PLAIN 4 /* bytes that one of a text may take */

/* Write a text with all but printable ASCII as \x1b; which of the rest is harmless is
   for a locale to say, and a library in others' programs has none. */
static inline void plain(char *shown, const char *text)
{
	for (; *text; text++)
		if (*text >= ' ' && *text < 0x7f)
			*shown++ = *text;
		else
			shown += sprintf(shown, "\\x%02x", (unsigned char)*text);
	*shown = 0;
}

#endif
