// SPDX-License-Identifier: GPL-2.0-only
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_STEP_NS	(10 * 1000 * 1000ULL)

/* Written by signal handlers and threads. */
static bool stop_flag;

void die(enum exit_status status, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(status);
}

__u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

void sleep_until_ns(__u64 when)
{
	struct timespec until = {
		.tv_sec = when / NSEC_PER_SEC,
		.tv_nsec = when % NSEC_PER_SEC,
	};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

void work_for_ns(__u64 duration)
{
	__u64 until;

	if (!duration)
		return;
	until = now_ns() + duration;
	while (now_ns() < until)
		;
}

void rest_for_ns(__u64 duration)
{
	if (duration)
		sleep_until_ns(now_ns() + duration);
}

static void on_stop(int signal_number)
{
	(void)signal_number;
	stop_now();
}

static void on_wake(int signal_number)
{
	(void)signal_number;
}

void catch_stop_signals(void)
{
	struct sigaction action = { .sa_handler = on_stop };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = on_wake;
	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool stop_asked(void)
{
	return __atomic_load_n(&stop_flag, __ATOMIC_RELAXED);
}

void stop_now(void)
{
	__atomic_store_n(&stop_flag, true, __ATOMIC_RELAXED);
}

void start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	int error = pthread_create(thread, NULL, run, arg);

	if (error)
		die(EXIT_FAILED, "cannot start a thread: %s", strerror(error));
}

void wait_for_end(__u64 deadline)
{
	__u64 next;

	while (!stop_asked()) {
		next = now_ns() + POLL_STEP_NS;
		if (deadline && next >= deadline) {
			sleep_until_ns(deadline);
			if (now_ns() >= deadline)
				stop_now();
			continue;
		}
		sleep_until_ns(next);
	}
}

/*
 * A signal just before the system call would be lost, so it is sent until the
 * thread has ended.
 */
void join_threads(pthread_t *threads, unsigned int count)
{
	struct timespec until;
	unsigned int i;

	stop_now();
	for (i = 0; i < count; i++) {
		do {
			pthread_kill(threads[i], SIGUSR1);
			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_nsec += POLL_STEP_NS;
			if (until.tv_nsec >= (long)NSEC_PER_SEC) {
				until.tv_nsec -= NSEC_PER_SEC;
				until.tv_sec++;
			}
		} while (pthread_timedjoin_np(threads[i], NULL, &until));
	}
}

void enter_netns(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(EXIT_FAILED, "cannot enter the network namespace %s: %s",
		    path, strerror(errno));
	close(fd);
}

static int compare(const void *left, const void *right)
{
	const __u64 a = *(const __u64 *)left;
	const __u64 b = *(const __u64 *)right;

	return (a > b) - (a < b);
}

__u64 sort_known(__u64 *values, __u64 count)
{
	__u64 got = 0;
	__u64 i;

	for (i = 0; i < count; i++) {
		if (values[i])
			values[got++] = values[i];
	}
	qsort(values, got, sizeof(*values), compare);
	return got;
}

__u64 percentile(const __u64 *sorted, __u64 count, __u64 per_thousand)
{
	__u64 rank = (count * per_thousand + 999) / 1000;

	return count ? sorted[rank ? rank - 1 : 0] : 0;
}
