// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kick: an IPI raises the transmit softirq on the senders' CPU. Transmit
 * stays there, and the consumer pays only for sending the IPI.
 *
 * The code that sets __QDISC_STATE_SCHED of a qdisc owns it and has it run: the
 * kernel by its CPU's output_queue, a consumer by an IPI. While the bit is set
 * dev_deactivate_many() does not let the qdisc go, and next_sched is the
 * owner's: here it links the qdisc to the list of a CPU.
 */
#include <linux/llist.h>
#include <linux/percpu.h>
#include <linux/smp.h>

#include "internal.h"

/* Qdiscs to be run by a CPU, and the IPI to it if there are any */
struct nodrop_kicked {
	struct llist_head qdiscs;
	call_single_data_t ipi;
};

static DEFINE_PER_CPU(struct nodrop_kicked, nodrop_kicked);

/*
 * Does the qdisc of a txq that was just woken have something to do? Unless it
 * may be bypassed when it is empty, also then: teql wakes its master.
 *
 * The qdisc's lock orders the wake before reading the qdisc's length here, and
 * an enqueue before its run reads XOFF: at least one sees the other.
 * Litmus: SB+open-lock-qlen+enqueue-lock-xoff
 * A lockless qdisc (pfifo_fast) gives no such order on weakly ordered machines,
 * but its runs do: run it.
 * Litmus: SB+open-lock-packets+enqueue-lock-xoff
 */
bool nodrop_has_backlog(struct Qdisc *qdisc)
{
	bool waits;

	if ((qdisc->flags & (TCQ_F_NOLOCK | TCQ_F_CAN_BYPASS)) !=
	    TCQ_F_CAN_BYPASS)
		return true;
	spin_lock_bh(qdisc_lock(qdisc));
	waits = qdisc_qlen_sum(qdisc);
	spin_unlock_bh(qdisc_lock(qdisc));
	return waits;
}

/* Context: softirqs or interrupts off. */
static void nodrop_kick_run(void *kicked)
{
	struct nodrop_kicked *here = kicked;
	struct llist_node *node, *next;
	struct Qdisc *qdisc;
	bool gone;

	llist_for_each_safe(node, next, llist_del_all(&here->qdiscs)) {
		qdisc = container_of((struct Qdisc **)node, struct Qdisc,
				     next_sched);
		/*
		 * If it is not deactivated yet, dev_deactivate_many() has to
		 * wait for a grace period, and so for this function, before it
		 * waits for the bit, which __netif_schedule() then has set.
		 */
		gone = test_bit(__QDISC_STATE_DEACTIVATED, &qdisc->state);
		/*
		 * Read next_sched before clearing the bit: the next owner
		 * writes it. Pairs with test_and_set_bit() in nodrop_kick().
		 * Litmus: LB+next-mb-sched+sched-next
		 */
		smp_mb__before_atomic();
		clear_bit(__QDISC_STATE_SCHED, &qdisc->state);
		/*
		 * Clear the bit before __netif_schedule() reads the qdisc's
		 * defer_list (7.3): with packets there it leaves the run to
		 * their sender, which must see the txq woken by a consumer that
		 * found the bit set. Pairs with test_and_set_bit() in
		 * nodrop_kick().
		 * Litmus: 3.SB+open-mb-sched+kick-mb-defer+take-mb-xoff
		 */
		smp_mb__after_atomic();
		if (!gone)
			__netif_schedule(qdisc);
	}
}

/* Run the qdisc on @cpu. Context: softirqs off. */
void nodrop_kick(struct Qdisc *qdisc, int cpu)
{
	struct nodrop_kicked *there = &per_cpu(nodrop_kicked, cpu);

	if (test_bit(__QDISC_STATE_DEACTIVATED, &qdisc->state) ||
	    test_and_set_bit(__QDISC_STATE_SCHED, &qdisc->state))
		return;
	/* The list of a CPU whose IPI is on its way is not empty. */
	if (!llist_add((struct llist_node *)&qdisc->next_sched,
		       &there->qdiscs))
		return;
	if (smp_call_function_single_async(cpu, &there->ipi))
		nodrop_kick_run(there);	/* it is offline */
}

void nodrop_kick_init(void)
{
	struct nodrop_kicked *there;
	int cpu;

	for_each_possible_cpu(cpu) {
		there = &per_cpu(nodrop_kicked, cpu);
		INIT_CSD(&there->ipi, nodrop_kick_run, there);
	}
}

/*
 * Wait for all kicks; an interrupt that has emptied its list may still run for
 * a grace period. Context: process context, no consumer is left.
 */
void nodrop_kick_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		while (!llist_empty(&per_cpu(nodrop_kicked, cpu).qdiscs))
			cpu_relax();
}
