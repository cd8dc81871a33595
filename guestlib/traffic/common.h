/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all traffic programs share: a clock, an end, errors of one sentence,
 * options, a result in JSON, UDP sockets, and the constants of TUN and TAP.
 * Exit status: 0 success, 1 failure, 2 usage, 4 not supported here.
 */
#ifndef TRAFFIC_COMMON_H
#define TRAFFIC_COMMON_H

#include <linux/if_tun.h>
#include <linux/types.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

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

/* Binds a thread (0: the caller) to the CPU that the option @name gives. */
#define ANY_CPU		"any"
void bind_to_cpu(pid_t thread, const char *name, const char *cpu);

/* Moves values other than 0 to the front, sorted; returns how many. */
__u64 sort_known(__u64 *values, __u64 count);

/* The smallest value that @per_thousand of the sorted values do not exceed. */
__u64 percentile(const __u64 *sorted, __u64 count, __u64 per_thousand);

/* Moves the calling thread into the network namespace at @path. */
void enter_netns(const char *path);

/* Options of the form --name VALUE, described by a table. */

/**
 * struct option_spec - one option; exactly one of the targets is set
 * @name:   without the dashes; the table ends with a NULL name
 * @number: target of a number from @min to @max
 * @duration_ns: target of a time, given in seconds, with fractions
 * @text:   target of a text
 * @flag:   set to true by the option, which takes no value
 * @min:    minimum
 * @max:    maximum
 */
struct option_spec {
	const char *name;
	__u64 *number;
	__u64 *duration_ns;
	const char **text;
	bool *flag;
	__u64 min;
	__u64 max;
};

/* Sets the targets; dies on an error. */
void parse_options(int argc, char **argv, const struct option_spec *specs);

/* Dies if the option @name was not given. */
void require_text(const char *name, const char *text);

/* The result: one JSON object as one line of stdout, field by field. */

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

/* UDP sockets. All functions die on an error. */

/* An IPv4 or IPv6 address with its port. */
union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/*
 * A UDP socket bound to the IP address @local. @rcvbuf: receive buffer,
 * bytes, 0: the default; only root may exceed the system's limit.
 */
int open_udp(const char *local, __u64 port, __u64 rcvbuf);

/* Dies unless @text is an IP address. */
union address parse_address(const char *text, __u64 port);

/* Connects the socket to one remote address. */
void connect_udp(int fd, const char *remote, __u64 port);

/* Sets the send buffer, bytes, 0: the default. */
void set_sndbuf(int fd, __u64 bytes);

/*
 * Sends data as UDP segments of @bytes. Segments of one send() share a packet
 * as far as the device supports that (GSO).
 */
void segment_udp(int fd, __u64 bytes);

/* Packets dropped because the receive buffer was full. */
__u64 socket_drops(int fd);

/* Since Linux 7.3; older headers lack it. */
#ifndef IFF_BACKPRESSURE
#define IFF_BACKPRESSURE 0x0080
#endif

/* The largest IP packet, an Ethernet header with two VLAN tags, a vnet_hdr. */
#define TUN_PACKET_MAX	(65536 + 64)

#define PROBE_MAGIC	0x6e6f64726f703031ULL

/**
 * struct probe_mark - the first bytes of udp_sender's UDP payload
 * @magic:   PROBE_MAGIC
 * @sender:  number of the sender's thread
 * @sequence: of the sender, from 0
 * @sent_ns: CLOCK_MONOTONIC just before the packet was passed to the socket
 */
struct probe_mark {
	__u64 magic;
	__u64 sender;
	__u64 sequence;
	__u64 sent_ns;
};

#endif
