// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue's life: which txq feeds the ring, who reads it, what it counted.
 */
#include <linux/rtnetlink.h>

#include "nodrop_flow.h"

const char *const nodrop_stat_names[NODROP_STATS] = {
	[NODROP_STOPS]		= "stops",
	[NODROP_BUSY_RETURNS]	= "busy",
	[NODROP_GUARD_TRIPS]	= "guard_trips",
	[NODROP_DROP_NOQUEUE]	= "drop_noqueue",
	[NODROP_DROP_OFF]	= "drop_off",
	[NODROP_DROP_FOREIGN]	= "drop_foreign",
	[NODROP_DROP_GUARD]	= "drop_guard",
	[NODROP_DROP_NO_RING]	= "drop_no_ring",
	[NODROP_DROP_RESIZE]	= "drop_resize",
	[NODROP_DROP_ASIDE]	= "drop_xdp",
	[NODROP_WAKES]		= "wakes",
	[NODROP_KICKS]		= "kicks",
	[NODROP_KICKS_HERE]	= "kicks_here",
};

/* Both ring locks, the consumer's outside, as ptr_ring_resize() nests them. */
static void nodrop_lock(struct nodrop_queue *q)
{
	spin_lock_bh(&q->ring->consumer_lock);
	spin_lock(&q->ring->producer_lock);
}

static void nodrop_unlock(struct nodrop_queue *q)
{
	spin_unlock(&q->ring->producer_lock);
	spin_unlock_bh(&q->ring->consumer_lock);
}

/* Whatever stopped the txq before, the next claim finds out anew. */
static void nodrop_reopen(struct netdev_queue *txq)
{
	if (txq && netif_running(txq->dev))
		netif_tx_wake_queue(txq);
}

/**
 * nodrop_queue_init() - start with a queue that nothing feeds
 * @q: the queue, zeroed
 * @ring: its ring, initialised; must live as long as @q
 *
 * Context: any; nobody else may use @q yet.
 */
void nodrop_queue_init(struct nodrop_queue *q, struct ptr_ring *ring)
{
	q->ring = ring;
	q->cpu = -1;
	q->reader_cpu = -1;
	nodrop_guard_init(q);
	nodrop_kick_init(q);
}

/**
 * nodrop_queue_bind() - say which txq feeds the ring from now on
 * @q: the queue
 * @txq: the txq, or NULL when the ring leaves its device
 *
 * Wakes @txq, and the one before it, whatever their state, so that a change of
 * index, of the ring's size or of the reader can leave no txq stopped for
 * ever. Must be called with NULL before the txq goes away; nothing of the core
 * runs on behalf of @q afterwards.
 *
 * Context: process context, RTNL held.
 */
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq)
{
	struct netdev_queue *before = q->txq;

	ASSERT_RTNL();

	if (q->closed)
		txq = NULL;

	nodrop_lock(q);
	WRITE_ONCE(q->txq, txq);
	WRITE_ONCE(q->room, NULL);
	nodrop_reopen(txq);
	if (before != txq)
		nodrop_reopen(before);
	nodrop_unlock(q);

	if (!txq) {
		nodrop_guard_cancel(q);
		nodrop_kick_cancel(q);
	}
}

/**
 * nodrop_queue_close() - the ring is about to be freed
 * @q: the queue
 *
 * As nodrop_queue_bind() with NULL, and for good: until the driver has taken
 * the ring out of its tables it may come by with one more txq.
 *
 * Context: process context, RTNL held.
 */
void nodrop_queue_close(struct nodrop_queue *q)
{
	/* The guard writes the bits beside it under producer_lock. */
	nodrop_lock(q);
	q->closed = true;
	nodrop_unlock(q);
	nodrop_queue_bind(q, NULL);
}

/**
 * nodrop_queue_foreign() - the ring goes to a reader that wakes nobody
 * @q: the queue
 *
 * From now on a full ring drops, as it does without nodrop. It stays so for
 * the life of @q: such a reader does not say when it is done.
 *
 * Context: process context.
 */
void nodrop_queue_foreign(struct nodrop_queue *q)
{
	nodrop_lock(q);
	q->foreign = true;
	WRITE_ONCE(q->room, NULL);
	nodrop_reopen(q->txq);
	nodrop_unlock(q);
}

/**
 * nodrop_queue_stats() - a consistent copy of the counters
 * @q: the queue
 * @stats: where to, indexed by enum nodrop_stat
 *
 * Context: process context.
 */
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS])
{
	nodrop_lock(q);
	memcpy(stats, q->stats, sizeof(q->stats));
	memcpy(stats + NODROP_SENDER_STATS, q->reader_stats,
	       sizeof(q->reader_stats));
	nodrop_unlock(q);
}
