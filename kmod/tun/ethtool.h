/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ethtool.c, and what the files that include it define for it.
 */
#ifndef NODROP_TUN_ETHTOOL_H
#define NODROP_TUN_ETHTOOL_H

#include <linux/ethtool.h>
#include <linux/netdevice.h>

#include "../flow/nodrop_flow.h"

/* Bits of tun->flags that tun.c does not use. Set by the administrator. */
#define NODROP_TUN_ON		0x01000000
#define NODROP_TUN_OFF		0x02000000

struct tun_file;
struct tun_struct;

/* The queue of a file; NULL if it has none. */
static struct nodrop_queue *nodrop_tun_queue(struct tun_file *tfile);

/* Is flow control wanted? For nodrop_queue_bind(). */
static const bool *nodrop_tun_on(const struct tun_struct *tun);

/* Bind each queue to its txq, with the flags that the device has now. RTNL. */
static void nodrop_tun_bind_all(struct net_device *dev);

/* Add nodrop's operations to tun.c's own. */
static void nodrop_tun_ethtool_add(struct ethtool_ops *ops);

#endif
