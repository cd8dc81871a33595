// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes another CPU run a qdisc.
 *
 * An interrupt on the senders' CPU raises the transmit softirq there, and
 * their work stays with them. The consumer pays for sending the interrupt only.
 */
#include "internal.h"

/* nodrop_queue.kicking */
enum {
	NODROP_KICK_NONE,
	NODROP_KICK_SENT,	/* on its way */
	NODROP_KICK_BEGUN,	/* looking at the txq */
};

/*
 * Raise the transmit softirq for all qdiscs that may hold packets for @q.
 *
 * Context: @q bound to @txq, or about to wait for us in nodrop_kick_cancel().
 */
void nodrop_run_qdiscs(const struct nodrop_queue *q, struct netdev_queue *txq)
{
	struct net_device *dev = txq->dev;
	unsigned int i, n;

	netif_schedule_queue(txq);
	if (likely(!READ_ONCE(q->stale)))
		return;
	/* RTNL may change it: a txq that comes or goes is looked after. */
	n = data_race(dev->real_num_tx_queues);
	for (i = 0; i < n; i++)
		netif_schedule_queue(netdev_get_tx_queue(dev, i));
}

static void nodrop_kick_run(void *data)
{
	struct nodrop_queue *q = data;
	struct netdev_queue *txq;

	WRITE_ONCE(q->kicking, NODROP_KICK_BEGUN);
	/*
	 * Between being seen on its way and looking at XOFF. Pairs with the
	 * barrier in nodrop_kick(): a consumer that still relies on this
	 * kick has woken the txq, and we see that.
	 * Litmus: SB+open-mb-kicking+begin-mb-xoff
	 */
	smp_mb();
	txq = READ_ONCE(q->txq);
	if (txq)
		nodrop_run_qdiscs(q, txq);
	/*
	 * Pairs with smp_load_acquire() in nodrop_kick_cancel(): all done.
	 * Litmus: LB+use-release+acquire-free
	 */
	smp_store_release(&q->kicking, NODROP_KICK_NONE);
}

/* Context: as nodrop_queue_init(). */
void nodrop_kick_init(struct nodrop_queue *q)
{
	INIT_CSD(&q->kick, nodrop_kick_run, q);
}

/*
 * Run the qdisc on @cpu. True also when that is about to happen already, false
 * when @cpu is gone, or looking at the txq right now: it may have seen it
 * stopped. Two consumers may be here at the same time: one of them sends it.
 *
 * Context: RCU read lock held.
 */
bool nodrop_kick(struct nodrop_queue *q, int cpu)
{
	/*
	 * Between waking the txq and seeing an earlier kick still on its way.
	 * Pairs with the barrier in nodrop_kick_run(): that kick sees the txq
	 * run. cmpxchg() orders nothing when it fails.
	 * Litmus: SB+open-mb-kicking+begin-mb-xoff
	 */
	smp_mb();
	switch (cmpxchg(&q->kicking, NODROP_KICK_NONE, NODROP_KICK_SENT)) {
	case NODROP_KICK_SENT:
		return true;
	case NODROP_KICK_BEGUN:
		return false;
	}

	if (!smp_call_function_single_async(cpu, &q->kick))
		return true;

	WRITE_ONCE(q->kicking, NODROP_KICK_NONE);
	return false;
}

/*
 * Wait for a kick that is on its way: @q may go afterwards. A consumer that
 * found the txq before it was taken may still send one; the txq lives for a
 * grace period, and nodrop_queue_destroy() waits once more.
 *
 * Context: process context, no lock held, @q bound to no txq.
 */
void nodrop_kick_cancel(struct nodrop_queue *q)
{
	/*
	 * Pairs with smp_store_release() in nodrop_kick_run().
	 * Litmus: LB+use-release+acquire-free
	 */
	while (smp_load_acquire(&q->kicking))
		cpu_relax();
}
