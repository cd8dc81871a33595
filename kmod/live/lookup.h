/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which tun_file tun_net_xmit() finds. Included before tun.c.
 *
 * It looks a tun_file up by the txq's index after nodrop_live_net_xmit() did so
 * and claimed a slot of that one's ring. In between the tun_file may be
 * detached and another one get its index: the packet would take a slot that
 * nobody claimed for it. So the second lookup finds what the first one found.
 * That stays until the RCU read lock is released: a tun_file leaves its index,
 * then comes a grace period, then its ring is purged.
 *
 * Of all that tun.c dereferences so, only tun->tfiles[] has this type.
 */
#ifndef NODROP_LIVE_LOOKUP_H
#define NODROP_LIVE_LOOKUP_H

#include <linux/percpu.h>
#include <linux/rcupdate.h>

struct tun_file;

/* What this CPU transmits to, softirqs off; NULL: look it up by index. */
static DEFINE_PER_CPU(struct tun_file *, nodrop_live_target);

static struct tun_file *nodrop_live_lookup(struct tun_file __rcu **place)
{
	return __this_cpu_read(nodrop_live_target) ?: rcu_dereference(*place);
}

#pragma push_macro("rcu_dereference")
#undef rcu_dereference
#define rcu_dereference(p) ({						\
	typeof(p) *__place = &(p);					\
									\
	__builtin_choose_expr(__same_type(**__place, struct tun_file),	\
			      nodrop_live_lookup((void *)__place),	\
			      rcu_dereference_check(*__place, 0));	\
})

#endif
