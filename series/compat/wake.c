// SPDX-License-Identifier: GPL-2.0-only
/*
 * netif_tx_wake_queue_on() of series/flow, for a kernel without it.
 *
 * The patch keeps the IPI's state in struct Qdisc. Here kick.c of kmod/flow, as
 * in nodrop's module, sends the IPI.
 */
#include <linux/module.h>

#include "internal.h"

void netif_tx_wake_queue_on(struct netdev_queue *dev_queue, int cpu);

/* Context: softirqs off. */
void netif_tx_wake_queue_on(struct netdev_queue *dev_queue, int cpu)
{
	struct Qdisc *q;

	if (!test_and_clear_bit(__QUEUE_STATE_DRV_XOFF, &dev_queue->state))
		return;

	rcu_read_lock();
	q = rcu_dereference(dev_queue->qdisc);
	if (!nodrop_has_backlog(q))
		goto out;
	if (IS_ENABLED(CONFIG_PREEMPT_RT) || cpu == raw_smp_processor_id())
		__netif_schedule(q);
	else
		nodrop_kick(q, cpu);
out:
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(netif_tx_wake_queue_on);

static int __init compat_init(void)
{
	nodrop_kick_init();
	return 0;
}

static void __exit compat_exit(void)
{
	nodrop_kick_exit();
	synchronize_net();
}

module_init(compat_init);
module_exit(compat_exit);
MODULE_DESCRIPTION("netif_tx_wake_queue_on() for a kernel without it");
MODULE_LICENSE("GPL");
