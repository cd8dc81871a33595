// SPDX-License-Identifier: GPL-2.0-only
#include "json.h"

#include <stdio.h>

#include "common.h"

static unsigned int depth;
static bool first;

static void json_name(const char *name)
{
	if (!first)
		printf(", ");
	first = false;
	if (name)
		printf("\"%s\": ", name);
}

void json_open(const char *name)
{
	if (!depth++)
		first = true;
	json_name(name);
	putchar('{');
	first = true;
}

void json_count(const char *name, __u64 value)
{
	json_name(name);
	printf("%llu", value);
}

void json_text(const char *name, const char *value)
{
	json_name(name);
	printf("\"%s\"", value);
}

void json_true(const char *name)
{
	json_name(name);
	printf("true");
}

void json_seconds(const char *name, __u64 duration_ns)
{
	json_name(name);
	printf("%.6f", (double)duration_ns / NSEC_PER_SEC);
}

void json_close(void)
{
	putchar('}');
	first = false;
	if (--depth)
		return;
	putchar('\n');
	fflush(stdout);
}
