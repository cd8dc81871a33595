// SPDX-License-Identifier: GPL-2.0-only
/*
 * echo_probe: round-trip times of small UDP packets sent at a fixed interval
 * from one network namespace to an echo thread in another.
 *
 * A late probe is still sent and counted. Its time starts when it is passed to
 * the socket; the longest delay of a probe is reported.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common.h"

#define PROBES_MAX	10000000ULL
#define PORT		7

struct probe {
	__u64 index;
	__u64 sent_ns;
};

struct settings {
	const char *netns_client;
	const char *netns_server;
	const char *address;
	__u64 interval_ns;
	__u64 grace_ns;
	__u64 count;
};

/**
 * struct run - the state that the threads share
 * @rtt_ns: by probe, 0: no reply yet; written by the receiver only
 */
struct run {
	const struct settings *settings;
	int client;
	int server;
	__u64 *rtt_ns;
	__u64 sent;
	__u64 latest_ns;
};

static void open_sockets(struct run *run)
{
	const struct settings *settings = run->settings;

	if (settings->netns_server)
		enter_netns(settings->netns_server);
	run->server = open_udp(settings->address, PORT, 0);
	if (settings->netns_client)
		enter_netns(settings->netns_client);
	run->client = open_udp(strchr(settings->address, ':') ? "::" : "0.0.0.0",
			       0, 0);
	connect_udp(run->client, settings->address, PORT);
}

static void *echo(void *arg)
{
	struct run *run = arg;
	union address from;
	struct probe probe;
	socklen_t size;
	ssize_t length;

	while (!stop_asked()) {
		size = sizeof(from);
		length = recvfrom(run->server, &probe, sizeof(probe), 0,
				  &from.any, &size);
		if (length > 0)
			sendto(run->server, &probe, length, 0,
			       &from.any, size);
	}
	return NULL;
}

static void *receive(void *arg)
{
	struct run *run = arg;
	struct probe probe;
	ssize_t length;
	__u64 now;

	while (!stop_asked()) {
		length = recv(run->client, &probe, sizeof(probe), 0);
		now = now_ns();
		if (length == sizeof(probe) &&
		    probe.index < run->settings->count &&
		    !run->rtt_ns[probe.index])
			run->rtt_ns[probe.index] = now - probe.sent_ns;
	}
	return NULL;
}

static void send_probes(struct run *run)
{
	const struct settings *settings = run->settings;
	__u64 started = now_ns();
	struct probe probe = {};
	__u64 due;

	while (probe.index < settings->count && !stop_asked()) {
		due = started + probe.index * settings->interval_ns;
		sleep_until_ns(due);
		probe.sent_ns = now_ns();
		if (probe.sent_ns > due + run->latest_ns)
			run->latest_ns = probe.sent_ns - due;
		if (send(run->client, &probe, sizeof(probe), 0) >= 0)
			run->sent++;
		probe.index++;
	}
}

/* The reported percentiles, per thousand. */
static const unsigned int steps[] = { 500, 900, 990, 999 };

static void print_distribution(const __u64 *sorted, __u64 count)
{
	char name[16];
	size_t i;

	json_open("distribution_ns");
	for (i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		snprintf(name, sizeof(name), "%u", steps[i]);
		json_count(name, percentile(sorted, count, steps[i]));
	}
	json_close();
}

static void print_result(const struct run *run)
{
	__u64 *rtt = run->rtt_ns;
	__u64 got = sort_known(rtt, run->settings->count);

	json_open(NULL);
	json_count("sent", run->sent);
	json_count("received", got);
	json_count("lost", run->sent - got);
	json_count("latest_send_ns", run->latest_ns);
	print_distribution(rtt, got);
	json_close();
}

int main(int argc, char **argv)
{
	static struct settings settings = {
		.grace_ns = NSEC_PER_SEC / 2,
	};
	static struct run run = { .settings = &settings };
	__u64 duration = NSEC_PER_SEC;
	__u64 interval_us = 2000;
	const struct option_spec specs[] = {
		{ .name = "address", .text = &settings.address },
		{ .name = "netns-client", .text = &settings.netns_client },
		{ .name = "netns-server", .text = &settings.netns_server },
		{ .name = "interval-us", .number = &interval_us, .min = 1,
		  .max = 10000000 },
		{ .name = "seconds", .duration_ns = &duration },
		{ .name = "grace", .duration_ns = &settings.grace_ns },
		{}
	};
	pthread_t threads[2];

	parse_options(argc, argv, specs);
	require_text("address", settings.address);
	settings.interval_ns = interval_us * NSEC_PER_USEC;
	settings.count = duration / settings.interval_ns;
	if (!settings.count || settings.count > PROBES_MAX)
		die(EXIT_USAGE,
		    "--seconds and --interval-us must give 1 to %llu probes",
		    PROBES_MAX);
	run.rtt_ns = calloc(settings.count, sizeof(*run.rtt_ns));
	if (!run.rtt_ns)
		die(EXIT_FAILED, "no memory for %llu probes", settings.count);

	catch_stop_signals();
	open_sockets(&run);
	start_thread(&threads[0], echo, &run);
	start_thread(&threads[1], receive, &run);
	send_probes(&run);
	wait_for_end(now_ns() + settings.grace_ns);
	join_threads(threads, 2);
	print_result(&run);
	return EXIT_FINE;
}
