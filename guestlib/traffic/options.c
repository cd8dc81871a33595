// SPDX-License-Identifier: GPL-2.0-only
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define SECONDS_MAX	86400

static void print_help(const char *summary, const struct option_spec *specs)
{
	const struct option_spec *spec;

	printf("%s: %s\n\n", program_invocation_short_name, summary);
	for (spec = specs; spec->name; spec++) {
		printf("  --%-16s %s", spec->name, spec->help);
		if (spec->number)
			printf(" (%llu)", *spec->number);
		else if (spec->duration_ns)
			printf(" (%g)",
			       (double)*spec->duration_ns / NSEC_PER_SEC);
		else if (spec->text && *spec->text)
			printf(" (%s)", *spec->text);
		putchar('\n');
	}
	puts("\nThe result is a line of JSON on stdout. Exit status:\n"
	     "0 success, 1 failure, 2 usage, 4 not supported here.");
	exit(EXIT_FINE);
}

static const struct option_spec *find_option(const struct option_spec *specs,
					     const char *name)
{
	const struct option_spec *spec;

	for (spec = specs; spec->name; spec++) {
		if (!strcmp(spec->name, name))
			return spec;
	}
	die(EXIT_USAGE, "unknown option --%s; --help lists the options", name);
}

static void parse_number(const struct option_spec *spec, const char *value)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(value, &end, 0);
	if (errno || end == value || *end || *value == '-' ||
	    number < spec->min || number > spec->max)
		die(EXIT_USAGE,
		    "--%s must be a number from %llu to %llu, not '%s'",
		    spec->name, spec->min, spec->max, value);
	*spec->number = number;
}

static void parse_duration(const struct option_spec *spec, const char *value)
{
	double seconds;
	char *end;

	seconds = strtod(value, &end);
	if (end == value || *end || !(seconds > 0) || seconds > SECONDS_MAX)
		die(EXIT_USAGE,
		    "--%s must be more than 0 and at most %d seconds, not '%s'",
		    spec->name, SECONDS_MAX, value);
	*spec->duration_ns = seconds * NSEC_PER_SEC;
}

void parse_options(int argc, char **argv, const char *summary,
		   const struct option_spec *specs)
{
	const struct option_spec *spec;
	int i;

	for (i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--", 2))
			die(EXIT_USAGE,
			    "unexpected argument '%s'; --help lists the options",
			    argv[i]);
		if (!strcmp(argv[i], "--help"))
			print_help(summary, specs);
		spec = find_option(specs, argv[i] + 2);
		if (spec->flag) {
			*spec->flag = true;
			continue;
		}
		if (++i == argc)
			die(EXIT_USAGE, "--%s needs a value", spec->name);
		if (spec->text)
			*spec->text = argv[i];
		else if (spec->duration_ns)
			parse_duration(spec, argv[i]);
		else
			parse_number(spec, argv[i]);
	}
}

void require_text(const char *name, const char *text)
{
	if (!text)
		die(EXIT_USAGE, "--%s is required; --help lists the options",
		    name);
}
