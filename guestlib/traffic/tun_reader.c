// SPDX-License-Identifier: GPL-2.0-only
/*
 * tun_reader: reads an open queue of a TUN or TAP device like a VPN or a VMM,
 * with adjustable work per packet.
 */
#include <errno.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"

#define LOG_MAX		1000000ULL

/* One marked packet; times are CLOCK_MONOTONIC in ns. */
struct entry {
	__u64 sender;
	__u64 sent_ns;
	__u64 read_ns;
};

/**
 * struct reader - the reading thread and its counts
 * @involuntary: number of preemptions
 * @log: marked packets in order, at most LOG_MAX; NULL: no log
 */
struct reader {
	__u64 fd;
	bool tap;
	__u64 work_ns;
	__u64 rest_ns;
	__u64 packets;
	__u64 marked;
	__u64 first_ns;
	__u64 last_ns;
	int error;
	long involuntary;
	struct entry *log;
};

/* Finds the mark in a packet as read from a tun file; false: none. */
static bool find_mark(const void *packet, size_t length, bool tap,
	       struct probe_mark *mark)
{
	const char *at = packet;
	size_t skip = tap ? ETH_HLEN : 0;
	struct iphdr ip;

	if (length < skip + sizeof(ip))
		return false;
	memcpy(&ip, at + skip, sizeof(ip));
	if (ip.version != 4 || ip.protocol != IPPROTO_UDP)
		return false;
	skip += ip.ihl * 4 + sizeof(struct udphdr);
	if (length < skip + sizeof(*mark))
		return false;
	memcpy(mark, at + skip, sizeof(*mark));
	return mark->magic == PROBE_MAGIC;
}

static void count_packet(struct reader *reader, const char *packet,
			 size_t length)
{
	struct probe_mark mark;

	reader->last_ns = now_ns();
	if (!reader->packets++)
		reader->first_ns = reader->last_ns;
	if (!find_mark(packet, length, reader->tap, &mark))
		return;
	if (reader->log && reader->marked < LOG_MAX)
		reader->log[reader->marked] = (struct entry){
			.sender = mark.sender,
			.sent_ns = mark.sent_ns,
			.read_ns = reader->last_ns,
		};
	reader->marked++;
}

static void *read_queue(void *arg)
{
	struct reader *reader = arg;
	char packet[TUN_PACKET_MAX];
	struct rusage usage;
	ssize_t length;

	while (!stop_asked()) {
		length = read(reader->fd, packet, sizeof(packet));
		if (length < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			reader->error = errno;
			break;
		}
		count_packet(reader, packet, length);
		work_for_ns(reader->work_ns);
		rest_for_ns(reader->rest_ns);
	}
	if (!getrusage(RUSAGE_THREAD, &usage))
		reader->involuntary = usage.ru_nivcsw;
	return NULL;
}

static void write_log(const struct reader *reader, const char *path)
{
	FILE *file = fopen(path, "w");
	const struct entry *entry;

	if (!file)
		die(EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
	if (reader->marked > LOG_MAX)
		die(EXIT_FAILED, "too many packets for the log: %llu",
		    reader->marked);
	for (entry = reader->log; entry < reader->log + reader->marked; entry++)
		fprintf(file, "%llu %llu %llu\n", entry->sender,
			entry->sent_ns, entry->read_ns);
	if (fclose(file))
		die(EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
	static struct reader reader;
	const char *log = NULL;
	pthread_t thread;
	const struct option_spec specs[] = {
		{ .name = "fd", .number = &reader.fd, .max = 1 << 20 },
		{ .name = "tap", .flag = &reader.tap },
		{ .name = "work-ns", .number = &reader.work_ns,
		  .max = NSEC_PER_SEC },
		{ .name = "rest-ns", .number = &reader.rest_ns,
		  .max = NSEC_PER_SEC },
		{ .name = "log", .text = &log },
		{}
	};
	__u64 started;

	parse_options(argc, argv, specs);
	catch_stop_signals();
	if (log && !(reader.log = calloc(LOG_MAX, sizeof(*reader.log))))
		die(EXIT_FAILED, "no memory for a log");
	json_ready();
	started = now_ns();
	start_thread(&thread, read_queue, &reader);
	wait_for_end(0);
	join_threads(&thread, 1);
	if (log)
		write_log(&reader, log);

	json_open(NULL);
	json_count("packets", reader.packets);
	json_count("marked", reader.marked);
	json_seconds("seconds", now_ns() - started);
	json_seconds("active_seconds", reader.last_ns - reader.first_ns);
	json_count("involuntary_switches", reader.involuntary);
	json_close();
	if (reader.error)
		die(EXIT_FAILED, "reading failed: %s", strerror(reader.error));
	return EXIT_FINE;
}
