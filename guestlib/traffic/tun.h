/* SPDX-License-Identifier: GPL-2.0-only */
/* Constants of TUN and TAP, and the mark in udp_sender's packets. */
#ifndef TRAFFIC_TUN_H
#define TRAFFIC_TUN_H

#include <linux/if_tun.h>
#include <linux/types.h>

/* Since Linux 7.3; older headers lack it. */
#ifndef IFF_BACKPRESSURE
#define IFF_BACKPRESSURE 0x0080
#endif

/* The largest IP packet, an Ethernet header with two VLAN tags, a vnet_hdr. */
#define TUN_PACKET_MAX	(65536 + 64)

#define PROBE_MAGIC	0x6e6f64726f703031ULL

/**
 * struct probe_mark - the first bytes of udp_sender's UDP payload
 * @magic:   PROBE_MAGIC
 * @sender:  number of the sender's thread
 * @sequence: of the sender, from 0
 * @sent_ns: CLOCK_MONOTONIC just before the packet was passed to the socket
 */
struct probe_mark {
	__u64 magic;
	__u64 sender;
	__u64 sequence;
	__u64 sent_ns;
};

#endif
