/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * /dev/nodrop-kmeter: compares the costs of two variants of a transmit path.
 */
#ifndef NODROP_KMETER_H
#define NODROP_KMETER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KMETER_SYMBOL	64
#define KMETER_FRAME	2048

/**
 * struct kmeter_sample - counts of one sender in one slot
 * @slot:    number of the slot; kmeter_variant() gives its variant
 * @cpu:     of the sender
 * @packets: sent in batches that began and ended in the slot
 * @refused: of these, packets not accepted by the device or its qdisc
 * @cycles:  of the CPU's cycle counter
 */
struct kmeter_sample {
	__u32 slot;
	__u32 cpu;
	__u32 packets;
	__u32 refused;
	__u64 cycles;
};

/* A B B A: drift affects both alike. */
static inline __u32 kmeter_variant(__u32 slot)
{
	return ((slot >> 1) ^ slot) & 1;
}

/**
 * struct kmeter_run - one measurement
 * @symbol:   name of the kernel's exported int that selects the variant; empty:
 *	      none, and both variants are the same
 * @ifindex:  the device, in the caller's network namespace
 * @cpus:     mask of the senders' CPUs, of the first 32
 * @batch:    packets between two reads of the clock
 * @slot_us:  length of a slot
 * @slots:    number of slots
 * @length:   bytes of the frame
 * @protocol: ethertype of the frame, in host byte order
 * @network:  offset of its network header
 * @room:     capacity of @samples; returns the number of samples
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
