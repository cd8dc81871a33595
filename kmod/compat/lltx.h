/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lockless transmit: dev->lltx where there is no feature flag any more.
 */
#ifndef NODROP_COMPAT_LLTX_H
#define NODROP_COMPAT_LLTX_H

#include <linux/netdevice.h>

static inline void nodrop_clear_lltx(struct net_device *dev)
{
#ifdef NETIF_F_LLTX
	dev->features &= ~NETIF_F_LLTX;
#else
	dev->lltx = false;
#endif
}

#endif
