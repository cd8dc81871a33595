/* SPDX-License-Identifier: GPL-2.0-only */
/* The driver's side of vhost-net, without a guest: rings, events, worker. */
#ifndef TRAFFIC_VHOST_H
#define TRAFFIC_VHOST_H

#include <linux/virtio_ring.h>
#include <stddef.h>
#include <sys/types.h>

#include "common.h"

enum { VHOST_RX, VHOST_TX, VHOST_RINGS };

/**
 * struct vhost_ring - one ring as seen by the driver
 * @vring: descriptor i always refers to buffer i
 * @buffers: one of @buffer_bytes for each slot
 * @buffer_bytes: of the transmit ring, enough for a large packet
 * @seen: number of used entries taken, modulo 2^16
 * @kick: notifies vhost of available buffers
 * @call: notifies this program of used buffers
 * @error: signals errors that vhost found in the ring
 * @errors: their number so far, except those still in @error
 * @hidden: whether vhost cannot write to the buffers
 */
struct vhost_ring {
	struct vring vring;
	char *buffers;
	size_t buffer_bytes;
	__u16 seen;
	int kick;
	int call;
	int error;
	__u64 errors;
	bool hidden;
};

/**
 * struct vhost_device - an open /dev/vhost-net
 * @header: bytes before each packet
 * @worker: vhost's thread that moves the packets; 0 if it was not found
 */
struct vhost_device {
	int fd;
	int tap;
	size_t header;
	pid_t worker;
	struct vhost_ring rings[VHOST_RINGS];
};

/**
 * struct vhost_counts - each is written by one thread and read by all
 * @packets: received
 * @others: non-IPv4 packets among them
 * @bytes: of received packets, without headers
 * @segments: received, counted like a qdisc: as segments of large packets
 * @refused: received packets that the far TAP did not accept
 * @sent: packets that vhost has taken from the transmit ring
 */
struct vhost_counts {
	__u64 packets;
	__u64 others;
	__u64 bytes;
	__u64 segments;
	__u64 refused;
	__u64 sent;
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
 * Opens /dev/vhost-net for the TAP @tap, with rings of @slots (a power of two),
 * detached. @large: the TAP writes a header before each packet, packets are not
 * segmented, and a received packet may use several buffers; otherwise vhost
 * writes the header, all zero. Dies on errors.
 */
void vhost_open(struct vhost_device *dev, int tap, unsigned int slots,
		bool large);

/* Sets how long vhost polls before it sleeps; dies on errors. */
void vhost_busyloop(struct vhost_device *dev, unsigned int us);

/* Attaches vhost to the TAP with both rings, or detaches it; dies on errors. */
void vhost_attach(struct vhost_device *dev);
void vhost_detach(struct vhost_device *dev);

/* Returns the buffer of descriptor @id. */
char *vhost_buffer(const struct vhost_ring *ring, __u32 id);

/*
 * Returns the number of used entries, with a read barrier for their data. If it
 * exceeds the ring's size, the oldest have been overwritten.
 */
__u16 vhost_used(const struct vhost_ring *ring);

/* Returns the used entry @ahead places after the next one. */
const struct vring_used_elem *vhost_used_entry(const struct vhost_ring *ring,
					       __u16 ahead);

/*
 * Consumes the next @count used entries. Makes @count descriptors available
 * that are already in the available ring, from its index on.
 */
void vhost_take(struct vhost_ring *ring, __u16 count);
void vhost_give(struct vhost_ring *ring, __u16 count);

/* Kicks vhost, whether or not it requested kicks. */
void vhost_kick(const struct vhost_ring *ring);

/*
 * Protects the buffers of a ring from vhost, or unprotects and kicks: vhost
 * stops at the first buffer to which it cannot write.
 */
void vhost_hide(struct vhost_ring *ring, bool hide);

/*
 * Returns the number of errors in the ring so far. With hidden buffers, each
 * has dropped a packet.
 */
__u64 vhost_errors(struct vhost_ring *ring);

/*
 * Sleeps until there is a used entry, an error or a signal. At an error vhost
 * stops: kicks it, unless the buffers are hidden.
 */
void vhost_wait(struct vhost_ring *ring);

/* CPU time of vhost's thread, ns; 0 if unavailable (before Linux 6.4). */
__u64 vhost_worker_cpu_ns(const struct vhost_device *dev);

#endif
