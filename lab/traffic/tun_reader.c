// SPDX-License-Identifier: GPL-2.0-only
/*
 * tun_reader: reads a TUN or TAP device as a VPN or a VMM would, with an
 * adjustable amount of work on each packet, one thread for each queue.
 */
#include <errno.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"
#include "json.h"
#include "options.h"
#include "tun.h"

#define QUEUES_MAX	64
#define SENDERS_MAX	64
#define LOG_MAX		1000000ULL

/* One marked packet; times are CLOCK_MONOTONIC in ns. */
struct entry {
	__u64 sender;
	__u64 sent_ns;
	__u64 read_ns;
};

struct settings {
	unsigned int flags;
	__u64 work_ns;
	__u64 rest_ns;
	__u64 packets;
	bool poll;
	const char *log;
};

/**
 * struct queue - one queue and its reading thread
 * @gaps: sequence numbers that a sender used and that never arrived here,
 *	  as far as the next ones show
 * @voluntary: times the thread went to sleep
 * @involuntary: times the thread was made to yield its CPU
 * @log: the marked packets in their order, LOG_MAX at most; NULL: not wanted
 */
struct queue {
	const struct settings *settings;
	int fd;
	__u64 packets;
	__u64 bytes;
	__u64 marked;
	__u64 gaps;
	__u64 next[SENDERS_MAX];
	__u64 first_ns;
	__u64 last_ns;
	int error;
	long voluntary;
	long involuntary;
	struct entry *log;
};

static void count_packet(struct queue *queue, const char *packet, size_t length)
{
	struct probe_mark mark;
	__u64 *next;

	queue->last_ns = now_ns();
	if (!queue->packets)
		queue->first_ns = queue->last_ns;
	queue->packets++;
	queue->bytes += length;
	if (!find_mark(packet, length, queue->settings->flags, &mark) ||
	    mark.sender >= SENDERS_MAX)
		return;
	if (queue->log && queue->marked < LOG_MAX)
		queue->log[queue->marked] = (struct entry){
			.sender = mark.sender,
			.sent_ns = mark.sent_ns,
			.read_ns = queue->last_ns,
		};
	queue->marked++;
	next = &queue->next[mark.sender];
	if (mark.sequence >= *next) {
		queue->gaps += mark.sequence - *next;
		*next = mark.sequence + 1;
	} else if (queue->gaps) {
		/* Late, not lost. */
		queue->gaps--;
	}
}

static void *read_queue(void *arg)
{
	struct queue *queue = arg;
	const struct settings *settings = queue->settings;
	struct pollfd readable = { .fd = queue->fd, .events = POLLIN };
	char packet[TUN_PACKET_MAX];
	struct rusage usage;
	ssize_t length;

	while (!stop_asked()) {
		if (settings->poll && poll(&readable, 1, -1) < 0)
			continue;
		length = read(queue->fd, packet, sizeof(packet));
		if (length < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			queue->error = errno;
			break;
		}
		count_packet(queue, packet, length);
		work_for_ns(settings->work_ns);
		rest_for_ns(settings->rest_ns);
		if (settings->packets && queue->packets >= settings->packets)
			stop_now();
	}
	if (!getrusage(RUSAGE_THREAD, &usage)) {
		queue->voluntary = usage.ru_nvcsw;
		queue->involuntary = usage.ru_nivcsw;
	}
	return NULL;
}

static int print_result(const struct queue *queues, __u64 count,
			__u64 elapsed)
{
	struct queue sum = {};
	__u64 i;

	for (i = 0; i < count; i++) {
		sum.packets += queues[i].packets;
		sum.bytes += queues[i].bytes;
		sum.marked += queues[i].marked;
		sum.gaps += queues[i].gaps;
		sum.voluntary += queues[i].voluntary;
		sum.involuntary += queues[i].involuntary;
		if (queues[i].packets &&
		    (!sum.first_ns || queues[i].first_ns < sum.first_ns))
			sum.first_ns = queues[i].first_ns;
		if (queues[i].last_ns > sum.last_ns)
			sum.last_ns = queues[i].last_ns;
		if (queues[i].error)
			sum.error = queues[i].error;
	}
	json_open(NULL);
	json_count("packets", sum.packets);
	json_count("bytes", sum.bytes);
	json_count("marked", sum.marked);
	json_count("gaps", sum.gaps);
	json_seconds("seconds", elapsed);
	json_seconds("active_seconds", sum.last_ns - sum.first_ns);
	json_count("voluntary_switches", sum.voluntary);
	json_count("involuntary_switches", sum.involuntary);
	json_close();
	if (sum.error)
		die(EXIT_FAILED, "reading failed: %s", strerror(sum.error));
	return EXIT_FINE;
}

static void write_log(const struct settings *settings,
		      const struct queue *queues, __u64 count)
{
	FILE *file = fopen(settings->log, "w");
	const struct entry *entry;
	__u64 i;

	if (!file)
		die(EXIT_FAILED, "cannot write %s: %s", settings->log,
		    strerror(errno));
	for (i = 0; i < count; i++) {
		if (queues[i].marked > LOG_MAX)
			die(EXIT_FAILED, "too many packets for a log: %llu",
			    queues[i].marked);
		for (entry = queues[i].log;
		     entry < queues[i].log + queues[i].marked; entry++)
			fprintf(file, "%llu %llu %llu\n", entry->sender,
				entry->sent_ns, entry->read_ns);
	}
	if (fclose(file))
		die(EXIT_FAILED, "cannot write %s: %s", settings->log,
		    strerror(errno));
}

static unsigned int device_flags(const char *mode, const char *words,
				 __u64 queues)
{
	unsigned int flags = parse_tun_flags(words);

	if (!strcmp(mode, "tun"))
		flags |= IFF_TUN;
	else if (!strcmp(mode, "tap"))
		flags |= IFF_TAP;
	else
		die(EXIT_USAGE, "--mode must be tun or tap, not '%s'", mode);
	if (queues > 1)
		flags |= IFF_MULTI_QUEUE;
	return flags;
}

int main(int argc, char **argv)
{
	static struct queue queues[QUEUES_MAX];
	static struct settings settings;
	pthread_t threads[QUEUES_MAX];
	const char *name = "nodrop0";
	const char *flags = "";
	const char *mode = "tun";
	__u64 duration = 0;
	__u64 count = 1;
	__u64 fd = 0;
	const struct option_spec specs[] = {
		{ .name = "mode", .text = &mode, .help = "tun or tap" },
		{ .name = "name", .text = &name, .help = "device to create" },
		{ .name = "fd", .number = &fd, .max = 1 << 20,
		  .help = "an open device to read instead, 0: none" },
		{ .name = "queues", .number = &count, .min = 1,
		  .max = QUEUES_MAX, .help = "queues, one thread each" },
		{ .name = "flags", .text = &flags,
		  .help = "any of backpressure,vnet_hdr,napi" },
		{ .name = "work-ns", .number = &settings.work_ns,
		  .max = NSEC_PER_SEC, .help = "busy time per packet, ns" },
		{ .name = "rest-ns", .number = &settings.rest_ns,
		  .max = NSEC_PER_SEC, .help = "sleep after each packet, ns" },
		{ .name = "seconds", .duration_ns = &duration,
		  .help = "how long to read, 0: until a signal" },
		{ .name = "packets", .number = &settings.packets,
		  .max = ~0ULL,
		  .help = "stop after this many in a queue, 0: never" },
		{ .name = "poll", .flag = &settings.poll,
		  .help = "wait in poll() instead of in read()" },
		{ .name = "log", .text = &settings.log,
		  .help = "file of marked packets: sender, sent, read (ns)" },
		{}
	};
	__u64 started, i;

	parse_options(argc, argv, "read a TUN or TAP device", specs);
	settings.flags = device_flags(mode, flags, count);
	catch_stop_signals();
	for (i = 0; i < count; i++) {
		queues[i].settings = &settings;
		queues[i].fd = fd ? (int)fd : open_tun(name, settings.flags);
		if (!settings.log)
			continue;
		queues[i].log = calloc(LOG_MAX, sizeof(*queues[i].log));
		if (!queues[i].log)
			die(EXIT_FAILED, "no memory for a log");
	}
	/* The device exists: who started us may configure it now. */
	json_open(NULL);
	json_true("ready");
	json_text("name", name);
	json_close();
	started = now_ns();
	for (i = 0; i < count; i++)
		start_thread(&threads[i], read_queue, &queues[i]);
	wait_for_end(duration ? started + duration : 0);
	join_threads(threads, count);
	if (settings.log)
		write_log(&settings, queues, count);
	return print_result(queues, count, now_ns() - started);
}
