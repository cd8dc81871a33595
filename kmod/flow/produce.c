// SPDX-License-Identifier: GPL-2.0-only
/*
 * Senders: put the packet into the ring, and stop the txq if it was the last
 * one that fits.
 */
#include <linux/sched.h>

#include "internal.h"
#include "trace.h"

/*
 * Stop the txq, unless the consumer has come to half of the limit meanwhile,
 * when it may have missed XOFF. With @all also senders past the qdisc: these
 * heed the driver's bit alone.
 */
static void nodrop_stop(struct nodrop_queue *q, struct netdev_queue *txq,
			bool all)
{
	unsigned int limit = READ_ONCE(q->limit);
	bool was;

	/*
	 * In this order: nodrop_xon() clears them in the other one.
	 * Litmus: CoWW+stop-drv-stack+xon-stack-drv
	 */
	if (all)
		set_bit(__QUEUE_STATE_DRV_XOFF, &txq->state);
	was = test_and_set_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
	/*
	 * Write XOFF before reading @taken. Pairs with the barrier in
	 * nodrop_check(): either this sender sees what the consumer took, or
	 * the consumer sees XOFF.
	 * Litmus: SB+stop-mb-taken+take-mb-xoff
	 */
	smp_mb__after_atomic();
	/* nodrop_queue_bind() wakes a txq that is not bound yet. */
	if (q->txq != txq)
		return;
	if (nodrop_held(q) <= limit / 2) {
		/* Another CPU's qdisc run may have seen XOFF and ended. */
		nodrop_reopen(q, txq);
		return;
	}

	if (!was) {
		q->stats[NODROP_STOPS]++;
		if (limit < q->max)
			q->stats[NODROP_STOPS_LIMIT]++;
		trace_nodrop_stop(q);
	}
	nodrop_guard_arm(q);
}

/*
 * Does the packet come past the qdisc, so that nothing can queue it? A sender
 * from the qdisc has it running, unless the txq is being deactivated. Without
 * SMP pfifo_fast never seems to run.
 */
static bool nodrop_is_past_qdisc(const struct netdev_queue *txq)
{
	struct Qdisc *qdisc = nodrop_qdisc(txq);

	return IS_ENABLED(CONFIG_SMP) &&
	       qdisc == rcu_access_pointer(txq->qdisc_sleeping) &&
	       !qdisc_is_running(qdisc);
}

/*
 * Packets up to which one that comes past the qdisc may fill the ring: @max and
 * @slack. While the qdisc has packets it gets its part: the ring comes to half
 * of the limit, where the txq is woken, and then has room.
 */
static unsigned int nodrop_share(const struct nodrop_queue *q,
				 unsigned int slack)
{
	unsigned int limit = READ_ONCE(q->limit);

	if (!q->txq || qdisc_is_empty(nodrop_qdisc(q->txq)))
		return q->max + slack;
	if (nodrop_is_stopped(q->txq))
		return max(limit / 2, 1U);
	return limit - limit / 4;
}

/* The CPU from which the packet was sent: see netdev_core_pick_tx(). */
static int nodrop_sender(const struct sk_buff *skb)
{
#if defined(CONFIG_XPS)
	unsigned int cpu = skb->sender_cpu - 1;

	if (cpu < nr_cpu_ids)
		return cpu;
#endif
	return raw_smp_processor_id();
}

/**
 * nodrop_produce_last() - nodrop_produce() when the budget is used up
 * @q: the queue
 * @skb: the packet
 *
 * Context, return: as nodrop_produce().
 */
int nodrop_produce_last(struct nodrop_queue *q, struct sk_buff *skb)
{
	struct netdev_queue *txq = skb_get_tx_queue(skb->dev, skb);
	enum nodrop_stat why = nodrop_drops(q, txq);
	/* By netpoll, which would spin. */
	bool polled = irqs_disabled();
	bool past = polled || nodrop_is_past_qdisc(txq);
	/* pktgen, a kernel thread, waits while the txq is stopped. */
	bool waits = past && !polled && !in_serving_softirq() &&
		     (current->flags & PF_KTHREAD);
	unsigned int limit = READ_ONCE(q->limit), end = q->max;
	/* The consumer may free the packet once it is in the ring. */
	int cpu = nodrop_sender(skb);
	bool gso = skb_is_gso(skb);
	int err = 0;

	if (why == NODROP_DROP_GUARD) {
		end = min(limit, NODROP_LEAST);
	} else if (!why && past && !waits) {
		why = NODROP_DROP_BYPASS;
		if (!polled)
			end = nodrop_share(q, 0);
	} else if (!why) {
		/*
		 * A late one uses the slack. Also what is kept for others: they
		 * may have come before the txq was stopped.
		 */
		end = q->ring->size;
	}

	q->budget = 0;
	if (nodrop_held(q) >= end || __ptr_ring_produce(q->ring, skb)) {
		q->stats[why ?: NODROP_DROP_UNCLAIMED]++;
		err = -ENOSPC;
	} else {
		WRITE_ONCE(q->produced, q->produced + 1);
	}

	if (why == NODROP_DROP_GUARD) {
		if (err)
			nodrop_guard_arm(q);
	} else if (why && why != NODROP_DROP_BYPASS) {
		if (!err)
			q->budget = end - nodrop_held(q);
	} else if (nodrop_held(q) + nodrop_batch(limit) > limit ||
		   q->txq != txq) {
		WRITE_ONCE(q->cpu, cpu);
		nodrop_stop(q, txq, waits || netdev_xmit_more());
	} else if (!why) {
		WRITE_ONCE(q->gso, gso);
		q->budget = limit - nodrop_held(q);
	}
	return err;
}
EXPORT_SYMBOL_GPL(nodrop_produce_last);

/**
 * nodrop_produce_xdp() - put an XDP frame into the ring
 * @q: the queue
 * @frame: the frame
 *
 * Context: softirqs off, producer_lock and RCU read lock held.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller keeps the frame.
 */
int nodrop_produce_xdp(struct nodrop_queue *q, void *frame)
{
	unsigned int end = q->max;

	if (q->txq && !nodrop_drops(q, q->txq))
		end = nodrop_share(q, NODROP_XDP_SLACK);
	/*
	 * As in nodrop_produce().
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	if (nodrop_held(q) >= end || __ptr_ring_produce(q->ring, frame)) {
		q->stats[NODROP_DROP_XDP]++;
		return -ENOSPC;
	}
	WRITE_ONCE(q->produced, q->produced + 1);
	if (q->budget)
		q->budget--;
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_produce_xdp);
