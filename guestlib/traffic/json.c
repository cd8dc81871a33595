// SPDX-License-Identifier: GPL-2.0-only
#include "json.h"

#include <stdio.h>
#include <sys/resource.h>

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

void json_ready(void)
{
	json_open(NULL);
	json_name("ready");
	printf("true");
	json_close();
}

void json_seconds(const char *name, __u64 duration_ns)
{
	json_name(name);
	printf("%.6f", (double)duration_ns / NSEC_PER_SEC);
}

static __u64 ns_of(const struct timeval *time)
{
	return time->tv_sec * NSEC_PER_SEC + time->tv_usec * NSEC_PER_USEC;
}

void json_usage(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die(EXIT_FAILED, "cannot read the program's CPU time");
	json_seconds("cpu_seconds",
		     ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime));
	json_count("voluntary_switches", usage.ru_nvcsw);
	json_count("involuntary_switches", usage.ru_nivcsw);
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
