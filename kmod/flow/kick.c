// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes another CPU run a qdisc.
 *
 * An interrupt on the senders' CPU raises the transmit softirq there, and
 * their work stays with them. The reader pays for sending the interrupt only.
 */
#include "internal.h"

static void nodrop_kick_run(void *data)
{
	struct nodrop_queue *q = data;
	struct netdev_queue *txq = READ_ONCE(q->txq);

	if (txq)
		netif_schedule_queue(txq);
	/* Pairs with smp_load_acquire() in nodrop_kick_cancel(): all done. */
	smp_store_release(&q->kicking, false);
}

/* Context: as nodrop_queue_init(). */
void nodrop_kick_init(struct nodrop_queue *q)
{
	INIT_CSD(&q->kick, nodrop_kick_run, q);
}

/*
 * Run the qdisc on @cpu. True also when that is about to happen already, false
 * when @cpu is gone.
 *
 * Context: consumer_lock held.
 */
bool nodrop_kick(struct nodrop_queue *q, int cpu)
{
	/*
	 * Between opening the txq and seeing an earlier kick still on its way.
	 * Pairs with the barrier in net_tx_action(): that kick's run of the
	 * qdisc sees the open txq.
	 * Litmus: SB+open-mb-kicking+done-mb-xoff
	 */
	smp_mb();
	if (READ_ONCE(q->kicking))
		return true;

	WRITE_ONCE(q->kicking, true);
	if (!smp_call_function_single_async(cpu, &q->kick))
		return true;

	WRITE_ONCE(q->kicking, false);
	return false;
}

/*
 * Wait for a kick that is on its way: @q and its txq may go afterwards.
 *
 * Context: process context, no lock held, @q bound to no txq.
 */
void nodrop_kick_cancel(struct nodrop_queue *q)
{
	/* Pairs with smp_store_release() in nodrop_kick_run(). */
	while (smp_load_acquire(&q->kicking))
		cpu_relax();
}
