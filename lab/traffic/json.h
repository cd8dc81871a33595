/* SPDX-License-Identifier: GPL-2.0-only */
/* One JSON object on one line of stdout, written field by field. */
#ifndef TRAFFIC_JSON_H
#define TRAFFIC_JSON_H

#include <linux/types.h>
#include <stdbool.h>

/* Opens an object; @name is NULL for the outermost one. */
void json_open(const char *name);
void json_count(const char *name, __u64 value);
/* A line of its own: whoever started us may go on now. */
void json_ready(void);
/* Writes @duration_ns as seconds. */
void json_seconds(const char *name, __u64 duration_ns);
/*
 * Writes what all threads of the program used: CPU time (cpu_seconds, the
 * kernel's part is in it), voluntary_switches, involuntary_switches.
 */
void json_usage(void);
/* Closes an object; after the outermost one the line is written out. */
void json_close(void);

#endif
