// SPDX-License-Identifier: GPL-2.0-only
/*
 * echo_probe: round-trip times of small UDP packets sent at a fixed interval
 * from one network namespace to an echo thread in another.
 *
 * A probe that is late is still sent and still counted; its time runs from
 * when it was given to the socket, and how late the latest was is reported.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "json.h"
#include "options.h"

#define PROBES_MAX	10000000ULL

struct probe {
	__u64 index;
	__u64 sent_ns;
};

struct settings {
	const char *netns_client;
	const char *netns_server;
	struct sockaddr_in to;
	__u64 interval_ns;
	__u64 grace_ns;
	__u64 count;
};

/**
 * struct run - the state that the threads share
 * @rtt_ns: by probe, 0: no answer yet; written by the receiver alone
 */
struct run {
	const struct settings *settings;
	int client;
	int server;
	__u64 *rtt_ns;
	__u64 sent;
	__u64 send_errors;
	__u64 latest_ns;
};

static int open_in(const char *netns)
{
	int fd;

	if (netns)
		enter_netns(netns);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die(EXIT_FAILED, "cannot open a UDP socket: %s",
		    strerror(errno));
	return fd;
}

static void open_sockets(struct run *run)
{
	const struct settings *settings = run->settings;
	const struct sockaddr *to = (const struct sockaddr *)&settings->to;

	run->server = open_in(settings->netns_server);
	if (bind(run->server, to, sizeof(settings->to)))
		die(EXIT_FAILED, "cannot listen for probes: %s",
		    strerror(errno));
	run->client = open_in(settings->netns_client);
	if (connect(run->client, to, sizeof(settings->to)))
		die(EXIT_FAILED, "cannot reach the echo address: %s",
		    strerror(errno));
}

static void *echo(void *arg)
{
	struct run *run = arg;
	struct sockaddr_in from;
	struct probe probe;
	socklen_t size;
	ssize_t length;

	while (!stop_asked()) {
		size = sizeof(from);
		length = recvfrom(run->server, &probe, sizeof(probe), 0,
				  (struct sockaddr *)&from, &size);
		if (length > 0)
			sendto(run->server, &probe, length, 0,
			       (struct sockaddr *)&from, size);
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
		if (send(run->client, &probe, sizeof(probe), 0) < 0)
			run->send_errors++;
		else
			run->sent++;
		probe.index++;
	}
}

static int compare(const void *left, const void *right)
{
	const __u64 a = *(const __u64 *)left;
	const __u64 b = *(const __u64 *)right;

	return (a > b) - (a < b);
}

/* The smallest value that @per_thousand of the sorted values do not exceed. */
static __u64 percentile(const __u64 *sorted, __u64 count, __u64 per_thousand)
{
	__u64 rank = (count * per_thousand + 999) / 1000;

	return count ? sorted[rank ? rank - 1 : 0] : 0;
}

/* Where the distribution is told, per thousand: denser at its upper end. */
static const unsigned int steps[] = {
	1, 10, 20, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600,
	650, 700, 750, 800, 850, 900, 930, 950, 970, 980, 990, 995, 999,
};

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
	__u64 got = 0;
	__u64 i;

	for (i = 0; i < run->settings->count; i++) {
		if (rtt[i])
			rtt[got++] = rtt[i];
	}
	qsort(rtt, got, sizeof(*rtt), compare);
	json_open(NULL);
	json_count("sent", run->sent);
	json_count("received", got);
	json_count("lost", run->sent - got);
	json_count("send_errors", run->send_errors);
	json_count("latest_send_ns", run->latest_ns);
	json_count("p50_ns", percentile(rtt, got, 500));
	json_count("p90_ns", percentile(rtt, got, 900));
	json_count("p99_ns", percentile(rtt, got, 990));
	json_count("p999_ns", percentile(rtt, got, 999));
	json_count("max_ns", percentile(rtt, got, 1000));
	print_distribution(rtt, got);
	json_close();
}

int main(int argc, char **argv)
{
	static struct settings settings = {
		.grace_ns = NSEC_PER_SEC / 2,
	};
	static struct run run = { .settings = &settings };
	const char *address = NULL;
	__u64 duration = NSEC_PER_SEC;
	__u64 interval_us = 2000;
	__u64 port = 7;
	const struct option_spec specs[] = {
		{ .name = "address", .text = &address,
		  .help = "IPv4 address of the echo side" },
		{ .name = "port", .number = &port, .min = 1, .max = 65535,
		  .help = "UDP port of the echo side" },
		{ .name = "netns-client", .text = &settings.netns_client,
		  .help = "file of the namespace that sends" },
		{ .name = "netns-server", .text = &settings.netns_server,
		  .help = "file of the namespace that echoes" },
		{ .name = "interval-us", .number = &interval_us, .min = 1,
		  .max = 10000000, .help = "time between probes, us" },
		{ .name = "seconds", .duration_ns = &duration,
		  .help = "how long to send" },
		{ .name = "grace", .duration_ns = &settings.grace_ns,
		  .help = "how long to wait for the last answers, s" },
		{}
	};
	pthread_t threads[2];

	parse_options(argc, argv, "measure round-trip times", specs);
	require_text("address", address);
	settings.to.sin_family = AF_INET;
	settings.to.sin_port = htons(port);
	if (inet_pton(AF_INET, address, &settings.to.sin_addr) != 1)
		die(EXIT_USAGE, "--address must be an IPv4 address, not '%s'",
		    address);
	settings.interval_ns = interval_us * NSEC_PER_USEC;
	settings.count = duration / settings.interval_ns;
	if (!settings.count || settings.count > PROBES_MAX)
		die(EXIT_USAGE,
		    "--seconds and --interval-us must make 1 to %llu probes",
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
