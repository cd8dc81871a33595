// SPDX-License-Identifier: GPL-2.0-only
/*
 * forwarder: a null VPN. It joins two TAP devices, which may be in two network
 * namespaces, like the two ends of a user-space VPN, but without encryption:
 *
 *
 *   namespace a                                    namespace b
 *   sender -> qdisc -> TAP a -> [ forwarder ] -> TAP b -> receiver
 *   <----------------- TAP a <- [ forwarder ] <- TAP b <- qdisc <-
 *
 * One thread for each direction.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

struct direction {
	int from;
	int to;
	__u64 packets;
	__u64 bytes;
	int error;
};

static void *forward(void *arg)
{
	struct direction *direction = arg;
	char packet[TUN_PACKET_MAX];
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
		/* A device that is being removed accepts no packets. */
		if (write(direction->to, packet, length) < 0)
			continue;
	}
	return NULL;
}

static void print_direction(const char *name, const struct direction *direction)
{
	json_open(name);
	json_count("packets", direction->packets);
	json_count("bytes", direction->bytes);
	json_close();
}

int main(int argc, char **argv)
{
	static struct direction directions[2];
	__u64 a = 0, b = 0;
	pthread_t threads[2];
	const struct option_spec specs[] = {
		{ .name = "fd-a", .number = &a, .max = 1 << 20 },
		{ .name = "fd-b", .number = &b, .max = 1 << 20 },
		{}
	};

	parse_options(argc, argv, specs);
	catch_stop_signals();
	directions[0] = (struct direction){ .from = a, .to = b };
	directions[1] = (struct direction){ .from = b, .to = a };
	json_ready();
	start_thread(&threads[0], forward, &directions[0]);
	start_thread(&threads[1], forward, &directions[1]);
	wait_for_end(0);
	join_threads(threads, 2);

	json_open(NULL);
	print_direction("a_to_b", &directions[0]);
	print_direction("b_to_a", &directions[1]);
	json_close();
	if (directions[0].error || directions[1].error)
		die(EXIT_FAILED, "reading failed: %s",
		    strerror(directions[0].error ?: directions[1].error));
	return EXIT_FINE;
}
