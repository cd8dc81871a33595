// SPDX-License-Identifier: GPL-2.0-only
/*
 * packet_cost: measures the cost of a packet through a TUN device in ticks of
 * the time stamp counter. With QEMU's -icount shift=0 and one CPU, a tick is
 * one executed instruction, of the kernel or this program. A loop of known
 * length, counted first, verifies that.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#define LOOP_TURNS	10000000ULL
#define LOOP_LENGTH	2	/* instructions per iteration */
#define ROUNDS_MAX	1000
#define PAYLOAD_MAX	65507
#define SEGMENTS_MAX	64
#define QUEUES_MAX	8
#define FLOWS_MAX	64
#define PORT		9

/**
 * struct sender - memory shared with the sending process
 * @sent: packets passed to the socket
 * @stop: asks it to end
 */
struct sender {
	__u64 sent;
	bool stop;
};

/**
 * struct round - one measurement
 * @idle_ms: how long the CPU was idle, in steps of 10 ms
 */
struct round {
	__u64 sent;
	__u64 delivered;
	__u64 ticks;
	__u64 idle_ms;
};

/**
 * struct cost - the whole measurement
 * @devices: open queues of a TUN
 * @took: packets read from each queue
 * @sockets: connected to an address behind the TUN, each with its own port
 * @next: the socket whose turn it is
 * @payload: of a packet, in all its segments
 * @work: iterations of the loop that the reader runs for each packet
 * @batch: packets to send before all are read; 0: a separate process sends
 *	   them and blocks
 */
struct cost {
	int devices[QUEUES_MAX];
	__u64 took[QUEUES_MAX];
	unsigned int queues;
	int sockets[FLOWS_MAX];
	__u64 flows;
	__u64 next;
	int uptime;
	__u64 payload;
	__u64 work;
	__u64 batch;
	__u64 packets;
	__u64 delivered;
	struct sender *sender;
};

static __u64 ticks_now(void)
{
	return __builtin_ia32_rdtsc();
}

static void loop(__u64 turns)
{
	if (turns)
		asm volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
}

static __u64 idle_ms(const struct cost *cost)
{
	char text[64] = "";
	double idle;

	if (pread(cost->uptime, text, sizeof(text) - 1, 0) < 0 ||
	    sscanf(text, "%*f %lf", &idle) != 1)
		die(EXIT_FAILED, "cannot read /proc/uptime");
	return idle * 1000 + 0.5;
}

/* Sends from the next socket; returns false if that would block. */
static bool send_one(struct cost *cost, int flags)
{
	static const char payload[PAYLOAD_MAX];
	int fd = cost->sockets[cost->next];

	if (++cost->next == cost->flows)
		cost->next = 0;
	if (send(fd, payload, cost->payload, flags) >= 0) {
		__atomic_fetch_add(&cost->sender->sent, 1, __ATOMIC_RELAXED);
		return true;
	}
	if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
		die(EXIT_FAILED, "sending failed: %s", strerror(errno));
	return false;
}

static bool read_one(struct cost *cost, unsigned int queue)
{
	static char packet[TUN_PACKET_MAX];

	if (read(cost->devices[queue], packet, sizeof(packet)) < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return false;
		die(EXIT_FAILED, "reading failed: %s", strerror(errno));
	}
	cost->took[queue]++;
	cost->delivered++;
	loop(cost->work);
	return true;
}

/* Returns whether there was a packet. */
static bool read_all(struct cost *cost)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < cost->queues; i++) {
		while (read_one(cost, i))
			any = true;
	}
	return any;
}

/* Returns whether a queue is readable, or a socket writable if @sends. */
static bool wait_until_ready(const struct cost *cost, bool sends, int timeout)
{
	struct pollfd all[QUEUES_MAX + FLOWS_MAX];
	nfds_t count = 0;
	unsigned int i;

	for (i = 0; i < cost->queues; i++)
		all[count++] = (struct pollfd){ cost->devices[i], POLLIN, 0 };
	for (i = 0; sends && i < cost->flows; i++)
		all[count++] = (struct pollfd){ cost->sockets[i], POLLOUT, 0 };
	return poll(all, count, timeout) > 0;
}

static void set_blocking(int fd, bool blocking)
{
	if (fcntl(fd, F_SETFL, blocking ? 0 : O_NONBLOCK))
		die(EXIT_FAILED, "fcntl failed: %s", strerror(errno));
}

/* One process sends and reads by turns, so the scheduler has no influence. */
static void send_and_read(struct cost *cost, __u64 until)
{
	bool any;
	__u64 i;

	while (cost->delivered < until) {
		for (i = 0; i < cost->batch && send_one(cost, MSG_DONTWAIT);
		     i++)
			;
		any = read_all(cost) || i;
		if (!any)
			wait_until_ready(cost, true, -1);
	}
}

static void read_some(struct cost *cost, __u64 until)
{
	if (cost->batch)
		return send_and_read(cost, until);
	while (cost->delivered < until)
		read_one(cost, 0);
}

static pid_t start_sender(struct cost *cost)
{
	pid_t child = fork();

	if (child < 0)
		die(EXIT_FAILED, "cannot fork: %s", strerror(errno));
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!__atomic_load_n(&cost->sender->stop, __ATOMIC_RELAXED))
		send_one(cost, 0);
	_exit(EXIT_FINE);
}

/* The sender leaves its system call only when packets are read. */
static void finish(struct cost *cost, pid_t child)
{
	bool any = true;
	unsigned int i;

	__atomic_store_n(&cost->sender->stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < cost->queues; i++)
		set_blocking(cost->devices[i], false);
	while (child || any) {
		if (child && waitpid(child, NULL, WNOHANG) == child)
			child = 0;
		any = wait_until_ready(cost, false, 10);
		read_all(cost);
	}
}

static void measure(struct cost *cost, struct round *rounds, __u64 count)
{
	struct round *round;
	__u64 ticks;

	/* The first packets fill the kernel's caches. */
	read_some(cost, cost->packets / 10 + 1);
	for (round = rounds; round < rounds + count; round++) {
		round->idle_ms = idle_ms(cost);
		round->sent = __atomic_load_n(&cost->sender->sent,
					      __ATOMIC_RELAXED);
		round->delivered = cost->delivered;
		ticks = ticks_now();
		read_some(cost, cost->delivered + cost->packets);
		round->ticks = ticks_now() - ticks;
		round->delivered = cost->delivered - round->delivered;
		round->sent = __atomic_load_n(&cost->sender->sent,
					      __ATOMIC_RELAXED) - round->sent;
		round->idle_ms = idle_ms(cost) - round->idle_ms;
	}
}

static void print_loop(void)
{
	__u64 ticks = ticks_now();

	loop(LOOP_TURNS);
	ticks = ticks_now() - ticks;
	json_open(NULL);
	json_count("loop_instructions", LOOP_TURNS * LOOP_LENGTH);
	json_count("loop_ticks", ticks);
	json_close();
}

static void print_rounds(const struct cost *cost, const struct round *rounds,
			 __u64 count)
{
	const struct round *round;
	__u64 used = 0;
	unsigned int i;

	for (round = rounds; round < rounds + count; round++) {
		json_open(NULL);
		json_count("sent", round->sent);
		json_count("delivered", round->delivered);
		/* Without the reader's own work, whose cost is known. */
		json_count("ticks", round->ticks - round->delivered *
			   cost->work * LOOP_LENGTH);
		json_count("idle_ms", round->idle_ms);
		json_close();
	}
	for (i = 0; i < cost->queues; i++)
		used += cost->took[i] > 0;
	json_open(NULL);
	json_count("sent", cost->sender->sent);
	json_count("delivered", cost->delivered);
	json_count("used_queues", used);
	json_close();
}

/* Parses "3,5,7"; all later reads and polls use these. */
static void parse_devices(struct cost *cost, const char *text)
{
	const char *at = text;
	unsigned long device;
	char *end;

	do {
		device = strtoul(at, &end, 10);
		if (end == at || (*end && *end != ',') || device < 3 ||
		    device > 1023 || cost->queues == QUEUES_MAX)
			die(EXIT_USAGE,
			    "--device must be up to %d open files, not '%s'",
			    QUEUES_MAX, text);
		cost->devices[cost->queues++] = device;
		at = end + 1;
	} while (*end);
}

static void open_sockets(struct cost *cost, const char *local,
			 const char *remote, __u64 port, __u64 sndbuf,
			 __u64 segment)
{
	__u64 i;

	for (i = 0; i < cost->flows; i++) {
		cost->sockets[i] = open_udp(local, 0, 0);
		set_sndbuf(cost->sockets[i], sndbuf);
		if (segment)
			segment_udp(cost->sockets[i], segment);
		connect_udp(cost->sockets[i], remote, port);
	}
}

int main(int argc, char **argv)
{
	static struct round rounds[ROUNDS_MAX];
	static struct cost cost = { .packets = 10000, .flows = 1 };
	const char *devices = NULL;
	const char *local = NULL;
	const char *remote = NULL;
	__u64 size = 64, segments = 1;
	__u64 sndbuf = 0;
	__u64 count = 5;
	const struct option_spec specs[] = {
		{ .name = "device", .text = &devices },
		{ .name = "local", .text = &local },
		{ .name = "remote", .text = &remote },
		{ .name = "size", .number = &size, .min = 1,
		  .max = PAYLOAD_MAX },
		{ .name = "segments", .number = &segments, .min = 1,
		  .max = SEGMENTS_MAX },
		{ .name = "flows", .number = &cost.flows, .min = 1,
		  .max = FLOWS_MAX },
		{ .name = "sndbuf", .number = &sndbuf, .max = 1 << 30 },
		{ .name = "packets", .number = &cost.packets, .min = 1,
		  .max = 1 << 30 },
		{ .name = "rounds", .number = &count, .min = 1,
		  .max = ROUNDS_MAX },
		{ .name = "batch", .number = &cost.batch, .max = 1 << 20 },
		{ .name = "work", .number = &cost.work, .max = 1 << 30 },
		{}
	};
	pid_t child = 0;
	unsigned int i;

	parse_options(argc, argv, specs);
	if (devices)
		parse_devices(&cost, devices);
	require_text("local", local);
	require_text("remote", remote);
	require_text("device", devices);
	cost.payload = size * segments;
	if (cost.payload > PAYLOAD_MAX)
		die(EXIT_USAGE, "a packet has at most %d bytes", PAYLOAD_MAX);
	if (cost.queues > 1 && !cost.batch)
		die(EXIT_USAGE, "--batch 0 reads one queue only");
	cost.uptime = open("/proc/uptime", O_RDONLY | O_CLOEXEC);
	open_sockets(&cost, local, remote, PORT, sndbuf,
		     segments > 1 ? size : 0);
	cost.sender = mmap(NULL, sizeof(*cost.sender), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (cost.sender == MAP_FAILED)
		die(EXIT_FAILED, "no memory");
	for (i = 0; i < cost.queues; i++)
		set_blocking(cost.devices[i], !cost.batch);
	print_loop();
	if (!cost.batch)
		child = start_sender(&cost);
	measure(&cost, rounds, count);
	finish(&cost, child);
	print_rounds(&cost, rounds, count);
	return EXIT_FINE;
}
