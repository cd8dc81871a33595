// SPDX-License-Identifier: GPL-2.0-only
/*
 * The senders' side: room first, then the packet, then stop early.
 */
#include <net/sch_generic.h>

#include "nodrop_flow.h"

/* Is there a qdisc that can keep what the ring has no room for? */
static bool nodrop_has_qdisc(const struct netdev_queue *txq)
{
	return rcu_access_pointer(txq->qdisc)->enqueue;
}

/* A ring of size 0 has no slot that could ever come free. */
static bool nodrop_has_room(const struct nodrop_queue *q)
{
	lockdep_assert_held(&q->ring->producer_lock);

	return q->ring->size && !__ptr_ring_full(q->ring);
}

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

/*
 * Stop @txq because the ring is full. False when the ring has room after all:
 * then the txq runs.
 */
static bool nodrop_stop(struct nodrop_queue *q, struct netdev_queue *txq)
{
	netif_tx_stop_queue(txq);
	/*
	 * Between writing XOFF and reading the ring. Pairs with the barrier
	 * in nodrop_release(): either we see the slot that the reader gave
	 * back, or the reader sees XOFF and wakes the txq.
	 * Litmus: SB+stop-mb-room+release-mb-xoff
	 */
	smp_mb__after_atomic();
	if (nodrop_has_room(q)) {
		/*
		 * A run of the qdisc on another CPU may have seen XOFF and
		 * left: start is not enough.
		 */
		netif_tx_wake_queue(txq);
		return false;
	}

	q->stats[NODROP_STOPS]++;
	nodrop_guard_arm(q);
	return true;
}

/* Why a full ring dropped a packet that had no claim on a slot. */
static enum nodrop_stat nodrop_drop_cause(const struct nodrop_queue *q)
{
	if (!q->ring->size)
		return NODROP_DROP_NO_RING;
	if (q->foreign)
		return NODROP_DROP_FOREIGN;
	if (READ_ONCE(q->gone))
		return NODROP_DROP_GUARD;
	if (q->txq && !nodrop_has_qdisc(q->txq))
		return NODROP_DROP_NOQUEUE;
	return NODROP_DROP_OFF;
}

/**
 * nodrop_claim() - make sure of a slot before the packet is touched
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @packet: the packet; only its address is used
 *
 * After NODROP_CLAIMED the caller either puts @packet into the ring with
 * nodrop_produce() or gives the slot up with nodrop_unclaim().
 *
 * Context: softirqs off, the transmit lock of @txq held, RCU read lock held.
 * Return: what to do with the packet.
 */
enum nodrop_verdict nodrop_claim(struct nodrop_queue *q,
				 struct netdev_queue *txq, const void *packet)
{
	enum nodrop_verdict verdict = NODROP_PASS;

	spin_lock(&q->ring->producer_lock);
	if (!q->txq || !q->ring->size || q->foreign ||
	    !nodrop_has_qdisc(txq))
		goto out;

	if (unlikely(q->claim)) {
		/*
		 * Two txqs lead to this ring while a queue takes the index of
		 * one that went. The other sender is in transmit right now:
		 * try again without stopping.
		 */
		q->stats[NODROP_BUSY_RETURNS]++;
		verdict = NODROP_BUSY;
		goto out;
	}

	if (likely(nodrop_has_room(q))) {
		verdict = NODROP_CLAIMED;
	} else if (likely(!READ_ONCE(q->gone))) {
		if (nodrop_stop(q, txq)) {
			q->stats[NODROP_BUSY_RETURNS]++;
			verdict = NODROP_BUSY;
		} else {
			verdict = NODROP_CLAIMED;
		}
	}

	if (verdict == NODROP_CLAIMED) {
		q->claim = packet;
		q->claim_txq = txq;
	}
out:
	spin_unlock(&q->ring->producer_lock);
	return verdict;
}

/**
 * nodrop_unclaim() - give a claimed slot up if it was not used
 * @q: the queue
 * @packet: the packet of the claim; it may be gone already
 *
 * Context: as nodrop_claim(), in the same hold of the transmit lock.
 */
void nodrop_unclaim(struct nodrop_queue *q, const void *packet)
{
	spin_lock(&q->ring->producer_lock);
	if (q->claim == packet)
		q->claim = NULL;
	spin_unlock(&q->ring->producer_lock);
}

/**
 * nodrop_produce() - put a packet into the ring
 * @q: the queue
 * @packet: the packet, claimed or not
 *
 * Context: softirqs off, producer_lock held.
 * Return: 0, or the error of __ptr_ring_produce(): the drop is counted here,
 * the caller frees the packet.
 */
int nodrop_produce(struct nodrop_queue *q, void *packet)
{
	bool claimed = q->claim == packet;
	int err;

	if (unlikely(q->claim && !claimed))
		return nodrop_produce_aside(q, packet);

	q->claim = NULL;
	err = __ptr_ring_produce(q->ring, packet);
	if (unlikely(err)) {
		q->stats[claimed ? NODROP_DROP_RESIZE :
			 nodrop_drop_cause(q)]++;
		return err;
	}

	if (claimed && !nodrop_has_room(q) && !READ_ONCE(q->gone))
		nodrop_stop(q, q->claim_txq);
	return 0;
}

/**
 * nodrop_produce_aside() - put in what no qdisc could hold
 * @q: the queue
 * @frame: the frame
 *
 * Never takes a slot that is claimed.
 *
 * Context: softirqs off, producer_lock held.
 * Return: 0, or a negative error when there is no slot for it: the drop is
 * counted here, the caller keeps the frame.
 */
int nodrop_produce_aside(struct nodrop_queue *q, void *frame)
{
	int err = -ENOSPC;

	if (!q->claim || nodrop_has_second_slot(q))
		err = __ptr_ring_produce(q->ring, frame);
	if (unlikely(err))
		q->stats[NODROP_DROP_ASIDE]++;
	return err;
}
