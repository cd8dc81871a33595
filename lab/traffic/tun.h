/* SPDX-License-Identifier: GPL-2.0-only */
/* Opening TUN and TAP queues, and the mark that our packets carry. */
#ifndef TRAFFIC_TUN_H
#define TRAFFIC_TUN_H

#include <linux/if_tun.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

/* Since Linux 7.3; older headers lack it. */
#ifndef IFF_BACKPRESSURE
#define IFF_BACKPRESSURE 0x0080
#endif

/* The largest IP packet, an Ethernet header with two VLAN tags, a vnet_hdr. */
#define TUN_PACKET_MAX	(65536 + 64)

#define PROBE_MAGIC	0x6e6f64726f703031ULL

/**
 * struct probe_mark - the first bytes of the UDP payload of udp_sender
 * @magic:   PROBE_MAGIC
 * @sender:  which sender thread
 * @sequence: counts from 0 within a sender
 * @sent_ns: CLOCK_MONOTONIC just before the packet was given to the socket
 */
struct probe_mark {
	__u64 magic;
	__u64 sender;
	__u64 sequence;
	__u64 sent_ns;
};

/*
 * Reads "backpressure,vnet_hdr" into IFF_ flags; dies on an unknown word.
 * NULL and "" mean none.
 */
unsigned int parse_tun_flags(const char *words);

/*
 * Opens one queue of the device @name (created if need be) with the IFF_ flags
 * given, IFF_NO_PI added. Dies with EXIT_UNSUPPORTED if the kernel lacks one.
 */
int open_tun(const char *name, unsigned int flags);

/* The mark inside a packet as read from a tun file, or false. */
bool find_mark(const void *packet, size_t length, unsigned int flags,
	       struct probe_mark *mark);

#endif
