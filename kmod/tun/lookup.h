/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which tun_file tun_net_xmit() finds. Included before tun.c.
 *
 * It looks a tun_file up by the txq's index after we did so and reserved a slot
 * of that one's ring. In between the tun_file may be detached, and another one
 * or none get its index. So the second lookup finds what the first one found.
 * That stays until the RCU read lock is released: a tun_file leaves its index,
 * then comes a grace period, then its ring is purged.
 *
 * Of all that tun.c dereferences so, only tun->tfiles[] has this type.
 */
#ifndef NODROP_TUN_LOOKUP_H
#define NODROP_TUN_LOOKUP_H

#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>

struct tun_file;

/* What this CPU transmits to, softirqs off; NULL: look it up by index. */
static DEFINE_PER_CPU(struct tun_file *, nodrop_tun_target);

static struct tun_file *nodrop_tun_lookup(struct tun_file __rcu **place)
{
	return __this_cpu_read(nodrop_tun_target) ?: rcu_dereference(*place);
}

/* A console on the network may print in @xmit, to another device. */
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
