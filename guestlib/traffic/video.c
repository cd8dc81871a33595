// SPDX-License-Identifier: GPL-2.0-only
/*
 * video: sends frames like a live stream. Each is split into packets that leave
 * at once, at the frame's time, through a blocking socket; a thread receives
 * them in another namespace. The frames' sizes are those of a real encoding;
 * their contents do not matter to a network.
 *
 * A packet's delay starts at its frame's time, so it includes the time in which
 * the sender was blocked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common.h"

#define SIZES_MAX	100000
#define PAYLOAD_MAX	1472
#define PORT		5004
#define GRACE_NS	(NSEC_PER_SEC / 2)
#define MAGIC		0x6e6f64726f707672ULL

/**
 * struct fragment - the first bytes of each packet
 * @magic:    MAGIC
 * @sequence: of all packets, from 0
 * @picture:  number of the frame, from 0
 * @due_ns:   CLOCK_MONOTONIC at the frame's time
 */
struct fragment {
	__u64 magic;
	__u64 sequence;
	__u64 picture;
	__u64 due_ns;
};

/**
 * struct stream - the stream and its results
 * @pictures: frames to send in this run
 * @missing:  by frame: packets that have not arrived
 * @delays:   by packet, ns, 0: has not arrived
 */
struct stream {
	int in;
	int out;
	__u64 payload;
	__u64 pictures;
	__u32 *missing;
	__u64 packets;
	__u64 *delays;
	__u64 sent;
	__u64 send_errors;
	__u64 received;
	__u64 latest_ns;
	__u64 last_came;
};

static __u32 *read_sizes(const char *path, __u64 *count)
{
	__u32 *sizes = calloc(SIZES_MAX, sizeof(*sizes));
	FILE *file = fopen(path, "r");
	char line[80];
	__u64 n = 0;

	if (!file || !sizes)
		die(EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
	while (n < SIZES_MAX && fgets(line, sizeof(line), file)) {
		if (*line == '#')
			continue;
		sizes[n] = strtoul(line, NULL, 10);
		if (!sizes[n++])
			die(EXIT_FAILED, "%s has a line without a size",
			    path);
	}
	fclose(file);
	if (!n)
		die(EXIT_FAILED, "%s has no sizes", path);
	*count = n;
	return sizes;
}

static __u64 packets_of(const struct stream *stream, __u32 bytes)
{
	return (bytes + stream->payload - 1) / stream->payload;
}

/* The sizes repeat if the run is longer. */
static void prepare(struct stream *stream, const __u32 *sizes, __u64 count)
{
	__u64 i;

	stream->missing = calloc(stream->pictures, sizeof(*stream->missing));
	if (!stream->missing)
		die(EXIT_FAILED, "no memory for the frames");
	for (i = 0; i < stream->pictures; i++) {
		stream->missing[i] = packets_of(stream, sizes[i % count]);
		stream->packets += stream->missing[i];
	}
	stream->delays = calloc(stream->packets, sizeof(*stream->delays));
	if (!stream->delays)
		die(EXIT_FAILED, "no memory for the packets");
}

static void *receive(void *arg)
{
	struct stream *stream = arg;
	char packet[PAYLOAD_MAX];
	struct fragment head;
	ssize_t length;
	__u64 now;

	while (!stop_asked()) {
		length = recv(stream->in, packet, sizeof(packet), 0);
		if (length < (ssize_t)sizeof(head))
			continue;
		memcpy(&head, packet, sizeof(head));
		if (head.magic != MAGIC || head.sequence >= stream->packets ||
		    head.picture >= stream->pictures)
			continue;
		now = now_ns();
		__atomic_store_n(&stream->last_came, now, __ATOMIC_RELAXED);
		if (stream->delays[head.sequence])
			continue;
		stream->delays[head.sequence] = now - head.due_ns;
		stream->missing[head.picture]--;
		stream->received++;
	}
	return NULL;
}

static void send_picture(struct stream *stream, struct fragment *head,
			 __u32 bytes)
{
	static char packet[PAYLOAD_MAX];
	__u32 size;

	while (bytes && !stop_asked()) {
		size = bytes < stream->payload ? bytes : stream->payload;
		bytes -= size;
		memcpy(packet, head, sizeof(*head));
		if (size < sizeof(*head))
			size = sizeof(*head);
		if (send(stream->out, packet, size, 0) < 0)
			stream->send_errors++;
		else
			stream->sent++;
		head->sequence++;
	}
}

static void send_all(struct stream *stream, const __u32 *sizes, __u64 count,
		     __u64 rate)
{
	struct fragment head = { .magic = MAGIC };
	__u64 started = now_ns();
	__u64 late;

	while (head.picture < stream->pictures && !stop_asked()) {
		head.due_ns = started + head.picture * NSEC_PER_SEC / rate;
		sleep_until_ns(head.due_ns);
		late = now_ns() - head.due_ns;
		if (late > stream->latest_ns)
			stream->latest_ns = late;
		send_picture(stream, &head, sizes[head.picture % count]);
		head.picture++;
	}
}

/* Until no packet has arrived for @grace ns. */
static void wait_for_the_last(struct stream *stream, __u64 grace)
{
	__u64 until = now_ns() + grace;

	while (now_ns() < until && !stop_asked()) {
		sleep_until_ns(until);
		until = grace + __atomic_load_n(&stream->last_came,
						__ATOMIC_RELAXED);
	}
}

static void print_result(struct stream *stream)
{
	__u64 damaged = 0;
	__u64 got = sort_known(stream->delays, stream->packets);
	__u64 i;

	for (i = 0; i < stream->pictures; i++)
		damaged += stream->missing[i] != 0;
	json_open(NULL);
	json_count("pictures", stream->pictures);
	json_count("damaged", damaged);
	json_count("sent", stream->sent);
	json_count("send_errors", stream->send_errors);
	json_count("received", stream->received);
	json_count("latest_send_ns", stream->latest_ns);
	json_count("p50_ns", percentile(stream->delays, got, 500));
	json_count("p99_ns", percentile(stream->delays, got, 990));
	json_close();
}

int main(int argc, char **argv)
{
	static struct stream stream = { .payload = 1400 };
	const char *address = NULL;
	const char *netns = NULL;
	const char *path = NULL;
	__u64 duration = NSEC_PER_SEC;
	__u64 rate = 30;
	__u64 count;
	const struct option_spec specs[] = {
		{ .name = "address", .text = &address },
		{ .name = "netns-server", .text = &netns },
		{ .name = "pictures", .text = &path },
		{ .name = "rate", .number = &rate, .min = 1, .max = 1000 },
		{ .name = "payload", .number = &stream.payload,
		  .min = sizeof(struct fragment), .max = PAYLOAD_MAX },
		{ .name = "seconds", .duration_ns = &duration },
		{}
	};
	pthread_t receiver;
	__u32 *sizes;

	parse_options(argc, argv, specs);
	require_text("address", address);
	require_text("pictures", path);
	sizes = read_sizes(path, &count);
	stream.pictures = (duration * rate + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
	prepare(&stream, sizes, count);

	catch_stop_signals();
	stream.out = open_udp("0.0.0.0", 0, 0);
	connect_udp(stream.out, address, PORT);
	if (netns)
		enter_netns(netns);
	stream.in = open_udp(address, PORT, 0);
	start_thread(&receiver, receive, &stream);
	send_all(&stream, sizes, count, rate);
	wait_for_the_last(&stream, GRACE_NS);
	join_threads(&receiver, 1);
	print_result(&stream);
	return EXIT_FINE;
}
