// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_sender: sends UDP through blocking sockets, so that the qdisc and the
 * socket's send buffer block it as they would block an application. It can send
 * several packets per system call, because that may cost more than a packet.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define SENDERS_MAX	64
#define PAYLOAD_MAX	65507
#define BATCH_MAX	64
#define SEGMENTS_MAX	64

/**
 * struct settings - shared by all senders
 * @size:     payload of a packet, or of each segment of one
 * @segments: per packet; packets are what is sent and counted; 1: no GSO
 */
struct settings {
	const char *dest;
	__u64 port;
	__u64 size;
	__u64 segments;
	__u64 packets;
	__u64 rate;
	__u64 sndbuf;
	__u64 batch;
	__u64 first;
	__u64 tos;
	__u64 priority;
	__u64 started;
	__u64 deadline;
	unsigned int running;
};

/**
 * struct sender - one socket and its thread
 * @held: whether its last send() was blocked at the end
 */
struct sender {
	struct settings *settings;
	__u64 index;
	__u64 sent;
	__u64 errors;
	__u64 longest_ns;
	__u64 ended;
	bool held;
};

/* For qdiscs. Setting the TOS also sets a priority, so it comes first. */
static void set_class(const struct settings *settings, int fd)
{
	int tos = settings->tos;
	int priority = settings->priority;

	if ((tos && setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos))) ||
	    (priority && setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority,
				    sizeof(priority))))
		die(EXIT_FAILED, "cannot set TOS or priority: %s",
		    strerror(errno));
}

static int open_socket(const struct settings *settings)
{
	int fd = open_udp("0.0.0.0", 0, 0);

	set_sndbuf(fd, settings->sndbuf);
	if (settings->segments > 1)
		segment_udp(fd, settings->size);
	set_class(settings, fd);
	connect_udp(fd, settings->dest, settings->port);
	return fd;
}

static bool pace(const struct settings *settings, __u64 tries)
{
	__u64 due;

	if (settings->rate) {
		due = settings->started + tries * NSEC_PER_SEC / settings->rate;
		if (due > now_ns())
			sleep_until_ns(due);
	}
	return !stop_asked() && now_ns() < settings->deadline;
}

static void *run_sender(void *arg)
{
	static const char zeros[PAYLOAD_MAX];
	struct sender *sender = arg;
	struct settings *settings = sender->settings;
	struct probe_mark marks[BATCH_MAX];
	struct iovec parts[BATCH_MAX][2];
	struct mmsghdr messages[BATCH_MAX] = {};
	__u64 whole = settings->size * settings->segments;
	int fd = open_socket(settings);
	__u64 tries = 0;
	__u64 now, took;
	unsigned int i;
	int count;

	for (i = 0; i < settings->batch; i++) {
		marks[i].magic = PROBE_MAGIC;
		marks[i].sender = sender->index;
		parts[i][0] = (struct iovec){ &marks[i], sizeof(*marks) };
		parts[i][1] = (struct iovec){ (void *)zeros,
					      whole - sizeof(*marks) };
		messages[i].msg_hdr.msg_iov = parts[i];
		messages[i].msg_hdr.msg_iovlen = 2;
	}
	while ((!settings->packets || sender->sent < settings->packets) &&
	       pace(settings, tries)) {
		tries += settings->batch;
		now = now_ns();
		for (i = 0; i < settings->batch; i++) {
			marks[i].sequence = sender->sent + i;
			marks[i].sent_ns = now;
		}
		count = sendmmsg(fd, messages, settings->batch, 0);
		if (count >= 0)
			sender->sent += count;
		else if (errno == EINTR)
			sender->held = true;
		else
			sender->errors++;
		took = now_ns() - now;
		if (took > sender->longest_ns)
			sender->longest_ns = took;
	}
	sender->ended = now_ns();
	close(fd);
	if (!__atomic_sub_fetch(&settings->running, 1, __ATOMIC_RELAXED))
		stop_now();
	return NULL;
}

static void print_result(const struct settings *settings,
			 const struct sender *senders, __u64 count)
{
	struct sender sum = {};
	__u64 held = 0;
	__u64 i;

	for (i = 0; i < count; i++) {
		sum.sent += senders[i].sent;
		sum.errors += senders[i].errors;
		held += senders[i].held;
		if (senders[i].longest_ns > sum.longest_ns)
			sum.longest_ns = senders[i].longest_ns;
		if (senders[i].ended > sum.ended)
			sum.ended = senders[i].ended;
	}
	json_open(NULL);
	json_count("sent", sum.sent);
	json_count("payload_bytes",
		   sum.sent * settings->size * settings->segments);
	json_count("errors", sum.errors);
	json_seconds("seconds", sum.ended - settings->started);
	json_count("longest_send_ns", sum.longest_ns);
	json_count("held_at_the_end", held);
	json_usage();
	json_close();
}

int main(int argc, char **argv)
{
	static struct sender senders[SENDERS_MAX];
	static struct settings settings = { .size = 64, .segments = 1,
					    .batch = 1, .port = 9 };
	pthread_t threads[SENDERS_MAX];
	bool announce = false;
	__u64 duration = NSEC_PER_SEC;
	__u64 count = 1;
	const struct option_spec specs[] = {
		{ .name = "dest", .text = &settings.dest },
		{ .name = "port", .number = &settings.port, .min = 1,
		  .max = 65535 },
		{ .name = "size", .number = &settings.size,
		  .min = sizeof(struct probe_mark), .max = PAYLOAD_MAX },
		{ .name = "segments", .number = &settings.segments, .min = 1,
		  .max = SEGMENTS_MAX },
		{ .name = "seconds", .duration_ns = &duration },
		{ .name = "packets", .number = &settings.packets,
		  .max = ~0ULL },
		{ .name = "senders", .number = &count, .min = 1,
		  .max = SENDERS_MAX },
		{ .name = "rate", .number = &settings.rate, .max = 10000000 },
		{ .name = "batch", .number = &settings.batch, .min = 1,
		  .max = BATCH_MAX },
		{ .name = "sndbuf", .number = &settings.sndbuf,
		  .max = 1 << 30 },
		{ .name = "first", .number = &settings.first, .max = 63 },
		{ .name = "announce", .flag = &announce },
		{ .name = "tos", .number = &settings.tos, .max = 255 },
		{ .name = "priority", .number = &settings.priority,
		  .max = 0x7fffffff },
		{}
	};
	__u64 i;

	parse_options(argc, argv, specs);
	require_text("dest", settings.dest);
	if (settings.size * settings.segments > PAYLOAD_MAX)
		die(EXIT_USAGE, "a packet has at most %d bytes", PAYLOAD_MAX);
	catch_stop_signals();
	settings.started = now_ns();
	settings.deadline = settings.started + duration;
	settings.running = count;
	for (i = 0; i < count; i++) {
		senders[i].settings = &settings;
		senders[i].index = settings.first + i;
		start_thread(&threads[i], run_sender, &senders[i]);
	}
	if (announce)
		json_ready();
	wait_for_end(settings.deadline);
	join_threads(threads, count);
	print_result(&settings, senders, count);
	return EXIT_FINE;
}
