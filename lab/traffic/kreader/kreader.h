/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Interface of /dev/nodrop-kreader, the in-kernel reader of a TUN or TAP
 * device, or null VPN between two. One open file is one reader.
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
/* Take packets from the first device only; another reader does the rest. */
#define KREADER_ONE_WAY	0x2

/**
 * struct kreader_start - what to read, where, and how slowly
 * @tun_fds: open and attached /dev/net/tun files of the caller; the second one
 *           is -1 when packets are thrown away, else with equal headers
 *           (IFF_VNET_HDR, IFF_NO_PI)
 * @cpu:     CPU the reader is bound to, or -1 for any
 * @work_ns: time spent on each packet, busy, after it was read
 * @flags:   KREADER_FIFO (of one device), KREADER_ONE_WAY (of two)
 */
struct kreader_start {
	__s32 tun_fds[2];
	__s32 cpu;
	__u32 work_ns;
	__u32 flags;
};

/**
 * struct kreader_way - what went one way
 * @packets:     packets read
 * @bytes:       their bytes, as tun reports them (with its headers)
 * @send_errors: of the packets, those that the other device did not take
 */
struct kreader_way {
	__u64 packets;
	__u64 bytes;
	__u64 send_errors;
};

/**
 * struct kreader_counts - what a reader did since it was started
 * @ways:                 from the first device, and back
 * @now_ns:               CLOCK_MONOTONIC when the counts were taken
 * @idle_ns:              between two devices: time asleep because there was
 *                        nothing to forward; the rest is busy. The scheduler's
 *                        own count of CPU time is as coarse as a tick under
 *                        User-Mode Linux.
 * @voluntary_switches:   times the reader went to sleep
 * @involuntary_switches: times the reader was made to yield its CPU
 * @others:               of one Ethernet device: packets that are no IPv4
 * @error:                0, or the negative errno that ended the reader
 * @reserved:             0
 */
struct kreader_counts {
	struct kreader_way ways[2];
	__u64 now_ns;
	__u64 idle_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__u64 others;
	__s32 error;
	__u32 reserved;
};

#define KREADER_IOC_START	_IOW('K', 0xd0, struct kreader_start)
#define KREADER_IOC_READ	_IOR('K', 0xd1, struct kreader_counts)
#define KREADER_IOC_STOP	_IOR('K', 0xd2, struct kreader_counts)

#endif
