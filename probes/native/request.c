/* Read the one line of JSON that says what to measure. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

const char *const operation_names[OPERATIONS] = {
	"allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter",
};

static const char *at; /* what is left of the line */

static char next(void)
{
	while (*at == ' ' || *at == '\n')
		at++;
	return *at;
}

static void expect(char wanted)
{
	if (next() != wanted)
		die("the request is no JSON of ours at %.20s", at);
	at++;
}

/* Whether another element follows in what ends with this bracket. */
static int more(char end)
{
	if (next() != ',') {
		expect(end);
		return 0;
	}
	at++;
	return 1;
}

static struct text read_text(void)
{
	struct text text;

	expect('"');
	text.start = at;
	while (*at && *at != '"')
		at += 1 + (*at == '\\' && at[1]);
	text.length = (int)(at - text.start);
	expect('"');
	return text;
}

static double read_number(void)
{
	char *end;
	double value = strtod(at, &end);

	if (end == at)
		die("the request has no number at %.20s", at);
	at = end;
	return value;
}

static struct list read_list(void)
{
	struct list list = {NULL, 0};

	expect('[');
	do {
		list.values = realloc(list.values, (list.count + 1) * sizeof(double));
		if (!list.values)
			die("out of memory");
		list.values[list.count++] = read_number();
	} while (more(']'));
	return list;
}

static void read_orders(struct request *request)
{
	size_t size = sizeof *request->orders;
	struct order *order;

	expect('{');
	do {
		request->orders = realloc(request->orders, (request->count + 1) * size);
		if (!request->orders)
			die("out of memory");
		order = memset(&request->orders[request->count++], 0, size);
		order->name = read_text();
		expect(':');
		order->keys = read_list();
	} while (more('}'));
}

static int is(struct text text, const char *word)
{
	return same_text(text, (struct text){word, (int)strlen(word)});
}

static struct order *order_named(struct request *request, struct text name)
{
	int i;

	for (i = 0; i < request->count; i++)
		if (same_text(request->orders[i].name, name))
			return &request->orders[i];
	die("settings of no order: %.*s", name.length, name.start);
}

/* Behind the orders: what the library is told for some of them. */
static void read_settings(struct request *request)
{
	struct order *order;
	struct setting *setting;
	size_t size = sizeof *setting;

	expect('{');
	do {
		order = order_named(request, read_text());
		expect(':');
		expect('{');
		do {
			order->settings = realloc(order->settings,
						  (order->setting_count + 1) * size);
			if (!order->settings)
				die("out of memory");
			setting = &order->settings[order->setting_count++];
			setting->name = read_text();
			expect(':');
			setting->value = (int)read_number();
		} while (more('}'));
	} while (more('}'));
}

static enum operation read_operation(void)
{
	struct text name = read_text();
	int op;

	for (op = 0; op < OPERATIONS; op++)
		if (is(name, operation_names[op]))
			return (enum operation)op;
	die("no operation %.*s", name.length, name.start);
}

static void read_field(struct request *request)
{
	const struct {
		const char *name;
		double *value;
	} numbers[] = {
		{"repeats", &request->repeats},
		{"least", &request->least},
		{"seconds", &request->seconds},
		{"min_seconds", &request->min_seconds},
		{"narrow", &request->narrow},
	};
	struct text key = read_text();
	size_t i;

	expect(':');
	if (is(key, "op"))
		request->op = read_operation();
	else if (is(key, "orders"))
		read_orders(request);
	else if (is(key, "settings"))
		read_settings(request);
	else if (is(key, "sizes"))
		request->sizes = read_list();
	else if (is(key, "reference"))
		request->reference = read_text();
	else {
		for (i = 0; i < sizeof numbers / sizeof *numbers; i++)
			if (is(key, numbers[i].name)) {
				*numbers[i].value = read_number();
				return;
			}
		die("no field %.*s", key.length, key.start);
	}
}

/* `line` has to stay: texts point into it. */
void read_request(struct request *request, const char *line)
{
	memset(request, 0, sizeof *request);
	at = line;
	expect('{');
	do
		read_field(request);
	while (more('}'));
	if (!request->count || !request->sizes.count)
		die("the request has no orders or no sizes");
}
