// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reader's side: take a packet, and when slots were given back, wake.
 */
#include "nodrop_flow.h"

/* Slots were given back to the senders: wake the txq if it waits for them. */
static void nodrop_release(struct nodrop_queue *q)
{
	struct netdev_queue *txq = q->txq;

	/*
	 * Between freeing slots and reading XOFF. Pairs with the barrier in
	 * nodrop_stop().
	 * Litmus: SB+stop-mb-room+release-mb-xoff
	 */
	smp_mb();
	if (!txq || !netif_tx_queue_stopped(txq))
		return;

	/* A device that goes down stopped its txqs for another reason. */
	if (unlikely(!netif_running(txq->dev)))
		return;

	q->wakes++;
	/*
	 * With softirqs off, so that the wake's softirq runs here, at the end,
	 * and not through ksoftirqd. Softirqs never take consumer_lock.
	 */
	local_bh_disable();
	netif_tx_wake_queue(txq);
	local_bh_enable();
}

/**
 * nodrop_consume() - take the next packet out of the ring
 * @q: the queue
 *
 * Context: process context, softirqs on, consumer_lock held.
 * Return: the packet, NULL when there is none.
 */
void *nodrop_consume(struct nodrop_queue *q)
{
	struct ptr_ring *ring = q->ring;
	void *packet = __ptr_ring_consume(ring);

	if (!packet)
		return NULL;

	WRITE_ONCE(q->taken, q->taken + 1);
	if (unlikely(READ_ONCE(q->gone)))
		WRITE_ONCE(q->gone, false);
	/*
	 * ptr_ring frees taken slots in batches and moves its tail up to its
	 * head when it does.
	 */
	if (ring->consumer_tail == ring->consumer_head)
		nodrop_release(q);
	return packet;
}
