// SPDX-License-Identifier: GPL-2.0-only
/*
 * netif_tx_wake_queue_on() of series/flow, for a kernel without it.
 *
 * The patch keeps the IPI's state in struct Qdisc. Here next_sched links the
 * qdiscs of an IPI: it is free until the qdisc is in a CPU's output_queue.
 */
#include <linux/llist.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <net/sch_generic.h>

struct wakes {
	struct llist_head list;
	call_single_data_t csd;
};

static DEFINE_PER_CPU(struct wakes, wakes);

void netif_tx_wake_queue_on(struct netdev_queue *dev_queue, int cpu);

static void run(void *data)
{
	struct wakes *here = data;
	struct llist_node *node, *next;
	struct Qdisc *q;

	llist_for_each_safe(node, next, llist_del_all(&here->list)) {
		q = container_of((struct Qdisc **)node, struct Qdisc,
				 next_sched);
		clear_bit(__QDISC_STATE_SCHED, &q->state);
		smp_mb__after_atomic();
		__netif_schedule(q);
	}
}

static bool has_packets(struct Qdisc *q)
{
	bool found;

	if (q->flags & TCQ_F_NOLOCK)
		return true;
	spin_lock_bh(qdisc_lock(q));
	found = qdisc_qlen_sum(q);
	spin_unlock_bh(qdisc_lock(q));
	return found;
}

void netif_tx_wake_queue_on(struct netdev_queue *dev_queue, int cpu)
{
	struct wakes *there = &per_cpu(wakes, cpu);
	struct Qdisc *q;

	if (!test_and_clear_bit(__QUEUE_STATE_DRV_XOFF, &dev_queue->state))
		return;

	rcu_read_lock();
	q = rcu_dereference(dev_queue->qdisc);
	if (!has_packets(q))
		goto out;
	preempt_disable();
	if (IS_ENABLED(CONFIG_PREEMPT_RT) || cpu == smp_processor_id() ||
	    !cpu_online(cpu))
		__netif_schedule(q);
	else if (!test_bit(__QDISC_STATE_DEACTIVATED, &q->state) &&
		 llist_empty(&q->defer_list) &&
		 !test_and_set_bit(__QDISC_STATE_SCHED, &q->state) &&
		 llist_add((struct llist_node *)&q->next_sched, &there->list))
		smp_call_function_single_async(cpu, &there->csd);
	preempt_enable();
out:
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(netif_tx_wake_queue_on);

static int __init compat_init(void)
{
	struct wakes *there;
	int cpu;

	for_each_possible_cpu(cpu) {
		there = &per_cpu(wakes, cpu);
		init_llist_head(&there->list);
		INIT_CSD(&there->csd, run, there);
	}
	return 0;
}

static void __exit compat_exit(void)
{
	/* The second one ends after all IPIs that the first one met. */
	kick_all_cpus_sync();
	kick_all_cpus_sync();
}

module_init(compat_init);
module_exit(compat_exit);
MODULE_DESCRIPTION("netif_tx_wake_queue_on() for a kernel without it");
MODULE_LICENSE("GPL");
