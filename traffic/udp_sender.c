// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_sender: sends UDP through blocking sockets, so that the qdisc and the
 * socket's memory hold it back as they would hold back an application.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "json.h"
#include "options.h"
#include "tun.h"

#define SENDERS_MAX	64
#define PAYLOAD_MAX	65507

struct settings {
	struct sockaddr_in to;
	__u64 size;
	__u64 packets;
	__u64 rate;
	__u64 sndbuf;
	__u64 started;
	__u64 deadline;
	unsigned int running;
};

/**
 * struct sender - one socket and its thread
 * @held: its last send() was waiting when the time was over
 */
struct sender {
	struct settings *settings;
	__u64 index;
	__u64 sent;
	__u64 again;
	__u64 nobufs;
	__u64 errors;
	int last_error;
	__u64 longest_ns;
	__u64 ended;
	bool held;
};

static int open_socket(const struct settings *settings)
{
	int size = settings->sndbuf;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die(EXIT_FAILED, "cannot open a UDP socket: %s",
		    strerror(errno));
	if (size && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set the send buffer to %d bytes: %s",
		    size, strerror(errno));
	if (connect(fd, (const struct sockaddr *)&settings->to,
		    sizeof(settings->to)))
		die(EXIT_FAILED, "cannot reach the destination: %s",
		    strerror(errno));
	return fd;
}

static void count_error(struct sender *sender, int error)
{
	if (error == EAGAIN) {
		sender->again++;
	} else if (error == ENOBUFS) {
		sender->nobufs++;
	} else {
		sender->errors++;
		sender->last_error = error;
	}
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
	struct probe_mark mark = {
		.magic = PROBE_MAGIC,
		.sender = sender->index,
	};
	struct iovec parts[] = {
		{ .iov_base = &mark, .iov_len = sizeof(mark) },
		{ .iov_base = (void *)zeros,
		  .iov_len = settings->size - sizeof(mark) },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	int fd = open_socket(settings);
	__u64 tries = 0;
	__u64 took;

	while ((!settings->packets || sender->sent < settings->packets) &&
	       pace(settings, tries)) {
		tries++;
		mark.sequence = sender->sent;
		mark.sent_ns = now_ns();
		if (sendmsg(fd, &message, 0) < 0) {
			if (errno == EINTR)
				sender->held = true;
			else
				count_error(sender, errno);
		} else {
			sender->sent++;
		}
		took = now_ns() - mark.sent_ns;
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
		sum.again += senders[i].again;
		sum.nobufs += senders[i].nobufs;
		sum.errors += senders[i].errors;
		held += senders[i].held;
		if (senders[i].last_error)
			sum.last_error = senders[i].last_error;
		if (senders[i].longest_ns > sum.longest_ns)
			sum.longest_ns = senders[i].longest_ns;
		if (senders[i].ended > sum.ended)
			sum.ended = senders[i].ended;
	}
	json_open(NULL);
	json_count("sent", sum.sent);
	json_count("payload_bytes", sum.sent * settings->size);
	json_count("eagain", sum.again);
	json_count("enobufs", sum.nobufs);
	json_count("other_errors", sum.errors);
	json_text("last_error",
		  sum.last_error ? strerror(sum.last_error) : "");
	json_seconds("seconds", sum.ended - settings->started);
	json_count("longest_send_ns", sum.longest_ns);
	json_count("held_at_the_end", held);
	json_close();
}

int main(int argc, char **argv)
{
	static struct sender senders[SENDERS_MAX];
	static struct settings settings = { .size = 64 };
	pthread_t threads[SENDERS_MAX];
	const char *dest = NULL;
	__u64 duration = NSEC_PER_SEC;
	__u64 count = 1;
	__u64 port = 9;
	const struct option_spec specs[] = {
		{ .name = "dest", .text = &dest,
		  .help = "IPv4 address to send to" },
		{ .name = "port", .number = &port, .min = 1, .max = 65535,
		  .help = "UDP port to send to" },
		{ .name = "size", .number = &settings.size,
		  .min = sizeof(struct probe_mark), .max = PAYLOAD_MAX,
		  .help = "UDP payload, bytes" },
		{ .name = "seconds", .duration_ns = &duration,
		  .help = "how long to send" },
		{ .name = "packets", .number = &settings.packets,
		  .max = ~0ULL,
		  .help = "stop after this many of each sender, 0: never" },
		{ .name = "senders", .number = &count, .min = 1,
		  .max = SENDERS_MAX,
		  .help = "threads, each with a socket of its own" },
		{ .name = "rate", .number = &settings.rate, .max = 10000000,
		  .help = "packets/s of each sender, 0: as fast as it goes" },
		{ .name = "sndbuf", .number = &settings.sndbuf,
		  .max = 1 << 30,
		  .help = "socket send buffer, bytes, 0: the system's" },
		{}
	};
	__u64 i;

	parse_options(argc, argv, "send UDP through blocking sockets", specs);
	require_text("dest", dest);
	settings.to.sin_family = AF_INET;
	settings.to.sin_port = htons(port);
	if (inet_pton(AF_INET, dest, &settings.to.sin_addr) != 1)
		die(EXIT_USAGE, "--dest must be an IPv4 address, not '%s'",
		    dest);
	catch_stop_signals();
	settings.started = now_ns();
	settings.deadline = settings.started + duration;
	settings.running = count;
	for (i = 0; i < count; i++) {
		senders[i].settings = &settings;
		senders[i].index = i;
		start_thread(&threads[i], run_sender, &senders[i]);
	}
	wait_for_end(settings.deadline);
	join_threads(threads, count);
	print_result(&settings, senders, count);
	return EXIT_FINE;
}
