/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Interface of /dev/nodrop-kreader, the in-kernel reader of TUN and TAP
 * devices. One open file is one reader.
 */
#ifndef NODROP_KREADER_H
#define NODROP_KREADER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Run the reader as SCHED_FIFO at the lowest of its priorities: it takes its
 * CPU from a sender that shares it as soon as there is a packet.
 */
#define KREADER_FIFO	0x1

/**
 * struct kreader_start - what to read, where, and how slowly
 * @tun_fd:   an open and attached /dev/net/tun file of the caller
 * @cpu:      CPU the reader is bound to, or -1 for any
 * @work_ns:  time spent on each packet, busy, after it was read
 * @flags:    KREADER_FIFO or 0
 */
struct kreader_start {
	__s32 tun_fd;
	__s32 cpu;
	__u32 work_ns;
	__u32 flags;
};

/**
 * struct kreader_counts - what a reader did since it was started
 * @packets:              packets read
 * @bytes:                bytes read, as tun reports them (with its headers)
 * @now_ns:               CLOCK_MONOTONIC when the counts were taken
 * @started_ns:           CLOCK_MONOTONIC when the reader began
 * @voluntary_switches:   times the reader went to sleep
 * @involuntary_switches: times the reader was made to yield its CPU
 * @error:                0, or the negative errno that ended the reader
 * @running:              1 until the reader was stopped or met an error
 * @others:               packets that are no IPv4, of an Ethernet device
 */
struct kreader_counts {
	__u64 packets;
	__u64 bytes;
	__u64 now_ns;
	__u64 started_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__s32 error;
	__u32 running;
	__u64 others;
};

#define KREADER_IOC_START	_IOW('K', 0xd0, struct kreader_start)
#define KREADER_IOC_READ	_IOR('K', 0xd1, struct kreader_counts)
#define KREADER_IOC_STOP	_IOR('K', 0xd2, struct kreader_counts)

#endif
