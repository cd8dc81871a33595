// SPDX-License-Identifier: GPL-2.0-only
/*
 * The counters of each queue ("ethtool -S DEV"), and the switch of a device
 * ("ethtool --set-priv-flags DEV nodrop on|off"). wrap.c and live/tun.c include
 * it at their end, as the structures of the kernel's tun.c are private to it.
 */
#include "ethtool.h"

static const char nodrop_tun_flag_name[ETH_GSTRING_LEN] = "nodrop";

static int nodrop_tun_sset_count(struct net_device *dev, int set)
{
	struct tun_struct *tun = netdev_priv(dev);

	switch (set) {
	case ETH_SS_STATS:
		/* The ethtool core warns about an empty set. */
		if (!tun->numqueues)
			return -EOPNOTSUPP;
		return tun->numqueues * NODROP_STATS;
	case ETH_SS_PRIV_FLAGS:
		return 1;
	default:
		return -EOPNOTSUPP;
	}
}

static void nodrop_tun_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct tun_struct *tun = netdev_priv(dev);
	int i, stat;

	if (set == ETH_SS_PRIV_FLAGS)
		memcpy(data, nodrop_tun_flag_name, ETH_GSTRING_LEN);
	if (set != ETH_SS_STATS)
		return;

	for (i = 0; i < tun->numqueues; i++) {
		for (stat = 0; stat < NODROP_STATS; stat++) {
			snprintf(data, ETH_GSTRING_LEN, "tx%d_%s", i,
				 nodrop_stat_names[stat]);
			data += ETH_GSTRING_LEN;
		}
	}
}

static void nodrop_tun_stats(struct net_device *dev,
			     struct ethtool_stats *stats, u64 *data)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct nodrop_queue *q;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		q = nodrop_tun_queue(rtnl_dereference(tun->tfiles[i]));
		if (q)
			nodrop_queue_stats(q, data);
		data += NODROP_STATS;
	}
}

static u32 nodrop_tun_get_flags(struct net_device *dev)
{
	return READ_ONCE(*nodrop_tun_on(netdev_priv(dev)));
}

/* No txq stays stopped once this is off. */
static int nodrop_tun_set_flags(struct net_device *dev, u32 flags)
{
	struct tun_struct *tun = netdev_priv(dev);
	unsigned int now = tun->flags & ~(NODROP_TUN_ON | NODROP_TUN_OFF);

	WRITE_ONCE(tun->flags,
		   now | (flags & 1 ? NODROP_TUN_ON : NODROP_TUN_OFF));
	nodrop_tun_bind_all(dev);
	return 0;
}

static void nodrop_tun_ethtool_add(struct ethtool_ops *ops)
{
	ops->get_sset_count = nodrop_tun_sset_count;
	ops->get_strings = nodrop_tun_strings;
	ops->get_ethtool_stats = nodrop_tun_stats;
	ops->get_priv_flags = nodrop_tun_get_flags;
	ops->set_priv_flags = nodrop_tun_set_flags;
}
