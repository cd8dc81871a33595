// SPDX-License-Identifier: GPL-2.0-only
/*
 * Senders: reserve a slot, produce the packet, stop the txq early.
 */
#include "internal.h"
#include "trace.h"

/*
 * Limit bulk dequeue to the reserved slots, less the packet by which it exceeds
 * its limit: a packet without a slot is requeued ahead of all other flows.
 * 64 kB at most: other flows wait while a burst is transmitted.
 */
static void nodrop_hint(const struct nodrop_queue *q)
{
#ifdef CONFIG_BQL
	u64 bytes = (u64)(q->reserved ? q->reserved - 1 : 0) * q->mean;
	struct dql *dql;

	if (!q->txq)
		return;
	dql = &q->txq->dql;
	WRITE_ONCE(dql->adj_limit,
		   dql->num_queued + min_t(u64, bytes, SZ_64K));
#endif
}

/* Reserve all free slots if they are enough for a batch. */
static bool nodrop_look(struct nodrop_queue *q)
{
	unsigned int limit = READ_ONCE(q->limit);
	unsigned int held = nodrop_held(q);

	lockdep_assert_held(&q->ring->producer_lock);

	if (held + nodrop_batch(limit) > limit)
		return false;
	WRITE_ONCE(q->reserved, limit - held);
	return true;
}

/* Has the last stop neither been undone nor been missed by the consumer? */
static bool nodrop_is_stopped(const struct nodrop_queue *q)
{
	return READ_ONCE(q->stopped) && netif_xmit_stopped(q->txq);
}

/*
 * Stop the txq, with no slot reserved, also for a sender past the qdisc that
 * @keeps its packets. Return false if the consumer has reached @wake_at
 * meanwhile, when it may have missed @stopped: then the txq runs, with at least
 * one slot reserved.
 */
static bool nodrop_stop(struct nodrop_queue *q)
{
	unsigned int limit = READ_ONCE(q->limit);

	WRITE_ONCE(q->reserved, 0);
	WRITE_ONCE(q->mark, q->produced);
	WRITE_ONCE(q->wake_at, q->produced - limit / 2);
	set_bit(__QUEUE_STATE_STACK_XOFF, &q->txq->state);
	/* dev_hard_start_xmit() ends a list by the driver's bit alone. */
	if (q->keeps || netdev_xmit_more())
		set_bit(__QUEUE_STATE_DRV_XOFF, &q->txq->state);
	/*
	 * Write XOFF and @wake_at before @stopped. Pairs with the release in
	 * nodrop_wake() and the barrier in nodrop_check(): a wake that clears
	 * @stopped also clears this XOFF, and the consumer uses this @wake_at.
	 * Litmus: 2+2W+stop-wmb-stopped+wake-release-xon
	 * Litmus: MP+mark-wmb-stopped+stopped-rmb-mark
	 */
	smp_wmb();
	WRITE_ONCE(q->stopped, true);
	/*
	 * Write @stopped before reading @taken. Pairs with the barrier in
	 * nodrop_check(): either this sender sees what the consumer took, or
	 * the consumer sees @stopped.
	 * Litmus: SB+stop-mb-taken+take-mb-stopped
	 */
	smp_mb();
	if ((int)(READ_ONCE(q->taken) - q->wake_at) >= 0) {
		/* Another CPU's qdisc run may have seen XOFF and ended. */
		nodrop_reopen(q, q->txq);
		if (!nodrop_look(q))
			WRITE_ONCE(q->reserved, 1);
		return false;
	}

	q->stats[NODROP_STOPS]++;
	if (limit < q->max)
		q->stats[NODROP_STOPS_LIMIT]++;
	trace_nodrop_stop(q, limit < q->max);
	nodrop_guard_arm(q);
	return true;
}

/*
 * Does the qdisc hold packets that no CPU transmits? Lockless: a run that has
 * seen XOFF and is about to end counts as one that transmits. Then they wait
 * for the next wake, or for the guard's sample.
 */
static bool nodrop_waits(struct Qdisc *qdisc)
{
	return !qdisc_is_empty(qdisc) && !qdisc_is_running(qdisc);
}

/* Without flow control: reserve the free slots below txqueuelen, if any. */
static bool nodrop_look_any(struct nodrop_queue *q)
{
	unsigned int held = nodrop_held(q);

	if (held >= q->max)
		return false;
	WRITE_ONCE(q->reserved, q->max - held);
	return true;
}

/* Does the qdisc hold packets, or transmit one? */
static bool nodrop_is_used(struct Qdisc *qdisc)
{
	return !qdisc_is_empty(qdisc) || qdisc_is_running(qdisc);
}

/*
 * Does the packet come past the qdisc, so that nothing can queue it? A sender
 * from the qdisc has it running: the txq's own, unless the txq is being
 * deactivated, or a stale one. Without SMP pfifo_fast never seems to run.
 */
static bool nodrop_is_past_qdisc(const struct nodrop_queue *q,
				 const struct netdev_queue *txq)
{
	return IS_ENABLED(CONFIG_SMP) &&
	       nodrop_qdisc(txq) == rcu_access_pointer(txq->qdisc_sleeping) &&
	       !nodrop_any_qdisc(q, txq, qdisc_is_running);
}

/*
 * While the qdisc has packets and no slot is reserved, others leave a quarter
 * of the limit to it. A stop and a wake are half a limit apart, so both get a
 * like share of a saturated ring.
 */
static unsigned int nodrop_bypass_share(const struct nodrop_queue *q)
{
	unsigned int limit = READ_ONCE(q->limit);

	if (q->reserved || !nodrop_any_qdisc(q, q->txq, nodrop_is_used))
		return UINT_MAX;
	/* As in nodrop_reserve(). */
	if (nodrop_any_qdisc(q, q->txq, nodrop_waits) &&
	    !netif_xmit_stopped(q->txq))
		nodrop_run_qdiscs(q, q->txq);
	return limit - max(limit / 4, 1U);
}

/*
 * The limit is reached. Return true if the sender has a slot none the less, and
 * set @err if its packet is dropped.
 */
static bool nodrop_beyond(struct nodrop_queue *q, struct netdev_queue *txq,
			  int *err)
{
	bool polled = irqs_disabled();
	unsigned int end = q->max;

	if (!polled && !nodrop_is_past_qdisc(q, txq)) {
		/* It was on its way when another sender stopped the txq. */
		if (nodrop_is_stopped(q))
			return false;
		return !nodrop_stop(q);
	}
	if (q->keeps)
		return !nodrop_stop(q);

	if (!polled)
		end = min(end, nodrop_bypass_share(q));
	if (nodrop_held(q) < end) {
		WRITE_ONCE(q->reserved, 1);
		return true;
	}
	q->stats[NODROP_DROP_BYPASS]++;
	*err = -ENOSPC;
	return false;
}

static int nodrop_count_drop(struct nodrop_queue *q)
{
	q->stats[q->bypass_reason ?: NODROP_DROP_UNCLAIMED]++;
	return -ENOSPC;
}

/**
 * nodrop_reserve() - look for a slot before the packet is touched
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @on: whether flow control is wanted for the device
 * @keeps: whether a sender past the qdisc sends a packet again that comes back
 *
 * Context: as nodrop_reserved(), which was false.
 * Return: 0 to transmit; -EBUSY if the txq is stopped: return NETDEV_TX_BUSY;
 * -ENOSPC if the ring is full, and there is no flow control or no qdisc behind
 * the sender: the drop is counted here, the caller frees the packet.
 */
int nodrop_reserve(struct nodrop_queue *q, struct netdev_queue *txq, bool on,
		   bool keeps)
{
	bool slot = true;
	int err = 0;

	spin_lock(&q->ring->producer_lock);
	if (q->unaware) {
		WRITE_ONCE(q->bypass_reason, NODROP_DROP_FOREIGN);
	} else if (!nodrop_has_qdisc(txq)) {
		WRITE_ONCE(q->bypass_reason, NODROP_DROP_NOQUEUE);
	} else if (!on) {
		WRITE_ONCE(q->bypass_reason, NODROP_DROP_OFF);
	} else if (q->txq != txq) {
		/*
		 * The driver assigned @txq to the ring before it calls
		 * nodrop_queue_bind(), which wakes @txq. The previous txq's
		 * reserved slots stay.
		 */
		set_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
		slot = false;
	} else if (READ_ONCE(q->stalled)) {
		WRITE_ONCE(q->bypass_reason, NODROP_DROP_GUARD);
	} else {
		WRITE_ONCE(q->bypass_reason, 0);
		/* netpoll would spin, with interrupts off. */
		q->keeps = keeps && !irqs_disabled();
		slot = q->reserved || nodrop_look(q) ||
		       nodrop_beyond(q, txq, &err);
		/*
		 * The consumer takes a sender past the qdisc for one of the
		 * qdisc's, and does not kick.
		 */
		if (slot && unlikely(nodrop_any_qdisc(q, txq, nodrop_waits)))
			nodrop_run_qdiscs(q, txq);
	}

	if (!slot && !err) {
		q->stats[NODROP_BUSY_RETURNS]++;
		trace_nodrop_busy(q, q->txq == txq);
		err = -EBUSY;
	} else if (slot && !q->reserved && !nodrop_look_any(q)) {
		err = nodrop_count_drop(q);
	}
	spin_unlock(&q->ring->producer_lock);
	return err;
}
EXPORT_SYMBOL_GPL(nodrop_reserve);

/**
 * nodrop_produce() - put a packet into the ring
 * @q: the queue
 * @packet: the packet
 * @bytes: its size
 *
 * If another has taken the slot that the sender saw, it uses one of the slack,
 * whatever has become of flow control meanwhile.
 *
 * Context: softirqs off, producer_lock and RCU read lock held.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller frees the packet.
 */
int nodrop_produce(struct nodrop_queue *q, void *packet, unsigned int bytes)
{
	int cpu = raw_smp_processor_id();

	/*
	 * Complete the driver's reads of the packet, made before it took the
	 * lock, before the consumer can free the packet for reuse:
	 * __ptr_ring_produce() orders writes only. Pairs with the consumer's
	 * dependency on the packet. Free on x86.
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	if (unlikely(__ptr_ring_produce(q->ring, packet))) {
		WRITE_ONCE(q->reserved, 0);
		return nodrop_count_drop(q);
	}
	WRITE_ONCE(q->produced, q->produced + 1);
	if (likely(q->reserved))
		WRITE_ONCE(q->reserved, q->reserved - 1);
	WRITE_ONCE(q->mean, q->mean + ((int)(bytes - q->mean) >> 3));
	if (cpu != READ_ONCE(q->cpu) && cpu != READ_ONCE(q->consumer_cpu))
		WRITE_ONCE(q->cpu, cpu);

	/* The qdisc may have been removed since nodrop_reserve(). */
	if (unlikely(!q->reserved) && !READ_ONCE(q->bypass_reason) &&
	    !nodrop_is_stopped(q) && nodrop_has_qdisc(q->txq) &&
	    !nodrop_look(q))
		nodrop_stop(q);
	if (!netdev_xmit_more())
		nodrop_hint(q);
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_produce);

/**
 * nodrop_produce_xdp() - put an XDP frame into the ring
 * @q: the queue
 * @frame: the frame
 *
 * No qdisc can queue it, so it may use the slack, and all but a batch of the
 * reserved slots, whose sender may be idle.
 *
 * Context: softirqs off, producer_lock and RCU read lock held.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller keeps the frame.
 */
int nodrop_produce_xdp(struct nodrop_queue *q, void *frame)
{
	unsigned int end = q->max, batch = 0;

	if (!q->bypass_reason) {
		batch = nodrop_batch(READ_ONCE(q->limit));
		end += NODROP_XDP_SLACK - min(q->reserved, batch);
		end = min(end, nodrop_bypass_share(q));
	}
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
	if (q->reserved > batch && nodrop_held(q) + q->reserved > q->max)
		WRITE_ONCE(q->reserved, q->reserved - 1);
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_produce_xdp);
