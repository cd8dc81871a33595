// SPDX-License-Identifier: GPL-2.0-only
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define POLL_STEP_NS	(10 * 1000 * 1000ULL)
#define SECONDS_MAX	86400

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* Written by signal handlers and threads. */
static bool stop_flag;

static unsigned int json_depth;
static bool json_first;

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

void bind_to_cpu(pid_t thread, const char *name, const char *cpu)
{
	unsigned long number;
	cpu_set_t cpus;
	char *end;

	if (!strcmp(cpu, ANY_CPU))
		return;
	number = strtoul(cpu, &end, 10);
	if (end == cpu || *end || number >= CPU_SETSIZE)
		die(EXIT_USAGE, "--%s must be a CPU or any, not '%s'", name,
		    cpu);
	CPU_ZERO(&cpus);
	CPU_SET(number, &cpus);
	if (sched_setaffinity(thread, sizeof(cpus), &cpus))
		die(EXIT_FAILED, "cannot bind to CPU %lu: %s", number,
		    strerror(errno));
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

static const struct option_spec *find_option(const struct option_spec *specs,
					     const char *name)
{
	const struct option_spec *spec;

	for (spec = specs; spec->name; spec++) {
		if (!strcmp(spec->name, name))
			return spec;
	}
	die(EXIT_USAGE, "unknown option --%s", name);
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

void parse_options(int argc, char **argv, const struct option_spec *specs)
{
	const struct option_spec *spec;
	int i;

	for (i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--", 2))
			die(EXIT_USAGE, "unexpected argument '%s'", argv[i]);
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
		die(EXIT_USAGE, "--%s is required", name);
}

static void json_name(const char *name)
{
	if (!json_first)
		printf(", ");
	json_first = false;
	if (name)
		printf("\"%s\": ", name);
}

void json_open(const char *name)
{
	if (!json_depth++)
		json_first = true;
	json_name(name);
	putchar('{');
	json_first = true;
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
	json_first = false;
	if (--json_depth)
		return;
	putchar('\n');
	fflush(stdout);
}

union address parse_address(const char *text, __u64 port)
{
	union address address = { .v4 = { .sin_family = AF_INET,
					  .sin_port = htons(port) } };

	if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1)
		return address;
	address = (union address){ .v6 = { .sin6_family = AF_INET6,
					   .sin6_port = htons(port) } };
	if (inet_pton(AF_INET6, text, &address.v6.sin6_addr) != 1)
		die(EXIT_USAGE, "'%s' is not an IP address", text);
	return address;
}

int open_udp(const char *local, __u64 port, __u64 rcvbuf)
{
	union address address = parse_address(local, port);
	/* The kernel doubles it, for its overhead per packet. */
	int size = rcvbuf / 2;
	int fd;

	fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die(EXIT_FAILED, "cannot open a UDP socket: %s",
		    strerror(errno));
	if (size &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set the receive buffer: %s",
		    strerror(errno));
	if (bind(fd, &address.any, sizeof(address)))
		die(EXIT_FAILED, "cannot bind to %s: %s", local,
		    strerror(errno));
	return fd;
}

void connect_udp(int fd, const char *remote, __u64 port)
{
	union address address = parse_address(remote, port);

	if (connect(fd, &address.any, sizeof(address)))
		die(EXIT_FAILED, "cannot reach %s: %s", remote,
		    strerror(errno));
}

void set_sndbuf(int fd, __u64 bytes)
{
	int size = bytes;

	if (size && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set the send buffer to %d bytes: %s",
		    size, strerror(errno));
}

void segment_udp(int fd, __u64 bytes)
{
	int size = bytes;

	if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot send segments of %d bytes: %s", size,
		    strerror(errno));
}

__u64 socket_drops(int fd)
{
	__u32 values[SK_MEMINFO_VARS] = {};
	socklen_t size = sizeof(values);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, values, &size))
		die(EXIT_FAILED, "cannot read a socket's drops: %s",
		    strerror(errno));
	return values[SK_MEMINFO_DROPS];
}
