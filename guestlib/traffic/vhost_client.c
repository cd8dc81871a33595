// SPDX-License-Identifier: GPL-2.0-only
/*
 * vhost_client: a virtual machine's network driver without the machine. It
 * keeps vhost-net's receive ring filled with buffers and discards the packets.
 * With a second TAP (--far-fd) it is a complete guest: it writes received
 * packets to that TAP, and sends the packets that it reads there.
 *
 * Requests are lines on stdin: "count", "detach" and "attach" (vhost-net from
 * and to the TAP), "pause" and "resume" (offering buffers), "hide" and "show"
 * (protect the buffers from vhost-net). The reply to each is a line of JSON
 * with the counts so far.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "vhost.h"

/* Buffers of the largest packet: 64 kB in pages, and one begun page. */
#define PARTS_MAX	32
#define VLAN_TAG	4
#define STEP_MS		10
#define SEND_STEP_NS	(1000 * 1000ULL)

/*
 * On one CPU vhost's thread has priority: a guest has its own CPU. Neither may
 * keep a request waiting.
 */
#define CLIENT_PRIORITY		1
#define WORKER_PRIORITY		2
#define REQUEST_PRIORITY	3

/**
 * struct client - shared by the threads
 * @far: the second TAP, 0: none
 * @paused: whether no buffers are offered
 * @busyloop: how long vhost polls, us; it may then fail to request a kick
 */
struct client {
	struct vhost_device dev;
	struct vhost_counts counts;
	__u64 work_ns;
	__u64 work_per_kb_ns;
	__u64 rest_ns;
	bool paused;
	__u64 busyloop;
	__u64 far;
};

/*
 * A guest's network without the guest: a second TAP, in another namespace.
 * Large packets are not segmented; each takes one system call.
 *
 *   TAP -> vhost -> receive ring  -> writev() -> far TAP
 *   TAP <- vhost <- transmit ring <- read()   <- far TAP
 */
static void far_open(const struct vhost_device *dev, int fd)
{
	int size = dev->header;

	if (ioctl(dev->tap, TUNSETVNETHDRSZ, &size) ||
	    ioctl(fd, TUNSETVNETHDRSZ, &size))
		die(EXIT_FAILED, "cannot set the size of a TAP's headers: %s",
		    strerror(errno));
}

/* Returns the number of segments of a packet of @length bytes. */
static __u64 segments_of(const struct virtio_net_hdr *header,
			 const char *packet, size_t length)
{
	size_t headers = le16toh(header->csum_start);
	size_t size = le16toh(header->gso_size);
	struct tcphdr tcp;

	if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE || !size)
		return 1;
	memcpy(&tcp, packet + headers, sizeof(tcp));
	headers += tcp.doff * 4;
	return (length - headers + size - 1) / size;
}

/* Writes the next packet and returns the number of its buffers. */
static __u16 write_packet(struct vhost_device *dev, int fd,
			  struct vhost_counts *counts)
{
	const struct vhost_ring *ring = &dev->rings[VHOST_RX];
	const struct virtio_net_hdr_mrg_rxbuf *header;
	const struct vring_used_elem *entry;
	struct iovec parts[PARTS_MAX];
	const char *packet;
	size_t length = 0;
	__u16 count, i;

	entry = vhost_used_entry(ring, 0);
	header = (const void *)vhost_buffer(ring, entry->id);
	count = le16toh(header->num_buffers);
	if (!count || count > PARTS_MAX || count > vhost_used(ring))
		die(EXIT_FAILED, "vhost-net used %u buffers for a packet",
		    count);
	for (i = 0; i < count; i++) {
		entry = vhost_used_entry(ring, i);
		parts[i].iov_base = vhost_buffer(ring, entry->id);
		parts[i].iov_len = entry->len;
		length += entry->len;
	}
	if (writev(fd, parts, count) != (ssize_t)length)
		add_count(&counts->refused, 1);
	length -= dev->header;
	packet = (const char *)(header + 1);
	add_count(&counts->segments,
		  segments_of(&header->hdr, packet, length));
	add_count(&counts->bytes, length);
	add_count(&counts->packets, 1);
	return count;
}

/*
 * Writes received packets to the far TAP, works on each as long as the options
 * say, and offers their buffers again.
 */
static void far_receive(struct client *client)
{
	struct vhost_device *dev = &client->dev;
	struct vhost_counts *counts = &client->counts;
	struct vhost_ring *ring = &dev->rings[VHOST_RX];
	__u64 before;
	struct vring_avail *avail = ring->vring.avail;
	__u16 count, i;

	while (vhost_used(ring) && !stop_asked()) {
		before = counts->bytes;
		count = write_packet(dev, client->far, counts);
		work_for_ns(client->work_ns + client->work_per_kb_ns *
			    (counts->bytes - before) / 1024);
		for (i = 0; i < count; i++)
			avail->ring[(__u16)(avail->idx + i) % ring->vring.num] =
				vhost_used_entry(ring, i)->id;
		vhost_take(ring, count);
		vhost_give(ring, count);
	}
}

/*
 * Sends the packets of the far TAP until the program is to stop. Descriptors
 * are used in order, which is also vhost's order.
 */
static void far_transmit(struct vhost_device *dev, int fd,
			 struct vhost_counts *counts)
{
	struct vhost_ring *ring = &dev->rings[VHOST_TX];
	unsigned int slot, slots = ring->vring.num;
	__u64 given = 0;
	ssize_t length;
	__u16 used;

	while (!stop_asked()) {
		used = vhost_used(ring);
		vhost_take(ring, used);
		add_count(&counts->sent, used);
		if (given - counts->sent == slots) {
			vhost_wait(ring);
			continue;
		}
		slot = given % slots;
		length = read(fd, vhost_buffer(ring, slot), ring->buffer_bytes);
		if (length < 0 && errno != EINTR)
			die(EXIT_FAILED, "cannot read from the far TAP: %s",
			    strerror(errno));
		if (length <= 0)
			continue;
		ring->vring.desc[slot].len = length;
		vhost_give(ring, 1);
		given++;
	}
}

/* Whether a frame is IPv4, with or without a VLAN tag. */
static bool is_ipv4(const struct client *client, __u32 id)
{
	const char *buffer = vhost_buffer(&client->dev.rings[VHOST_RX], id);
	const struct ether_header *frame;

	frame = (const void *)(buffer + client->dev.header);
	if (frame->ether_type == htons(ETHERTYPE_VLAN))
		frame = (const void *)((const char *)frame + VLAN_TAG);
	return frame->ether_type == htons(ETHERTYPE_IP);
}

/* Offers the buffers of @count used entries again. */
static void take_packets(struct client *client, __u16 count)
{
	struct vhost_ring *ring = &client->dev.rings[VHOST_RX];
	struct vring_avail *avail = ring->vring.avail;
	const struct vring_used_elem *entry;
	__u64 bytes = 0, others = 0;
	__u16 i;

	for (i = 0; i < count; i++) {
		entry = vhost_used_entry(ring, i);
		others += !is_ipv4(client, entry->id);
		bytes += entry->len - client->dev.header;
		avail->ring[(__u16)(avail->idx + i) % ring->vring.num] =
			entry->id;
	}
	work_for_ns(client->work_ns * count);
	rest_for_ns(client->rest_ns * count);
	vhost_take(ring, count);
	vhost_give(ring, count);
	if (client->busyloop)
		vhost_kick(ring);
	add_count(&client->counts.bytes, bytes);
	add_count(&client->counts.others, others);
	add_count(&client->counts.packets, count);
}

static void *receive(void *arg)
{
	struct client *client = arg;
	struct vhost_ring *ring = &client->dev.rings[VHOST_RX];
	__u16 count;

	while (!stop_asked()) {
		if (__atomic_load_n(&client->paused, __ATOMIC_RELAXED)) {
			sleep_until_ns(now_ns() + SEND_STEP_NS);
			continue;
		}
		count = vhost_used(ring);
		if (count && client->far)
			far_receive(client);
		else if (count)
			take_packets(client, count);
		else
			vhost_wait(ring);
	}
	return NULL;
}

static void *transmit(void *arg)
{
	struct client *client = arg;

	far_transmit(&client->dev, client->far, &client->counts);
	add_count(&client->counts.sent,
		  vhost_used(&client->dev.rings[VHOST_TX]));
	return NULL;
}

static void print_counts(struct client *client)
{
	struct vhost_counts *counts = &client->counts;
	struct vhost_ring *ring = &client->dev.rings[VHOST_RX];

	json_open(NULL);
	json_count("packets", get_count(&counts->packets));
	json_count("others", get_count(&counts->others));
	json_count("bytes", get_count(&counts->bytes));
	json_count("segments", get_count(&counts->segments));
	json_count("refused", get_count(&counts->refused));
	json_count("sent", get_count(&counts->sent));
	json_count("errors", vhost_errors(ring));
	json_count("now_ns", now_ns());
	json_count("worker", client->dev.worker);
	json_count("worker_cpu_ns", vhost_worker_cpu_ns(&client->dev));
	json_close();
}

static void handle_request(struct client *client, const char *request)
{
	if (!strcmp(request, "attach"))
		vhost_attach(&client->dev);
	else if (!strcmp(request, "detach"))
		vhost_detach(&client->dev);
	else if (!strcmp(request, "pause"))
		__atomic_store_n(&client->paused, true, __ATOMIC_RELAXED);
	else if (!strcmp(request, "resume"))
		__atomic_store_n(&client->paused, false, __ATOMIC_RELAXED);
	else if (!strcmp(request, "hide") || !strcmp(request, "show"))
		vhost_hide(&client->dev.rings[VHOST_RX],
			   !strcmp(request, "hide"));
	else if (strcmp(request, "count"))
		die(EXIT_USAGE,
		    "'%s' is none of count, attach, detach, pause, resume, hide, show",
		    request);
	print_counts(client);
}

/* Handles requests until the program is to stop. */
static void handle_requests(struct client *client)
{
	struct pollfd requests = { .fd = STDIN_FILENO, .events = POLLIN };
	char text[256], *end;
	size_t filled = 0;
	ssize_t more;

	while (!stop_asked()) {
		if (poll(&requests, 1, STEP_MS) <= 0)
			continue;
		more = read(requests.fd, text + filled, sizeof(text) - filled);
		/* The end of stdin is no reason to stop. */
		if (more <= 0) {
			requests.fd = -1;
			continue;
		}
		filled += more;
		while ((end = memchr(text, '\n', filled))) {
			*end++ = '\0';
			handle_request(client, text);
			filled -= end - text;
			memmove(text, end, filled);
		}
		if (filled == sizeof(text))
			die(EXIT_USAGE, "a request is too long");
	}
}

/* With a @priority other than 0 the thread (0: the caller) is SCHED_FIFO. */
static void place(pid_t thread, const char *name, const char *cpu, int priority)
{
	struct sched_param fifo = { .sched_priority = priority };

	bind_to_cpu(thread, name, cpu);
	if (priority && sched_setscheduler(thread, SCHED_FIFO, &fifo))
		die(EXIT_FAILED, "cannot become SCHED_FIFO: %s",
		    strerror(errno));
}

int main(int argc, char **argv)
{
	static struct client client;
	const char *worker_cpu = ANY_CPU;
	const char *cpu = ANY_CPU;
	bool worker_fifo = false;
	bool fifo = false;
	__u64 slots = 256;
	__u64 fd = 0;
	const struct option_spec specs[] = {
		{ .name = "fd", .number = &fd, .min = 1, .max = 1 << 20 },
		{ .name = "far-fd", .number = &client.far, .max = 1 << 20 },
		{ .name = "slots", .number = &slots, .min = 2, .max = 32768 },
		{ .name = "work-ns", .number = &client.work_ns,
		  .max = NSEC_PER_SEC },
		{ .name = "work-per-kb-ns", .number = &client.work_per_kb_ns,
		  .max = NSEC_PER_SEC },
		{ .name = "rest-ns", .number = &client.rest_ns,
		  .max = NSEC_PER_SEC },
		{ .name = "busyloop-us", .number = &client.busyloop,
		  .max = 1000000 },
		{ .name = "cpu", .text = &cpu },
		{ .name = "fifo", .flag = &fifo },
		{ .name = "worker-cpu", .text = &worker_cpu },
		{ .name = "worker-fifo", .flag = &worker_fifo },
		{}
	};
	pthread_t threads[2];
	unsigned int count = 0;

	parse_options(argc, argv, specs);
	if (slots & (slots - 1))
		die(EXIT_USAGE, "--slots must be a power of two, not %llu",
		    slots);
	if (!fd)
		die(EXIT_USAGE, "--fd is required");
	catch_stop_signals();
	vhost_open(&client.dev, fd, slots, client.far);
	if (client.busyloop)
		vhost_busyloop(&client.dev, client.busyloop);
	if (client.far)
		far_open(&client.dev, client.far);
	place(0, "cpu", cpu, fifo ? CLIENT_PRIORITY : 0);
	if (client.dev.worker)
		place(client.dev.worker, "worker-cpu", worker_cpu,
		      worker_fifo ? WORKER_PRIORITY : 0);
	else if (worker_fifo || strcmp(worker_cpu, ANY_CPU))
		die(EXIT_UNSUPPORTED, "cannot find vhost's thread");

	vhost_give(&client.dev.rings[VHOST_RX], slots);
	vhost_attach(&client.dev);
	json_ready();
	start_thread(&threads[count++], receive, &client);
	if (client.far)
		start_thread(&threads[count++], transmit, &client);
	place(0, "cpu", cpu, fifo ? REQUEST_PRIORITY : 0);
	handle_requests(&client);
	join_threads(threads, count);
	vhost_detach(&client.dev);
	/* Packets that it has delivered meanwhile. */
	if (!client.far)
		take_packets(&client, vhost_used(&client.dev.rings[VHOST_RX]));
	print_counts(&client);
	return EXIT_FINE;
}
