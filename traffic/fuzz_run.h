/* SPDX-License-Identifier: GPL-2.0-only */
/* A program of fuzz_exec, and the process that runs it. */
#ifndef TRAFFIC_FUZZ_RUN_H
#define TRAFFIC_FUZZ_RUN_H

#include "common.h"
#include "fuzz_wire.h"

#define MSEC	(1000 * NSEC_PER_USEC)

struct call {
	const struct fuzz_call *call;
	const struct fuzz_copy *copies;
	const struct fuzz_patch *patches;
};

/* What the process that runs a program leaves to the one that waits. */
struct outcome {
	__u32 held;
	__s64 results[FUZZ_CALLS];
};

/**
 * struct program - what there is to run
 * @head:   of its frame
 * @calls:  into its frame
 * @shared: with the process that waits
 * @spaces: files of two network namespaces
 */
struct program {
	struct fuzz_head head;
	struct call calls[FUZZ_CALLS];
	struct outcome *shared;
	int spaces[2];
};

/* Runs it, by the process that was made for it, which ends with it. */
[[gnu::noreturn]]
void run_program(struct program *running);

#endif
