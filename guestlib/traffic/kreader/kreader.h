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
 * Run the reader as SCHED_FIFO at the lowest priority: it preempts a sender on
 * its CPU as soon as there is a packet.
 */
#define KREADER_FIFO	0x1
/* Take packets from the first device only; another reader serves the second. */
#define KREADER_ONE_WAY	0x2

/**
 * struct kreader_start - what to read, where, and how slowly
 * @tun_fds: the caller's open and attached /dev/net/tun files; the second is -1
 *           to discard packets, otherwise it must have the same headers
 *           (IFF_VNET_HDR, IFF_NO_PI)
 * @cpu:     the reader's CPU, or -1 for any
 * @work_ns: busy time for each packet after it was read
 * @work_per_kb_ns: more of it for each 1024 bytes of the packet
 * @flags:   KREADER_FIFO (of one device), KREADER_ONE_WAY (of two)
 */
struct kreader_start {
	__s32 tun_fds[2];
	__s32 cpu;
	__u32 work_ns;
	__u32 work_per_kb_ns;
	__u32 flags;
};

/**
 * struct kreader_direction - the traffic in one direction
 * @packets:     packets read
 * @bytes:       their bytes as reported by tun, with its headers
 * @send_errors: packets that the other device did not accept
 */
struct kreader_direction {
	__u64 packets;
	__u64 bytes;
	__u64 send_errors;
};

/**
 * struct kreader_counts - a reader's counts since its start
 * @dir:                  from the first device, and from the second
 * @now_ns:               CLOCK_MONOTONIC of the counts
 * @idle_ns:              between two devices: time asleep because neither had a
 *                        packet; otherwise the reader was busy. Under
 *                        User-Mode Linux the scheduler's CPU time is only as
 *                        fine as a tick.
 * @voluntary_switches:   times the reader went to sleep
 * @involuntary_switches: times the reader was preempted
 * @others:               non-IPv4 packets of a single Ethernet device
 * @error:                0, or the negative errno that ended the reader
 * @reserved:             0
 */
struct kreader_counts {
	struct kreader_direction dir[2];
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
