/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes one JSON object as one line of stdout, field by field. */
#ifndef TRAFFIC_JSON_H
#define TRAFFIC_JSON_H

#include <linux/types.h>
#include <stdbool.h>

/* Opens an object; @name is NULL for the outermost one. */
void json_open(const char *name);
void json_count(const char *name, __u64 value);
/* Writes a separate line that tells the parent process to continue. */
void json_ready(void);
/* Writes @duration_ns as seconds. */
void json_seconds(const char *name, __u64 duration_ns);
/*
 * Writes the usage of all threads of the program: CPU time in user space and
 * kernel (cpu_seconds), voluntary_switches, involuntary_switches.
 */
void json_usage(void);
/* Closes an object; after the outermost one, flushes the line. */
void json_close(void);

#endif
