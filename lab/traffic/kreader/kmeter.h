/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * /dev/nodrop-kmeter: which of two variants of a transmit path costs less.
 */
#ifndef NODROP_KMETER_H
#define NODROP_KMETER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KMETER_SYMBOL	64
#define KMETER_FRAME	2048

/**
 * struct kmeter_sample - what one sender did in one slot
 * @slot:    number of the slot; its variant is that of kmeter_variant()
 * @cpu:     of the sender
 * @packets: that were sent in batches that began and ended in the slot
 * @refused: of these, how many the device or its qdisc did not take
 * @cycles:  of the CPU's cycle counter that they took
 */
struct kmeter_sample {
	__u32 slot;
	__u32 cpu;
	__u32 packets;
	__u32 refused;
	__u64 cycles;
};

/* A B B A: what drifts, drifts for both. */
static inline __u32 kmeter_variant(__u32 slot)
{
	return ((slot >> 1) ^ slot) & 1;
}

/**
 * struct kmeter_run - one measurement
 * @symbol:   name of an exported int of the kernel's that chooses the variant;
 *	      empty: there is none, and both variants are the same
 * @ifindex:  the device, in the caller's network namespace
 * @cpus:     a sender on each CPU of this mask, of the first 32
 * @batch:    packets between two looks at the clock
 * @slot_us:  how long a variant lasts
 * @slots:    how many slots there are
 * @length:   bytes of the frame
 * @protocol: ethertype of what is in the frame, in the host's byte order
 * @network:  where its network header begins
 * @room:     entries of @samples; returns how many were filled
 * @frame:    address of the frame
 * @samples:  address of an array of struct kmeter_sample
 */
struct kmeter_run {
	char symbol[KMETER_SYMBOL];
	__u32 ifindex;
	__u32 cpus;
	__u32 batch;
	__u32 slot_us;
	__u32 slots;
	__u32 length;
	__u32 protocol;
	__u32 network;
	__u32 room;
	__u32 padding;
	__u64 frame;
	__u64 samples;
};

#define KMETER_IOC_RUN	_IOWR('K', 0xe0, struct kmeter_run)

#endif
