/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What lies in a tun ring, for all who read from one.
 */
#ifndef NODROP_TUN_PACKET_H
#define NODROP_TUN_PACKET_H

#include <linux/if_tun.h>
#include <linux/skbuff.h>

/* XDP frames come past the txq and are not charged to it. */
static inline unsigned int nodrop_tun_bytes(const void *packet)
{
	if (tun_is_xdp_frame((void *)packet))
		return 0;
	return ((const struct sk_buff *)packet)->len;
}

#endif
