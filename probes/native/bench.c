/* timing.py without Python, NumPy and mpi4py: the same lines in and out. */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_SIZE 256

struct request spec;
int rank, ranks;

void die(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("cloudcoll bench: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		die("out of memory for %zu elements", count);
	return memory;
}

int same_text(struct text one, struct text other)
{
	return one.length == other.length &&
	       !memcmp(one.start, other.start, one.length);
}

void print_quoted(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else if ((unsigned char)*text < ' ')
			printf("\\u%04x", *text);
		else
			putchar(*text);
	putchar('"');
}

/* Return rank 0's value. */
int share(int value)
{
	MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return value;
}

/* Return rank 0's line. */
/* The request of rank 0's stdin, in pieces if it is long; see start.py. */
static char *read_pieces(void)
{
	char *text = allocate(1, 1), *line = NULL;
	size_t room = 0, length = 0;
	ssize_t got;
	int pieces = 0, piece;

	while ((got = getline(&line, &room, stdin)) > 0) {
		piece = *line == '+' || *line == '.';
		got -= piece + (line[got - 1] == '\n');
		text = realloc(text, length + (size_t)got + 1);
		if (!text)
			die("out of memory");
		memcpy(text + length, line + piece, (size_t)got);
		text[length += (size_t)got] = 0;
		if (*line != '+')
			break;
		printf("{\"more\": %d}\n", ++pieces);
		fflush(stdout);
	}
	free(line);
	return text;
}

static char *share_request(void)
{
	char *text = rank ? NULL : read_pieces();
	int length = share(rank ? 0 : (int)strlen(text));

	if (!length)
		die("nothing to do on stdin");
	if (rank)
		text = allocate((size_t)length + 1, 1);
	MPI_Bcast(text, length, MPI_CHAR, 0, MPI_COMM_WORLD);
	return text;
}

static void greet(void)
{
	char library[MPI_MAX_LIBRARY_VERSION_STRING], name[NAME_SIZE] = "";
	char *names = allocate(ranks, NAME_SIZE);
	int length, i;

	MPI_Get_library_version(library, &length);
	library[strcspn(library, "\n,")] = 0;
	gethostname(name, sizeof name - 1);
	MPI_Gather(name, NAME_SIZE, MPI_CHAR, names, NAME_SIZE, MPI_CHAR, 0,
		   MPI_COMM_WORLD);
	if (rank == 0) {
		printf("{\"library\": ");
		print_quoted(library);
		for (i = 0; i < ranks; i++) {
			printf(i ? ", " : ", \"hosts\": [");
			print_quoted(names + (size_t)i * NAME_SIZE);
		}
		puts("]}");
		fflush(stdout);
	}
	free(names);
}

int main(int argc, char **argv)
{
	double begin;

	if (argc > 1 && !strcmp(argv[1], "--settings"))
		return print_settings(argc - 2, argv + 2);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	read_request(&spec, share_request());
	greet();
	begin = MPI_Wtime();
	start_orders();
	if (spec.count)
		take_turns(begin + spec.seconds);
	if (rank == 0)
		puts("{\"done\": true}");
	MPI_Finalize();
	return 0;
}
