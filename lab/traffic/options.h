/* SPDX-License-Identifier: GPL-2.0-only */
/* Command lines of the form --name VALUE, described by a table. */
#ifndef TRAFFIC_OPTIONS_H
#define TRAFFIC_OPTIONS_H

#include <linux/types.h>
#include <stdbool.h>

/**
 * struct option_spec - one option; exactly one of the targets is set
 * @name:   without the dashes; the table ends with a NULL name
 * @number: where a number goes; it must lie in @min..@max
 * @duration_ns: where a time goes, given in seconds, fractions allowed
 * @text:   where a text goes
 * @flag:   set to true when the option is given; takes no value
 * @min:    smallest number allowed
 * @max:    largest number allowed
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

/* Fills the targets; prints the help and exits on --help; dies on a mistake. */
void parse_options(int argc, char **argv, const char *summary,
		   const struct option_spec *specs);

/* Dies unless the option @name was given. */
void require_text(const char *name, const char *text);

#endif
