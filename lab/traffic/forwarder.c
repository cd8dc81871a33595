// SPDX-License-Identifier: GPL-2.0-only
/*
 * forwarder: a null VPN. It joins two network namespaces by a TAP device in
 * each, as the two ends of a user-space VPN would, without the encryption:
 *
 *   namespace a                                    namespace b
 *   sender -> qdisc -> TAP a -> [ forwarder ] -> TAP b -> receiver
 *   <----------------- TAP a <- [ forwarder ] <- TAP b <- qdisc <-
 *
 * One thread for each direction.
 */
#include <errno.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"
#include "json.h"
#include "options.h"
#include "tun.h"

struct direction {
	int from;
	int to;
	__u64 packets;
	__u64 bytes;
	__u64 write_errors;
	int error;
	long voluntary;
	long involuntary;
};

static void *forward(void *arg)
{
	struct direction *direction = arg;
	char packet[TUN_PACKET_MAX];
	struct rusage usage;
	ssize_t length;

	while (!stop_asked()) {
		length = read(direction->from, packet, sizeof(packet));
		if (length < 0) {
			if (errno == EINTR)
				continue;
			direction->error = errno;
			break;
		}
		direction->packets++;
		direction->bytes += length;
		if (write(direction->to, packet, length) != length)
			direction->write_errors++;
	}
	if (!getrusage(RUSAGE_THREAD, &usage)) {
		direction->voluntary = usage.ru_nvcsw;
		direction->involuntary = usage.ru_nivcsw;
	}
	return NULL;
}

static void print_direction(const char *name, const struct direction *direction)
{
	json_open(name);
	json_count("packets", direction->packets);
	json_count("bytes", direction->bytes);
	json_count("write_errors", direction->write_errors);
	json_count("voluntary_switches", direction->voluntary);
	json_count("involuntary_switches", direction->involuntary);
	json_close();
}

static int open_end(const char *netns, const char *name, unsigned int flags)
{
	if (netns)
		enter_netns(netns);
	return open_tun(name, flags);
}

int main(int argc, char **argv)
{
	static struct direction directions[2];
	const char *netns_a = NULL;
	const char *netns_b = NULL;
	const char *name_a = "nodrop-a";
	const char *name_b = "nodrop-b";
	const char *words = "";
	pthread_t threads[2];
	__u64 duration = 0;
	const struct option_spec specs[] = {
		{ .name = "netns-a", .text = &netns_a,
		  .help = "file of the first network namespace" },
		{ .name = "netns-b", .text = &netns_b,
		  .help = "file of the second network namespace" },
		{ .name = "name-a", .text = &name_a,
		  .help = "TAP device in the first" },
		{ .name = "name-b", .text = &name_b,
		  .help = "TAP device in the second" },
		{ .name = "flags", .text = &words,
		  .help = "any of backpressure,vnet_hdr,napi" },
		{ .name = "seconds", .duration_ns = &duration,
		  .help = "how long to forward, 0: until a signal" },
		{}
	};
	unsigned int flags;
	__u64 started;
	int a, b;

	parse_options(argc, argv, "carry packets between two TAP devices",
		      specs);
	flags = parse_tun_flags(words) | IFF_TAP;
	catch_stop_signals();
	a = open_end(netns_a, name_a, flags);
	b = open_end(netns_b, name_b, flags);
	directions[0] = (struct direction){ .from = a, .to = b };
	directions[1] = (struct direction){ .from = b, .to = a };
	/* The devices exist: who started us may configure them now. */
	json_open(NULL);
	json_true("ready");
	json_close();
	started = now_ns();
	start_thread(&threads[0], forward, &directions[0]);
	start_thread(&threads[1], forward, &directions[1]);
	wait_for_end(duration ? started + duration : 0);
	join_threads(threads, 2);

	json_open(NULL);
	print_direction("a_to_b", &directions[0]);
	print_direction("b_to_a", &directions[1]);
	json_seconds("seconds", now_ns() - started);
	json_close();
	if (directions[0].error || directions[1].error)
		die(EXIT_FAILED, "reading failed: %s",
		    strerror(directions[0].error ?: directions[1].error));
	return EXIT_FINE;
}
