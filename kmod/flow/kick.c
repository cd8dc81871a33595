// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kick: an IPI raises the transmit softirq on the senders' CPU. Transmit
 * stays there, and the consumer pays only for sending the IPI.
 */
#include "internal.h"

/* nodrop_queue.kicking */
enum {
	NODROP_KICK_NONE,
	NODROP_KICK_SENT,	/* on its way */
	NODROP_KICK_BEGUN,	/* its handler runs */
};

static void nodrop_kick_run(void *data)
{
	struct nodrop_queue *q = data;
	struct netdev_queue *txq;

	WRITE_ONCE(q->kicking, NODROP_KICK_BEGUN);
	/*
	 * Write NODROP_KICK_BEGUN before reading XOFF. Pairs with the barrier
	 * in nodrop_kick(): if a consumer still relies on this kick, it has
	 * woken the txq, and this run sees that.
	 * Litmus: SB+open-mb-kicking+begin-mb-xoff
	 */
	smp_mb();
	txq = READ_ONCE(q->txq);
	if (txq)
		netif_schedule_queue(txq);
	/*
	 * Finish all uses of the txq first. Pairs with smp_load_acquire() in
	 * nodrop_kick_cancel().
	 * Litmus: LB+use-release+acquire-free
	 */
	smp_store_release(&q->kicking, NODROP_KICK_NONE);
}

/* Context: as nodrop_queue_create(). */
void nodrop_kick_init(struct nodrop_queue *q)
{
	INIT_CSD(&q->kick, nodrop_kick_run, q);
}

/*
 * Run the qdisc on @cpu. Return true also if an earlier kick is on its way,
 * false if @cpu is offline or an earlier kick runs, which may have seen XOFF.
 * Of two consumers that are here at the same time, cmpxchg() lets one send it.
 *
 * Context: RCU read lock held.
 */
bool nodrop_kick(struct nodrop_queue *q, int cpu)
{
	bool sent = false;

	/*
	 * Wake the txq before finding an earlier kick on its way. Pairs with
	 * the barrier in nodrop_kick_run(): that kick sees the txq woken. A
	 * failed cmpxchg() orders nothing.
	 * Litmus: SB+open-mb-kicking+begin-mb-xoff
	 */
	smp_mb();
	/* nodrop_kick_cancel() spins while a kick is about to be sent. */
	preempt_disable();
	switch (cmpxchg(&q->kicking, NODROP_KICK_NONE, NODROP_KICK_SENT)) {
	case NODROP_KICK_NONE:
		sent = !smp_call_function_single_async(cpu, &q->kick);
		if (!sent)
			WRITE_ONCE(q->kicking, NODROP_KICK_NONE);
		break;
	case NODROP_KICK_SENT:
		sent = true;
		break;
	}
	preempt_enable();
	return sent;
}

/*
 * Wait for a kick that is on its way. A consumer that read the old txq may
 * still send one: the txq lives for a grace period, and nodrop_queue_bind() and
 * nodrop_queue_destroy() wait again.
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
