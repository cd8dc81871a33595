// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp_flows: bulk TCP flows from one network namespace to another, both ends
 * in this process. It costs little besides the network's own work: large sends
 * of zeros, receives that discard the data without a copy, and, if asked for,
 * buffers of a fixed size, so that no window grows during the measurement.
 *
 * After the warm-up it prints "ready"; the results are of the window that
 * begins then.
 */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define FLOWS_MAX	64
#define PORT		5201
#define SEND_BYTES	131072
#define RECEIVE_MAX	1048576
#define RTT_STEP_NS	(100 * 1000 * 1000ULL)

struct settings {
	const char *netns_client;
	const char *netns_server;
	const char *sender_cpu;
	const char *receiver_cpu;
	union address to;
	__u64 flows;
	__u64 sndbuf;
	__u64 rcvbuf;
};

/**
 * struct flow - one connection
 * @received: payload so far; written by the receiving thread only
 * @error:    why a thread ended early, or 0
 */
struct flow {
	const struct settings *settings;
	int sender;
	int receiver;
	__u64 received;
	int error;
};

static int open_in(const char *netns, int family)
{
	const int on = 1;
	int fd;

	if (netns)
		enter_netns(netns);
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		die(EXIT_FAILED, "cannot open a TCP socket: %s",
		    strerror(errno));
	return fd;
}

/* Exceeds the system's limit if allowed. */
static void set_buffer(int fd, int force, int ask, __u64 bytes)
{
	int size = bytes;

	if (size && setsockopt(fd, SOL_SOCKET, force, &size, sizeof(size)) &&
	    setsockopt(fd, SOL_SOCKET, ask, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set a buffer to %d bytes: %s", size,
		    strerror(errno));
}

/* Accepted sockets inherit the listening socket's buffer size. */
static int listen_for_flows(const struct settings *settings)
{
	int fd = open_in(settings->netns_server, settings->to.any.sa_family);

	set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, settings->rcvbuf);
	if (bind(fd, &settings->to.any,
		 sizeof(settings->to)) || listen(fd, FLOWS_MAX))
		die(EXIT_FAILED, "cannot listen for flows: %s",
		    strerror(errno));
	return fd;
}

static void open_flow(const struct settings *settings, int listener,
		      struct flow *flow)
{
	/* Unsent data is discarded with the socket. */
	const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

	flow->settings = settings;
	flow->sender = open_in(settings->netns_client, settings->to.any.sa_family);
	set_buffer(flow->sender, SO_SNDBUFFORCE, SO_SNDBUF, settings->sndbuf);
	setsockopt(flow->sender, SOL_SOCKET, SO_LINGER, &at_once,
		   sizeof(at_once));
	if (connect(flow->sender, &settings->to.any,
		    sizeof(settings->to)))
		die(EXIT_FAILED, "cannot connect: %s", strerror(errno));
	flow->receiver = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (flow->receiver < 0)
		die(EXIT_FAILED, "cannot accept a flow: %s", strerror(errno));
}

static void *send_bulk(void *arg)
{
	static const char zeros[SEND_BYTES];
	struct flow *flow = arg;

	bind_to_cpu(0, "sender-cpu", flow->settings->sender_cpu);
	while (!stop_asked()) {
		if (send(flow->sender, zeros, SEND_BYTES, 0) < 0 &&
		    errno != EINTR) {
			flow->error = errno;
			break;
		}
	}
	return NULL;
}

static void *receive_bulk(void *arg)
{
	struct flow *flow = arg;
	ssize_t length;

	bind_to_cpu(0, "receiver-cpu", flow->settings->receiver_cpu);
	while (!stop_asked()) {
		/* With MSG_TRUNC, TCP copies nothing. */
		length = recv(flow->receiver, NULL, RECEIVE_MAX, MSG_TRUNC);
		if (length > 0) {
			__atomic_store_n(&flow->received,
					 flow->received + length,
					 __ATOMIC_RELAXED);
		} else if (!length || errno != EINTR) {
			flow->error = length ? errno : ECONNRESET;
			break;
		}
	}
	return NULL;
}

static struct tcp_info sender_info(const struct flow *flow)
{
	struct tcp_info info = {};
	socklen_t size = sizeof(info);

	if (getsockopt(flow->sender, IPPROTO_TCP, TCP_INFO, &info, &size))
		die(EXIT_FAILED, "cannot read a flow's state: %s",
		    strerror(errno));
	return info;
}

struct sample {
	__u64 when;
	__u64 received[FLOWS_MAX];
	__u64 retransmits;
};

static void take_sample(const struct flow *flows, __u64 count,
			struct sample *sample)
{
	__u64 i;

	sample->when = now_ns();
	for (i = 0; i < count; i++)
		sample->received[i] = __atomic_load_n(&flows[i].received,
						      __ATOMIC_RELAXED);
	sample->retransmits = 0;
	for (i = 0; i < count; i++)
		sample->retransmits += sender_info(&flows[i]).tcpi_total_retrans;
}

/* Waits; returns the mean of all flows' smoothed round-trip times, us. */
static __u64 watch_rtt(const struct flow *flows, __u64 count, __u64 from,
		       __u64 duration)
{
	__u64 until = from + duration;
	__u64 samples = 0;
	__u64 total = 0;
	__u64 when = from;
	__u64 i;

	while (when < until && !stop_asked()) {
		when = when + RTT_STEP_NS < until ? when + RTT_STEP_NS : until;
		sleep_until_ns(when);
		for (i = 0; i < count; i++)
			total += sender_info(&flows[i]).tcpi_rtt;
		samples += count;
	}
	return samples ? total / samples : 0;
}

static void print_result(const struct sample *from, const struct sample *to,
			 __u64 count, __u64 rtt_us)
{
	__u64 total = 0;
	__u64 i;

	for (i = 0; i < count; i++)
		total += to->received[i] - from->received[i];
	json_open(NULL);
	json_count("bytes", total);
	json_count("retransmits", to->retransmits - from->retransmits);
	json_count("rtt_mean_us", rtt_us);
	json_seconds("seconds", to->when - from->when);
	json_close();
}

int main(int argc, char **argv)
{
	static struct settings settings = {
		.flows = 1,
		.sender_cpu = ANY_CPU,
		.receiver_cpu = ANY_CPU,
	};
	static struct flow flows[FLOWS_MAX];
	static struct sample first, last;
	pthread_t threads[2 * FLOWS_MAX];
	const char *address = NULL;
	__u64 duration = NSEC_PER_SEC;
	__u64 warm_up = 0;
	const struct option_spec specs[] = {
		{ .name = "address", .text = &address },
		{ .name = "netns-client", .text = &settings.netns_client },
		{ .name = "netns-server", .text = &settings.netns_server },
		{ .name = "flows", .number = &settings.flows, .min = 1,
		  .max = FLOWS_MAX },
		{ .name = "sndbuf", .number = &settings.sndbuf,
		  .max = 1 << 29 },
		{ .name = "rcvbuf", .number = &settings.rcvbuf,
		  .max = 1 << 29 },
		{ .name = "sender-cpu", .text = &settings.sender_cpu },
		{ .name = "receiver-cpu", .text = &settings.receiver_cpu },
		{ .name = "warm-up", .duration_ns = &warm_up },
		{ .name = "seconds", .duration_ns = &duration },
		{}
	};
	int listener;
	__u64 rtt_us;
	__u64 i;

	parse_options(argc, argv, specs);
	require_text("address", address);
	settings.to = parse_address(address, PORT);
	catch_stop_signals();
	listener = listen_for_flows(&settings);
	for (i = 0; i < settings.flows; i++)
		open_flow(&settings, listener, &flows[i]);
	for (i = 0; i < settings.flows; i++) {
		start_thread(&threads[2 * i], send_bulk, &flows[i]);
		start_thread(&threads[2 * i + 1], receive_bulk, &flows[i]);
	}
	sleep_until_ns(now_ns() + warm_up);
	take_sample(flows, settings.flows, &first);
	json_ready();
	rtt_us = watch_rtt(flows, settings.flows, first.when, duration);
	take_sample(flows, settings.flows, &last);
	join_threads(threads, 2 * settings.flows);
	for (i = 0; i < settings.flows; i++)
		if (flows[i].error)
			die(EXIT_FAILED, "a flow failed: %s",
			    strerror(flows[i].error));
	print_result(&first, &last, settings.flows, rtt_us);
	return EXIT_FINE;
}
