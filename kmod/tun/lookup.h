/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Around tun_net_xmit(): the tun_file that it finds, and a drop before it.
 * Included before tun.c.
 *
 * nodrop looks the tun_file up by the txq's index, reserves a slot of its ring
 * and then calls tun.c's function, which looks it up again. In between the
 * tun_file may be detached, and another one or none be at its index. So the
 * second lookup returns the first one's result. That stays valid under the RCU
 * read lock: a ring is purged a grace period after its tun_file left its index.
 *
 * Of tun.c's uses of rcu_dereference() only tun->tfiles[] has this type.
 */
#ifndef NODROP_TUN_LOOKUP_H
#define NODROP_TUN_LOOKUP_H

#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>

#include "../compat/softirq_lock.h"

struct tun_file;

/*
 * One transmit at a time on a CPU: it has the target below, and the slot of the
 * slack that the core keeps for the CPU.
 */
static DEFINE_PER_CPU(struct nodrop_softirq_lock, nodrop_tun_lock) =
	NODROP_SOFTIRQ_LOCK_INIT;

/* What this CPU transmits to, softirqs off; NULL: look up by index. */
static DEFINE_PER_CPU(struct tun_file *, nodrop_tun_target);

static struct tun_file *nodrop_tun_lookup(struct tun_file __rcu **place)
{
	struct tun_file *target = NULL;

	if (nodrop_softirq_is_mine(&nodrop_tun_lock))
		target = __this_cpu_read(nodrop_tun_target);
	return target ?: rcu_dereference(*place);
}

/*
 * As tun.c drops a packet when the ring is full. Inlined, so that the location
 * in the tracepoint kfree_skb is the transmit function.
 */
static __always_inline netdev_tx_t nodrop_tun_drop(struct sk_buff *skb,
						   struct net_device *dev)
{
	dev_core_stats_tx_dropped_inc(dev);
	skb_tx_error(skb);
	kfree_skb_reason(skb, SKB_DROP_REASON_FULL_RING);
	return NET_XMIT_DROP;
}

/*
 * nodrop_tun_lock held. Without PREEMPT_RT netconsole may print within @xmit,
 * through another device.
 */
static netdev_tx_t nodrop_tun_xmit_to(struct tun_file *tfile,
				      netdev_tx_t (*xmit)(struct sk_buff *skb,
							  struct net_device *),
				      struct sk_buff *skb,
				      struct net_device *dev)
{
	struct tun_file *outer = __this_cpu_read(nodrop_tun_target);
	netdev_tx_t ret;

	__this_cpu_write(nodrop_tun_target, tfile);
	ret = xmit(skb, dev);
	__this_cpu_write(nodrop_tun_target, outer);
	return ret;
}

#pragma push_macro("rcu_dereference")
#undef rcu_dereference
#define rcu_dereference(p) ({						\
	typeof(p) *__place = &(p);					\
									\
	__builtin_choose_expr(__same_type(**__place, struct tun_file),	\
			      nodrop_tun_lookup((void *)__place),	\
			      rcu_dereference_check(*__place, 0));	\
})

#endif
