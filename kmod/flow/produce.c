// SPDX-License-Identifier: GPL-2.0-only
/*
 * The senders' side: room first, then the packet, then stop early.
 */
#include "limit.h"
#include "trace.h"

/* Is there a slot besides the one that comes next? */
static bool nodrop_has_second_slot(const struct nodrop_queue *q)
{
	const struct ptr_ring *ring = q->ring;
	int next = ring->producer + 1;

	lockdep_assert_held(&ring->producer_lock);

	if (next >= ring->size)
		next = 0;
	return ring->size > 1 && !READ_ONCE(ring->queue[next]);
}

/* Is there a slot for one more, and can its bytes be counted? */
static bool nodrop_has_room(const struct nodrop_queue *q)
{
	return nodrop_has_slot(q) && !nodrop_beyond_count(q);
}

/* Is there room for one more, in the ring and below the limit? */
static bool nodrop_has_both(const struct nodrop_queue *q)
{
	return nodrop_has_room(q) && !nodrop_over_limit(q);
}

/*
 * Stop the txq because the ring is full or over its limit. False when there is
 * room after all: then the txq runs.
 */
static bool nodrop_stop(struct nodrop_queue *q)
{
	if (q->limited) {
		WRITE_ONCE(q->full, nodrop_held(q));
		WRITE_ONCE(q->mark, q->produced);
	}
	netif_tx_stop_queue(q->txq);
	/*
	 * Between writing XOFF and reading the ring and the limit. Pairs with
	 * the barrier in nodrop_release(): either we see what the reader gave
	 * back, or the reader sees XOFF and opens the txq.
	 * Litmus: SB+stop-mb-room+release-mb-xoff
	 * Litmus: SB+charge-mb-limit+complete-mb-xoff
	 */
	smp_mb__after_atomic();
	if (nodrop_has_both(q)) {
		/*
		 * A run of the qdisc on another CPU may have seen XOFF and
		 * left: start is not enough.
		 */
		netif_tx_start_queue(q->txq);
		nodrop_run_qdiscs(q, q->txq);
		return false;
	}

	q->waits = true;
	q->stats[NODROP_STOPS]++;
	if (nodrop_has_room(q))
		q->stats[NODROP_STOPS_LIMIT]++;
	trace_nodrop_stop(q, nodrop_has_room(q));
	nodrop_guard_arm(q);
	return true;
}

/*
 * Why a full ring would drop a packet now; NODROP_DROP_UNCLAIMED: it would not,
 * senders are held. A reader that comes back clears @gone and a qdisc comes
 * without any lock of ours: who decides and then counts asks once.
 */
static enum nodrop_stat nodrop_drop_cause(const struct nodrop_queue *q)
{
	if (q->foreign)
		return NODROP_DROP_FOREIGN;
	if (q->txq && !nodrop_has_qdisc(q->txq))
		return NODROP_DROP_NOQUEUE;
	if (!q->on || !q->txq)
		return NODROP_DROP_OFF;
	if (READ_ONCE(q->gone))
		return NODROP_DROP_GUARD;
	return NODROP_DROP_UNCLAIMED;
}

/* Are packets held back when the ring is full? */
static bool nodrop_holds(const struct nodrop_queue *q)
{
	return nodrop_drop_cause(q) == NODROP_DROP_UNCLAIMED;
}

/* What becomes of a packet of the ring's own txq, and what it may rely on. */
static enum nodrop_verdict nodrop_decide(struct nodrop_queue *q, bool on)
{
	enum nodrop_verdict verdict = NODROP_PASS;
	enum nodrop_stat cause;

	WRITE_ONCE(q->on, on);
	WRITE_ONCE(q->room, NULL);
	cause = nodrop_drop_cause(q);
	if (cause != NODROP_DROP_UNCLAIMED) {
		if (nodrop_has_room(q) && on && !q->foreign)
			verdict = NODROP_CLAIMED;
	} else if (nodrop_has_room(q) || !nodrop_stop(q)) {
		verdict = NODROP_CLAIMED;
	} else {
		verdict = NODROP_BUSY;
	}

	WRITE_ONCE(q->passed, verdict == NODROP_PASS ? cause : 0);
	if (verdict == NODROP_CLAIMED)
		nodrop_keep_room(q);
	return verdict;
}

/**
 * nodrop_find_room() - the part of nodrop_claim() that takes the ring's lock
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @on: whether flow control is wanted for the device
 *
 * Context: as nodrop_claim().
 * Return: as nodrop_claim().
 */
enum nodrop_verdict nodrop_find_room(struct nodrop_queue *q,
				     struct netdev_queue *txq, bool on)
{
	enum nodrop_verdict verdict;

	/* Switched off, and known to be. */
	if (!on && !READ_ONCE(q->on))
		return NODROP_PASS;

	spin_lock(&q->ring->producer_lock);
	if (on && !q->foreign && q->txq != txq) {
		/*
		 * The ring is new to this txq, and packets come already.
		 * nodrop_queue_bind() is about to follow and opens the txq.
		 * The one before may be between claim and produce: what it
		 * relies on stays as it is.
		 */
		netif_tx_stop_queue(txq);
		verdict = NODROP_BUSY;
	} else {
		verdict = nodrop_decide(q, on);
	}

	if (verdict == NODROP_BUSY) {
		q->stats[NODROP_BUSY_RETURNS]++;
		trace_nodrop_busy(q, q->txq == txq);
	}
	spin_unlock(&q->ring->producer_lock);
	return verdict;
}
EXPORT_SYMBOL_GPL(nodrop_find_room);

/**
 * nodrop_produce() - put a packet into the ring
 * @q: the queue
 * @packet: the packet
 * @bytes: what it is charged with
 *
 * Context: softirqs off, producer_lock and RCU read lock held.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller frees the packet.
 */
int nodrop_produce(struct nodrop_queue *q, void *packet, unsigned int bytes)
{
	enum nodrop_stat cause, passed;
	int cpu = raw_smp_processor_id();

	if (unlikely(!nodrop_has_room(q))) {
		passed = READ_ONCE(q->passed);
		cause = nodrop_drop_cause(q);
		/* What let it through may be over, no slot was promised. */
		if (cause == NODROP_DROP_UNCLAIMED && !q->room && passed)
			cause = passed;
		q->stats[cause]++;
		return -ENOSPC;
	}

	/*
	 * The driver has read the packet's fields, before it took the lock, and
	 * __ptr_ring_produce() orders writes only: the reader could free the
	 * packet, and somebody fill it anew, before these reads are done. Pairs
	 * with the reader's dependency on the packet. Free on x86.
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();

	/*
	 * Before the reader can take the packet and complete its bytes. Pairs
	 * with the barrier in nodrop_complete(), by that of
	 * __ptr_ring_produce().
	 * Litmus: MP+charge-wmb-slot+take-rmb-queued
	 */
	nodrop_charge(q, bytes);
	WRITE_ONCE(q->produced, q->produced + 1);
	__ptr_ring_produce(q->ring, packet);
	if (cpu == READ_ONCE(q->reader_cpu))
		q->stats[NODROP_TX_ON_READER]++;
	else if (cpu != READ_ONCE(q->cpu))
		WRITE_ONCE(q->cpu, cpu);

	/* In a ring of one slot XDP has its chance between two packets. */
	if (unlikely(!nodrop_has_room(q) || q->ring->size == 1))
		WRITE_ONCE(q->room, NULL);
	if (unlikely(!nodrop_has_both(q)) && nodrop_holds(q))
		nodrop_stop(q);

	if (unlikely(READ_ONCE(q->asked)) && q->txq &&
	    qdisc_is_running(rcu_dereference(q->txq->qdisc))) {
		WRITE_ONCE(q->asked, false);
		/*
		 * Between taking the question back and the next look of the
		 * qdisc's run at XOFF. Pairs with the barrier in nodrop_ask():
		 * who sees the question sees the open txq.
		 * Litmus: MP+open-wmb-ask+answer-mb-xoff
		 */
		smp_mb();
	}
	return 0;
}
EXPORT_SYMBOL_GPL(nodrop_produce);

/**
 * nodrop_produce_aside() - put in what no qdisc could hold
 * @q: the queue
 * @frame: the frame
 *
 * Never takes the slot that is the txq's.
 *
 * Context: softirqs off, producer_lock held.
 * Return: 0, or a negative error when there is no slot for it: the drop is
 * counted here, the caller keeps the frame.
 */
int nodrop_produce_aside(struct nodrop_queue *q, void *frame)
{
	bool kept = q->room || (q->waits && q->ring->size > 1);

	if (!nodrop_has_slot(q) || (kept && !nodrop_has_second_slot(q))) {
		q->stats[NODROP_DROP_ASIDE]++;
		return -ENOSPC;
	}
	/*
	 * As in nodrop_produce().
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	WRITE_ONCE(q->produced, q->produced + 1);
	return __ptr_ring_produce(q->ring, frame);
}
EXPORT_SYMBOL_GPL(nodrop_produce_aside);
