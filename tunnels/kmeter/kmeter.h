/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef KMETER_H
#define KMETER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The interface: /dev/nodrop-kmeter (tunnels/meter.py). */
#define KMETER_FRAME	2048

/**
 * struct kmeter_sample - counts of one sender in one slot
 * @slot:    number of the slot
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

/**
 * struct kmeter_run - one measurement
 * @ifindex:  the device, in the caller's network namespace
 * @cpus:     mask of the senders' CPUs, of the first 32
 * @batch:    packets between two reads of the clock
 * @slot_us:  length of a slot
 * @slots:    number of slots
 * @length:   bytes of the frame
 * @protocol: ethertype of the frame, in host byte order
 * @network:  offset of its network header
 * @room:     capacity of @samples; returns the number of samples
 * @mark:     of the packets (skb->mark)
 * @other:    dst_fault (tunnels/patches/faults) in slots 1 and 2 of each four,
 *            and 0 in slots 0 and 3; 0: do not change it
 * @unused:   0
 * @frame:    address of the frame
 * @samples:  address of an array of struct kmeter_sample
 */
struct kmeter_run {
	__u32 ifindex;
	__u32 cpus;
	__u32 batch;
	__u32 slot_us;
	__u32 slots;
	__u32 length;
	__u32 protocol;
	__u32 network;
	__u32 room;
	__u32 mark;
	__u32 other;
	__u32 unused;
	__u64 frame;
	__u64 samples;
};

#define KMETER_IOC_RUN	_IOWR('K', 0xe0, struct kmeter_run)

/* Of tunnels/patches/faults; absent in other kernels. */
extern int dst_fault;

#endif /* KMETER_H */
