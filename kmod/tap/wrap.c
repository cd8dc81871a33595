// SPDX-License-Identifier: GPL-2.0-only
/*
 * The library of macvtap and ipvtap: the kernel's own tap.c, whose accesses to
 * the ring go to hold.c. No policy here.
 *
 * Each tap_queue has its nodrop_hold behind it. The ring stays an ordinary one:
 * its consumers, vhost_net among them, need not be aware.
 */
#include "hooks.h"
#include "stock/tap.c"
#include "unhook.h"

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>

#include "../flow/owner.h"
#include "hold.h"

MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);

#define NODROP_TAP_OFFSET ALIGN(sizeof(struct tap_queue), sizeof(void *))

static struct nodrop_hold *nodrop_tap_hold(struct tap_queue *q)
{
	return (void *)q + NODROP_TAP_OFFSET;
}

static struct nodrop_hold *nodrop_tap_ring_hold(struct ptr_ring *ring)
{
	return nodrop_tap_hold(container_of(ring, struct tap_queue, ring));
}

/* The ring */

static int nodrop_tap_produce(struct ptr_ring *ring, struct sk_buff *skb)
{
	return nodrop_hold_produce(nodrop_tap_ring_hold(ring), skb);
}

static int nodrop_tap_ring_init(struct ptr_ring *ring, unsigned int txqueuelen)
{
	struct nodrop_hold *hold = nodrop_tap_ring_hold(ring);
	int size = nodrop_hold_size(txqueuelen);
	int err = nodrop_ptr_ring_init(ring, size);

	if (err)
		return err;
	nodrop_hold_init(hold, ring);
	err = nodrop_hold_grow(hold, size);
	if (err)
		ptr_ring_cleanup(ring, NULL);
	else
		nodrop_hold_limit(hold, txqueuelen);
	return err;
}

static void nodrop_tap_ring_cleanup(struct ptr_ring *ring)
{
	nodrop_hold_free(nodrop_tap_ring_hold(ring));
	ptr_ring_cleanup(ring, __skb_array_destroy_skb);
}

static int nodrop_tap_resize(struct ptr_ring **rings, int n,
			     unsigned int txqueuelen)
{
	int size = nodrop_hold_size(txqueuelen), slots, old, i, err = 0;

	if (!n)
		return 0;
	if (size > NODROP_HOLD_MAX)
		return -ENOMEM;

	/* All rings of a device have the same limit. */
	old = nodrop_tap_ring_hold(rings[0])->limit;
	for (i = 0; i < n; i++) {
		slots = nodrop_hold_limit(nodrop_tap_ring_hold(rings[i]),
					  txqueuelen);
		size = max(size, slots);
	}
	for (i = 0; !err && i < n; i++)
		err = nodrop_hold_grow(nodrop_tap_ring_hold(rings[i]), size);
	if (!err)
		err = nodrop_ptr_ring_resize(rings, n, size,
					     __skb_array_destroy_skb);
	for (i = 0; err && i < n; i++)
		nodrop_hold_limit(nodrop_tap_ring_hold(rings[i]), old);
	return err;
}

/* tap.c counts no dropped segment, not even the one before @segments. */
static void nodrop_tap_free_rest(struct tap_queue *q, struct sk_buff *segments,
				 enum skb_drop_reason reason)
{
	struct tap_dev *tap = rcu_dereference(q->tap);
	unsigned int n = 0, lost;
	struct sk_buff *skb;

	for (skb = segments; skb; skb = skb->next)
		n++;
	nodrop_hold_rest(nodrop_tap_hold(q), n);
	for (lost = n + 1; tap && tap->count_rx_dropped && lost; lost--)
		tap->count_rx_dropped(tap);
	kfree_skb_list_reason(segments, reason);
}

/*
 * The counters of each queue ("ethtool -S DEV"). The devices and their
 * operations are macvlan's and ipvlan's. Opening a device gives it a copy of
 * these operations with the counters added.
 */

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

/* As tap.c sets it: wakes a sender that polls. */
static void (*nodrop_tap_write_space_before)(struct sock *sk);

static void nodrop_tap_write_space(struct sock *sk)
{
	nodrop_wake_writer(sk);
	READ_ONCE(nodrop_tap_write_space_before)(sk);
}

/* The life of a queue */

static int tap_open(struct inode *inode, struct file *file)
{
	int err = stock_tap_open(inode, file);
	struct tap_queue *q = file->private_data;

	if (err)
		return err;
	WRITE_ONCE(nodrop_tap_write_space_before, q->sk.sk_write_space);
	q->sk.sk_write_space = nodrop_tap_write_space;
	nodrop_tap_show(q);
	return 0;
}

/* Callers read the ring themselves, as any consumer does. */
struct ptr_ring *tap_get_ptr_ring(struct file *file)
{
	struct ptr_ring *ring = stock_tap_get_ptr_ring(file);

	if (!IS_ERR(ring))
		nodrop_hold_guard_keep(nodrop_tap_ring_hold(ring));
	return ring;
}

/*
 * No sender reaches the queue once stock_tap_release() is done. Free the frames
 * in the ring now and not with the queue's socket, which lives as long as
 * frames that it has sent.
 */
static int tap_release(struct inode *inode, struct file *file)
{
	struct tap_queue *q = file->private_data;
	struct sk_buff *skb;
	int err;

	sock_hold(&q->sk);
	err = stock_tap_release(inode, file);
	nodrop_hold_guard_end(nodrop_tap_hold(q));
	while ((skb = ptr_ring_consume(&q->ring)))
		kfree_skb(skb);
	sock_put(&q->sk);
	return err;
}

static int __init nodrop_tap_init(void)
{
	tap_proto.obj_size = NODROP_TAP_OFFSET + sizeof(struct nodrop_hold);
	return 0;
}
module_init(nodrop_tap_init);

static void __exit nodrop_tap_exit(void)
{
}
module_exit(nodrop_tap_exit);
