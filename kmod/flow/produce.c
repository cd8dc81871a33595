// SPDX-License-Identifier: GPL-2.0-only
/*
 * Senders: put the packet into the ring, and stop the txq if it was the last
 * one that fits.
 */
#include <linux/sched.h>
#include <linux/timekeeping.h>

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
	unsigned long was;

	was = set_mask_bits(&txq->state, 0, all ? QUEUE_STATE_ANY_XOFF :
						  QUEUE_STATE_STACK_XOFF);
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

	if (was & QUEUE_STATE_STACK_XOFF) {
		nodrop_guard_arm(q);
		return;
	}
	WRITE_ONCE(q->stopped_at, ktime_get_mono_fast_ns());
	q->stats[NODROP_STOPS]++;
	if (limit < q->max)
		q->stats[NODROP_STOPS_LIMIT]++;
	trace_nodrop_stop(q);
	nodrop_guard_stopped(q);
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
#ifdef CONFIG_XPS
	if (skb->sender_cpu - 1 < nr_cpu_ids)
		return skb->sender_cpu - 1;
#endif
	return raw_smp_processor_id();
}

/* Put a packet into the ring, unless it holds @end packets. */
static bool nodrop_put(struct nodrop_queue *q, void *packet, unsigned int end)
{
	if (nodrop_held(q) >= end || __ptr_ring_produce(q->ring, packet))
		return false;
	WRITE_ONCE(q->produced, q->produced + 1);
	return true;
}

/*
 * Does the ring hold @max packets? Tells by the slot, as ptr_ring does, which
 * the consumer clears for a batch at a time: so a drop does not cost a miss of
 * its cache line. A ring of less than two batches seems full too early.
 */
static bool nodrop_seems_full(const struct nodrop_queue *q)
{
	const struct ptr_ring *ring = q->ring;
	int slot = ring->producer - (int)q->max;

	return (int)q->max >= 2 * ring->batch &&
	       READ_ONCE(ring->queue[slot < 0 ? slot + ring->size : slot]);
}

/* While the consumer is stalled; a drop is its next chance. */
static bool nodrop_put_stalled(struct nodrop_queue *q, void *packet)
{
	if (nodrop_put(q, packet, min(q->max, NODROP_LEAST)))
		return true;
	nodrop_guard_arm(q);
	return false;
}

/* Without flow control, for the reason @why. */
static bool nodrop_put_or_drop(struct nodrop_queue *q, struct sk_buff *skb,
			       enum nodrop_stat why)
{
	q->budget = 0;
	if (why == NODROP_DROP_GUARD) {
		if (nodrop_put_stalled(q, skb))
			return true;
	} else if (!nodrop_seems_full(q) && nodrop_put(q, skb, q->max)) {
		q->budget = q->max - nodrop_held(q);
		return true;
	}
	q->stats[why]++;
	return false;
}

/* With flow control: stop @txq, unless a batch of slots is free. */
static bool nodrop_put_and_stop(struct nodrop_queue *q, struct sk_buff *skb,
				struct netdev_queue *txq)
{
	/* By netpoll, which would spin. */
	bool polled = irqs_disabled();
	bool past = polled || nodrop_is_past_qdisc(txq);
	/* pktgen, a kernel thread, waits while the txq is stopped. */
	bool waits = past && !polled && !in_serving_softirq() &&
		     (current->flags & PF_KTHREAD);
	unsigned int limit = READ_ONCE(q->limit), end;
	/* The consumer may free the packet once it is in the ring. */
	int cpu = nodrop_sender(skb);
	/* It tested XOFF before it was set, or not at all. */
	bool late = nodrop_is_stopped(txq), many, put;

	past = past && !waits;
	/*
	 * A late one uses the slack. Also what is kept for others: they may
	 * have come before the txq was stopped.
	 */
	end = !past ? q->ring->size : polled ? q->max : nodrop_share(q, 0);
	put = nodrop_put(q, skb, end);
	if (!put)
		q->stats[past ? NODROP_DROP_BYPASS : NODROP_DROP_UNCLAIMED]++;

	q->budget = late ? q->budget - (put && !past) : 0;
	/* Senders past the qdisc, while it runs: they heed another bit. */
	many = q->budget <= -(int)nr_cpu_ids;
	if (nodrop_held(q) + nodrop_batch(limit) > limit || q->txq != txq) {
		WRITE_ONCE(q->cpu, cpu);
		nodrop_stop(q, txq, waits || many || netdev_xmit_more());
	} else if (!past) {
		q->budget = limit - nodrop_held(q);
	}
	return put;
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
	bool put;

	put = why ? nodrop_put_or_drop(q, skb, why) :
		    nodrop_put_and_stop(q, skb, txq);
	return put ? 0 : -ENOSPC;
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
	enum nodrop_stat why = q->txq ? nodrop_drops(q, q->txq) :
					NODROP_DROP_NOQUEUE;
	unsigned int end = why ? q->max : nodrop_share(q, NODROP_XDP_SLACK);
	bool put;

	/*
	 * As in nodrop_produce().
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	put = why == NODROP_DROP_GUARD ? nodrop_put_stalled(q, frame) :
					 nodrop_put(q, frame, end);
	if (!put) {
		q->stats[NODROP_DROP_XDP]++;
		return -ENOSPC;
	}
	if (q->budget > 0)
		q->budget--;
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_produce_xdp);
