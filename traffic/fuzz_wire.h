/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What fuzz_exec reads and writes; nodrop/guest/fuzz/wire.py is the other side.
 *
 * A program is a struct fuzz_head and its calls. A call is a struct fuzz_call,
 * its copies, each followed by its bytes, filled up to a multiple of eight,
 * and its patches. The answer is a struct fuzz_answer and a result for each
 * call.
 */
#ifndef TRAFFIC_FUZZ_WIRE_H
#define TRAFFIC_FUZZ_WIRE_H

#include <linux/types.h>

/* The memory of a program, zeroed when it begins; behind it there is none. */
#define FUZZ_MEMORY	0x20000000UL
#define FUZZ_MEMORY_LEN	0x200000UL

#define FUZZ_CALLS	64
#define FUZZ_BYTES	0x100000U
/*
 * The first slots: files of two network namespaces, the one that a program
 * begins in and another one.
 */
#define FUZZ_HERE	0
#define FUZZ_AWAY	1
#define FUZZ_SLOTS	(FUZZ_CALLS + 2)

/**
 * struct fuzz_head - a program
 * @bytes:     of its calls, with all that belongs to them
 * @calls:     how many
 * @limit_ms:  how long it may take, its end included
 * @settle_ms: at the end read its queues until its senders have no packet on
 *             the way, but no longer than this; 0: do not
 */
struct fuzz_head {
	__u32 bytes;
	__u32 calls;
	__u32 limit_ms;
	__u32 settle_ms;
};

enum fuzz_flags {
	FUZZ_ASYNC = 1,		/* the next call does not wait for this one */
	FUZZ_QUEUE = 2,		/* its result can be read until it is empty */
	FUZZ_SENDER = 4,	/* its result is a socket that sends */
};

/**
 * struct fuzz_call - a system call
 * @nr:      its number
 * @flags:   enum fuzz_flags
 * @from:    bit N: argument N is the number of a slot, whose value is meant
 * @slot:    where its result goes; -1: nowhere
 * @times:   how often, at least once, until it fails
 * @copies:  how many copies follow
 * @patches: how many patches follow
 * @load:    when it did not fail, its result is the 32-bit number at this
 *           address; 0: it is what the call returned
 * @args:    its arguments
 */
struct fuzz_call {
	__u32 nr;
	__u16 flags;
	__u16 from;
	__s16 slot;
	__u16 times;
	__u16 copies;
	__u16 patches;
	__u64 load;
	__u64 args[6];
};

/**
 * struct fuzz_copy - what is written to memory before a call
 * @at:    the address
 * @bytes: how many follow
 */
struct fuzz_copy {
	__u64 at;
	__u64 bytes;
};

/**
 * struct fuzz_patch - a slot's value that is written there, after the copies
 * @at:   the address of the 32-bit number
 * @slot: whose value
 */
struct fuzz_patch {
	__u64 at;
	__u64 slot;
};

enum fuzz_end {
	FUZZ_ENDED,	/* by itself */
	FUZZ_KILLED,	/* its time was over */
	FUZZ_STUCK,	/* and it cannot be killed */
};

/**
 * struct fuzz_answer - what became of a program
 * @end:     enum fuzz_end
 * @calls:   how many results follow
 * @held:    bytes that its senders still had on the way when it had settled
 * @removed: devices that it had left behind
 */
struct fuzz_answer {
	__u32 end;
	__u32 calls;
	__u32 held;
	__u32 removed;
};

/* Results that no call returns, beside numbers and negative errnos. */
#define FUZZ_NOT_MADE	(-0x10000L)
#define FUZZ_UNENDED	(-0x10001L)

#endif
