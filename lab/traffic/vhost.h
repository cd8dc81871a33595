/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest's side of vhost-net, without a guest: rings, events, the worker. */
#ifndef TRAFFIC_VHOST_H
#define TRAFFIC_VHOST_H

#include <linux/types.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { VHOST_RX, VHOST_TX, VHOST_RINGS };

/**
 * struct vhost_ring - one ring as its guest sees it
 * @vring: descriptor i always stands for buffer i
 * @buffers: one of @buffer_bytes for each slot
 * @buffer_bytes: with large packets enough for one, if they are sent
 * @seen: how many used entries were taken, modulo 2^16
 * @kick: tells vhost that buffers are there
 * @call: vhost tells us that buffers were used
 * @error: vhost counts there what it found wrong with the ring
 */
struct vhost_ring {
	struct vring vring;
	char *buffers;
	size_t buffer_bytes;
	__u16 seen;
	int kick;
	int call;
	int error;
};

/**
 * struct vhost_device - an open /dev/vhost-net
 * @header: bytes before each packet
 * @worker: vhost's thread that moves the packets; 0 when it was not found
 */
struct vhost_device {
	int fd;
	int tap;
	size_t header;
	pid_t worker;
	struct vhost_ring rings[VHOST_RINGS];
};

/**
 * struct vhost_counts - each written by one thread and read by all
 * @packets: received
 * @others: of them, those that are no IPv4
 * @bytes: of them, without headers
 * @segments: of them, as a qdisc counts: what a large packet is to be cut into
 * @refused: of them, those that the far TAP did not take
 * @sent: packets that vhost has taken from the transmit ring
 * @errors: what vhost found wrong with the receive ring: each cost a packet
 */
struct vhost_counts {
	__u64 packets;
	__u64 others;
	__u64 bytes;
	__u64 segments;
	__u64 refused;
	__u64 sent;
	__u64 errors;
};

static inline void add_count(__u64 *counter, __u64 value)
{
	__atomic_store_n(counter, *counter + value, __ATOMIC_RELAXED);
}

static inline __u64 get_count(const __u64 *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/*
 * Opens /dev/vhost-net for the TAP @tap, with rings of @slots (a power of two)
 * that nobody serves yet. @large: the TAP makes the header in front of each
 * packet, and large packets pass whole, those that are received in as many
 * buffers as they need; else vhost makes it, all zero. Dies on errors.
 */
void vhost_open(struct vhost_device *dev, int tap, unsigned int slots,
		bool large);

/* Lets vhost poll for so long before it sleeps; dies on errors. */
void vhost_busyloop(struct vhost_device *dev, unsigned int us);

/* Lets vhost serve both rings, or stops it; dies on errors. */
void vhost_attach(struct vhost_device *dev);
void vhost_detach(struct vhost_device *dev);

/* The buffer of the descriptor @id. */
char *vhost_buffer(const struct vhost_ring *ring, __u32 id);

/* How many used entries wait; what vhost wrote into them can be read. */
__u16 vhost_used(const struct vhost_ring *ring);

/* The used entry @ahead places after the next one. */
const struct vring_used_elem *vhost_used_entry(const struct vhost_ring *ring,
					       __u16 ahead);

/*
 * Takes the next @count used entries off. Gives @count descriptors, whose
 * numbers are in the available ring from its index on, to vhost.
 */
void vhost_take(struct vhost_ring *ring, __u16 count);
void vhost_give(struct vhost_ring *ring, __u16 count);

/* Tells vhost to look at the ring, even if it did not ask for that. */
void vhost_kick(const struct vhost_ring *ring);

/*
 * Makes the buffers of a ring memory that is not there, or memory again. vhost
 * stops at the first that it cannot write; the second kicks it.
 */
void vhost_hide(const struct vhost_ring *ring, bool hide);

/* What vhost found wrong with the ring since the last time this was asked. */
__u64 vhost_errors(const struct vhost_ring *ring);

/* Sleeps until a used entry is there or a signal comes. */
void vhost_wait(const struct vhost_ring *ring);

/* CPU time of vhost's thread, ns; 0 when it cannot be had: before Linux 6.4. */
__u64 vhost_worker_cpu_ns(const struct vhost_device *dev);

#endif
