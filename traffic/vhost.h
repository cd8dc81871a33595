/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest's side of vhost-net, without a guest: rings, events, the worker. */
#ifndef TRAFFIC_VHOST_H
#define TRAFFIC_VHOST_H

#include <linux/types.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define VHOST_BUFFER_BYTES	2048

enum { VHOST_RX, VHOST_TX, VHOST_RINGS };

/**
 * struct vhost_ring - one ring as its guest sees it
 * @vring: descriptor i always stands for buffer i
 * @buffers: one of VHOST_BUFFER_BYTES for each slot
 * @seen: how many used entries were taken, modulo 2^16
 * @kick: tells vhost that buffers are there
 * @call: vhost tells us that buffers were used
 */
struct vhost_ring {
	struct vring vring;
	char *buffers;
	__u16 seen;
	int kick;
	int call;
};

/**
 * struct vhost_device - an open /dev/vhost-net
 * @header: bytes before each packet: 10, or 12 by VIRTIO_F_VERSION_1
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
 * struct vhost_switches - how often a thread left its CPU
 * @voluntary: to sleep
 * @involuntary: because it had to
 */
struct vhost_switches {
	__u64 voluntary;
	__u64 involuntary;
};

/*
 * Opens /dev/vhost-net for the TAP @tap, with rings of @slots (a power of two)
 * that nobody serves yet. @legacy: without VIRTIO_F_VERSION_1. Dies on errors.
 */
void vhost_open(struct vhost_device *dev, int tap, unsigned int slots,
		bool legacy);

/* Lets vhost serve both rings, or stops it; dies on errors. */
void vhost_attach(struct vhost_device *dev);
void vhost_detach(struct vhost_device *dev);

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

/* Sleeps until a used entry is there or a signal comes. */
void vhost_wait(const struct vhost_ring *ring);

/* False when they cannot be had. */
bool vhost_worker_switches(const struct vhost_device *dev,
			   struct vhost_switches *switches);

#endif
