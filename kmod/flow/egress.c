// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose packets wait in the qdisc: only those of a socket whose data the device
 * carries, a program's or the kernel's own TCP.
 *
 * A packet in the qdisc is charged to its socket for as long as the consumer
 * likes. So a packet of a shared socket (owner.h) is orphaned before the qdisc
 * gets it, and the pages of a zero-copy packet are copied, as the stock driver
 * does a moment later, when the packet enters the ring. From then on the qdisc
 * drops it at its limit, as a router's does.
 *
 * The driver sees packets only after the qdisc. A netfilter hook of the device
 * (egress) sees them before. It runs last, so that filters find the socket. tc
 * runs behind it: packets that tc redirects to the device do not come here.
 */
#include <linux/hashtable.h>
#include <linux/limits.h>
#include <linux/netfilter.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "internal.h"
#include "owner.h"

#ifdef CONFIG_NETFILTER_EGRESS

struct nodrop_egress {
	struct nf_hook_ops ops;
	struct hlist_node node;
	struct rcu_head rcu;
};

/* By device, under RTNL. */
static DEFINE_HASHTABLE(nodrop_egresses, 8);

static unsigned int nodrop_egress_run(void *priv, struct sk_buff *skb,
				      const struct nf_hook_state *state)
{
	if (nodrop_is_shared(skb))
		skb_orphan(skb);
	/* Without memory: the driver tries again, and drops. */
	skb_orphan_frags_rx(skb, GFP_ATOMIC);
	return NF_ACCEPT;
}

static struct nodrop_egress *nodrop_egress_find(const struct net_device *dev)
{
	struct nodrop_egress *egress;

	hash_for_each_possible(nodrop_egresses, egress, node,
			       (unsigned long)dev)
		if (egress->ops.dev == dev)
			return egress;
	return NULL;
}

/**
 * nodrop_egress_add() - see the device's packets before its qdisc does
 * @dev: the device, which has none of this; for NETDEV_REGISTER
 *
 * Context: process context, RTNL held.
 * Return: 0, also if the kernel has no such hook; -ENOMEM.
 */
int nodrop_egress_add(struct net_device *dev)
{
	struct nodrop_egress *egress = kzalloc(sizeof(*egress), GFP_KERNEL);
	int err;

	ASSERT_RTNL();
	if (!egress)
		return -ENOMEM;
	egress->ops.hook = nodrop_egress_run;
	egress->ops.dev = dev;
	egress->ops.pf = NFPROTO_NETDEV;
	egress->ops.hooknum = NF_NETDEV_EGRESS;
	egress->ops.priority = INT_MAX;
	err = nf_register_net_hook(dev_net(dev), &egress->ops);
	if (err) {
		kfree(egress);
		return err;
	}
	hash_add(nodrop_egresses, &egress->node, (unsigned long)dev);
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_egress_add);

/**
 * nodrop_egress_remove() - undo nodrop_egress_add()
 * @dev: the device; for NETDEV_UNREGISTER, also if there was an error
 *
 * Packets on their way may still be seen until a grace period has passed.
 *
 * Context: process context, RTNL held.
 */
void nodrop_egress_remove(struct net_device *dev)
{
	struct nodrop_egress *egress = nodrop_egress_find(dev);

	ASSERT_RTNL();
	if (!egress)
		return;
	hash_del(&egress->node);
	nf_unregister_net_hook(dev_net(dev), &egress->ops);
	/* A dump of the hooks may be reading it. */
	kfree_rcu(egress, rcu);
}
EXPORT_SYMBOL_GPL(nodrop_egress_remove);

#else

int nodrop_egress_add(struct net_device *dev)
{
	pr_notice_once("nodrop: this kernel has no netfilter egress hook (CONFIG_NETFILTER_EGRESS): a slow reader can delay the host's replies to others\n");
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_egress_add);

void nodrop_egress_remove(struct net_device *dev)
{
}
EXPORT_SYMBOL_GPL(nodrop_egress_remove);

#endif
