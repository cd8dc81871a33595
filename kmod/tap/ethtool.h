/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included after tap.c: the counters of each queue ("ethtool -S DEV"). The
 * devices and their operations are macvlan's and ipvlan's. Opening a device
 * gives it a copy of these operations with the counters added.
 */
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>

/* For each kind of device. */
static struct nodrop_tap_ops {
	const char *kind;
	struct ethtool_ops ours;
} nodrop_tap_ops[] = {
	{ .kind = "macvtap" },
	{ .kind = "ipvtap" },
};

static int nodrop_tap_sset_count(struct net_device *dev, int set)
{
	struct tap_dev *tap = rtnl_dereference(dev->rx_handler_data);

	if (set != ETH_SS_STATS || !tap || !tap->numqueues)
		return -EOPNOTSUPP;
	return tap->numqueues * NODROP_HOLD_STATS;
}

static void nodrop_tap_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct tap_dev *tap = rtnl_dereference(dev->rx_handler_data);
	int i, stat;

	if (set != ETH_SS_STATS || !tap)
		return;

	for (i = 0; i < tap->numqueues; i++) {
		for (stat = 0; stat < NODROP_HOLD_STATS; stat++) {
			snprintf(data, ETH_GSTRING_LEN, "rx%d_%s", i,
				 nodrop_hold_stat_names[stat]);
			data += ETH_GSTRING_LEN;
		}
	}
}

static void nodrop_tap_stats(struct net_device *dev,
			     struct ethtool_stats *stats, u64 *data)
{
	struct tap_dev *tap = rtnl_dereference(dev->rx_handler_data);
	struct tap_queue *q;

	if (!tap)
		return;
	list_for_each_entry(q, &tap->queue_list, next) {
		nodrop_hold_read(nodrop_tap_hold(q), data);
		data += NODROP_HOLD_STATS;
	}
}

/*
 * The kind's module may have been reloaded since, and its functions be
 * elsewhere. Then no device has the old copy; else this one is the same.
 *
 * Context: RTNL held.
 */
static void nodrop_tap_add_ops(struct nodrop_tap_ops *ops,
			       struct net_device *dev)
{
	struct ethtool_ops ours = *dev->ethtool_ops;

	if (dev->ethtool_ops == &ops->ours)
		return;
	ours.get_sset_count = nodrop_tap_sset_count;
	ours.get_strings = nodrop_tap_strings;
	ours.get_ethtool_stats = nodrop_tap_stats;
	ops->ours = ours;
	dev->ethtool_ops = &ops->ours;
}

/* Make the counters of @q's device visible. */
static void nodrop_tap_show(struct tap_queue *q)
{
	struct tap_dev *tap;
	int i;

	rtnl_lock();
	tap = rtnl_dereference(q->tap);
	for (i = 0; tap && i < ARRAY_SIZE(nodrop_tap_ops); i++) {
		if (tap->dev->rtnl_link_ops &&
		    !strcmp(tap->dev->rtnl_link_ops->kind,
			    nodrop_tap_ops[i].kind))
			nodrop_tap_add_ops(&nodrop_tap_ops[i], tap->dev);
	}
	rtnl_unlock();
}
