// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_sink: counts the packets to a UDP port until it is stopped. It polls at
 * intervals and reads all packets then, so that no packet wakes it: the
 * sender's side is what is measured.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common.h"

#define BATCH		64
#define PAYLOAD_MAX	65536

/**
 * struct sink - results
 * @first: CLOCK_MONOTONIC when the first packets were read, ns
 * @last: the same of the last packets
 */
struct sink {
	int fd;
	__u64 packets;
	__u64 bytes;
	__u64 first;
	__u64 last;
};

/* Reads all packets; the data are discarded, so one buffer is enough. */
static void take_all(struct sink *sink)
{
	static char payload[PAYLOAD_MAX];
	struct mmsghdr messages[BATCH] = {};
	struct iovec part = {
		.iov_base = payload,
		.iov_len = sizeof(payload),
	};
	int count, i;

	for (i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	do {
		count = recvmmsg(sink->fd, messages, BATCH, MSG_DONTWAIT, NULL);
		if (count < 0 && errno != EAGAIN && errno != EINTR)
			die(EXIT_FAILED, "receiving failed: %s",
			    strerror(errno));
		for (i = 0; i < count; i++)
			sink->bytes += messages[i].msg_len;
		if (count > 0) {
			sink->last = now_ns();
			sink->first = sink->first ?: sink->last;
			sink->packets += count;
		}
	} while (count == BATCH);
}

int main(int argc, char **argv)
{
	static struct sink sink;
	const char *local = "0.0.0.0";
	__u64 interval = 1000;
	__u64 rcvbuf = 0;
	__u64 port = 9;
	const struct option_spec specs[] = {
		{ .name = "local", .text = &local },
		{ .name = "port", .number = &port, .min = 1, .max = 65535 },
		{ .name = "rcvbuf", .number = &rcvbuf, .max = 1 << 30 },
		{ .name = "interval-us", .number = &interval, .min = 1,
		  .max = 1000000 },
		{}
	};

	parse_options(argc, argv, specs);
	catch_stop_signals();
	sink.fd = open_udp(local, port, rcvbuf);
	json_ready();
	while (!stop_asked()) {
		sleep_until_ns(now_ns() + interval * NSEC_PER_USEC);
		take_all(&sink);
	}
	take_all(&sink);

	json_open(NULL);
	json_count("packets", sink.packets);
	json_count("payload_bytes", sink.bytes);
	json_count("socket_drops", socket_drops(sink.fd));
	json_seconds("active_seconds", sink.last - sink.first);
	json_close();
	return EXIT_FINE;
}
