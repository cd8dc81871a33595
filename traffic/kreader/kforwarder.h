/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Interface of /dev/nodrop-kforwarder, the in-kernel null VPN between two TUN
 * or TAP devices. One open file is one forwarder.
 */
#ifndef NODROP_KFORWARDER_H
#define NODROP_KFORWARDER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Take packets from the first device only; another forwarder does the rest. */
#define KFORWARDER_ONE_WAY	0x1

/**
 * struct kforwarder_start - between what, where, and how slowly
 * @tun_fds: two open and attached /dev/net/tun files of the caller, with equal
 *           headers (IFF_VNET_HDR, IFF_NO_PI)
 * @cpu:     CPU the forwarder is bound to, or -1 for any
 * @work_ns: time spent on each packet, busy, between reading and writing it
 * @flags:   KFORWARDER_ONE_WAY or 0
 */
struct kforwarder_start {
	__s32 tun_fds[2];
	__s32 cpu;
	__u32 work_ns;
	__u32 flags;
};

/**
 * struct kforwarder_way - what went one way
 * @packets:     packets read
 * @bytes:       their bytes, as tun reports them (with its headers)
 * @send_errors: of the packets, those that the other device did not take
 */
struct kforwarder_way {
	__u64 packets;
	__u64 bytes;
	__u64 send_errors;
};

/**
 * struct kforwarder_counts - what a forwarder did since it was started
 * @ways:                 from the first device to the second, and back
 * @now_ns:               CLOCK_MONOTONIC when the counts were taken
 * @idle_ns:              time asleep because there was nothing to forward; the
 *                        rest is busy. The scheduler's own count of CPU time
 *                        is as coarse as a tick under User-Mode Linux.
 * @voluntary_switches:   times the forwarder went to sleep
 * @involuntary_switches: times the forwarder was made to yield its CPU
 * @error:                0, or the negative errno that ended the forwarder
 * @reserved:             0
 */
struct kforwarder_counts {
	struct kforwarder_way ways[2];
	__u64 now_ns;
	__u64 idle_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__s32 error;
	__u32 reserved;
};

#define KFORWARDER_IOC_START	_IOW('K', 0xd8, struct kforwarder_start)
#define KFORWARDER_IOC_READ	_IOR('K', 0xd9, struct kforwarder_counts)
#define KFORWARDER_IOC_STOP	_IOR('K', 0xda, struct kforwarder_counts)

#endif
