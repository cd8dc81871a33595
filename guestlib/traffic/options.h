/* SPDX-License-Identifier: GPL-2.0-only */
/* Options of the form --name VALUE, described by a table. */
#ifndef TRAFFIC_OPTIONS_H
#define TRAFFIC_OPTIONS_H

#include <linux/types.h>
#include <stdbool.h>

/**
 * struct option_spec - one option; exactly one of the targets is set
 * @name:   without the dashes; the table ends with a NULL name
 * @number: target of a number from @min to @max
 * @duration_ns: target of a time, given in seconds, with fractions
 * @text:   target of a text
 * @flag:   set to true by the option, which takes no value
 * @min:    minimum
 * @max:    maximum
 * @help:   one line, with the unit
 */
struct option_spec {
	const char *name;
	__u64 *number;
	__u64 *duration_ns;
	const char **text;
	bool *flag;
	__u64 min;
	__u64 max;
	const char *help;
};

/* Sets the targets. --help prints the help and exits; dies on an error. */
void parse_options(int argc, char **argv, const char *summary,
		   const struct option_spec *specs);

/* Dies if the option @name was not given. */
void require_text(const char *name, const char *text);

#endif
