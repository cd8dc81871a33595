/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all traffic programs need: a clock, an end, and errors of one sentence.
 * Exit status: 0 success, 1 failure, 2 usage, 4 not supported here.
 */
#ifndef TRAFFIC_COMMON_H
#define TRAFFIC_COMMON_H

#include <linux/types.h>
#include <pthread.h>
#include <stdbool.h>

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_USEC	1000ULL

enum exit_status {
	EXIT_FINE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNSUPPORTED = 4,
};

/* Prints the program's name and an error on stderr, and exits. */
[[gnu::noreturn, gnu::format(printf, 2, 3)]]
void die(enum exit_status status, const char *format, ...);

/* CLOCK_MONOTONIC in ns. */
__u64 now_ns(void);

/* Sleeps until CLOCK_MONOTONIC shows @when; a signal may end it early. */
void sleep_until_ns(__u64 when);

/* Keeps the CPU busy for @duration ns. */
void work_for_ns(__u64 duration);

/* Sleeps; 0: not at all. */
void rest_for_ns(__u64 duration);

/* SIGINT and SIGTERM end the run; a blocked system call returns EINTR. */
void catch_stop_signals(void);

/* True after a stop signal or a call of stop_now(). */
bool stop_asked(void);
void stop_now(void);

/*
 * Starts a thread, or dies. Waits until CLOCK_MONOTONIC shows @deadline (0:
 * no deadline) or stop_asked(). Joins @count threads, interrupting those that
 * are blocked in a system call.
 */
void start_thread(pthread_t *thread, void *(*run)(void *), void *arg);
void wait_for_end(__u64 deadline);
void join_threads(pthread_t *threads, unsigned int count);

/* Moves values other than 0 to the front, sorted; returns how many. */
__u64 sort_known(__u64 *values, __u64 count);

/* The smallest value that @per_thousand of the sorted values do not exceed. */
__u64 percentile(const __u64 *sorted, __u64 count, __u64 per_thousand);

/* Moves the calling thread into the network namespace at @path. */
void enter_netns(const char *path);

#endif
