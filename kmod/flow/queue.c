// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue's life: which txq feeds the ring, who reads it, what it counted.
 */
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "internal.h"

const char *const nodrop_stat_names[NODROP_STATS] = {
	[NODROP_STOPS]		= "stops",
	[NODROP_STOPS_LIMIT]	= "stops_limit",
	[NODROP_BUSY_RETURNS]	= "busy",
	[NODROP_GUARD_TRIPS]	= "guard_trips",
	[NODROP_DROP_NOQUEUE]	= "drop_noqueue",
	[NODROP_DROP_OFF]	= "drop_off",
	[NODROP_DROP_FOREIGN]	= "drop_foreign",
	[NODROP_DROP_GUARD]	= "drop_guard",
	[NODROP_DROP_UNCLAIMED]	= "drop_unclaimed",
	[NODROP_DROP_XDP]	= "drop_xdp",
	[NODROP_DROP_PURGED]	= "drop_purged",
	[NODROP_WAKES]		= "wakes",
	[NODROP_KICKS]		= "kicks",
	[NODROP_KICKS_HERE]	= "kicks_here",
	[NODROP_RING]		= "ring",
	[NODROP_LIMIT]		= "limit",
	[NODROP_PACE]		= "pace_ns",
};
EXPORT_SYMBOL_GPL(nodrop_stat_names);

/*
 * The livepatch looks here with each packet, and an ordinary user has as many
 * queues as he may open files: 2^12 rows keep him from slowing down others.
 */
static DEFINE_HASHTABLE(nodrop_queues, 12);
static DEFINE_MUTEX(nodrop_queues_lock);

/**
 * nodrop_queue_create() - a queue that nothing feeds
 * @ring: its ring, initialised, empty or in use by senders and a consumer that
 *	take its locks; must live until nodrop_queue_detach()
 * @key: what nodrop_queue_find() is to know it by
 * @destroy: frees a packet; called in process context
 *
 * Context: process context.
 * Return: the queue, NULL when there is no memory.
 */
struct nodrop_queue *nodrop_queue_create(struct ptr_ring *ring,
					 const void *key,
					 void (*destroy)(void *packet))
{
	struct nodrop_queue *q = kzalloc(sizeof(*q), GFP_KERNEL);

	if (!q)
		return NULL;
	q->ring = ring;
	q->key = key;
	q->destroy = destroy;
	q->floor = NODROP_FLOOR;
	q->bypass_reason = NODROP_DROP_OFF;
	q->consumer_cpu = -1;
	q->cpu = -1;
	q->burst_cpu = -1;
	nodrop_guard_init(q);
	nodrop_kick_init(q);

	mutex_lock(&nodrop_queues_lock);
	nodrop_lock(q);
	q->max = ring->size;
	q->produced = nodrop_ring_count(ring);
	q->reserved = q->produced;
	hash_add_rcu(nodrop_queues, &q->node, (unsigned long)key);
	nodrop_unlock(q);
	mutex_unlock(&nodrop_queues_lock);
	return q;
}
EXPORT_SYMBOL_GPL(nodrop_queue_create);

/**
 * nodrop_queue_hide() - nodrop_queue_find() finds it no more
 * @q: the queue
 *
 * Before the owner of its key may be freed. Who relies on RCU to use it may
 * still do so for a grace period.
 *
 * Context: process context.
 */
void nodrop_queue_hide(struct nodrop_queue *q)
{
	mutex_lock(&nodrop_queues_lock);
	hash_del_rcu(&q->node);
	mutex_unlock(&nodrop_queues_lock);
}
EXPORT_SYMBOL_GPL(nodrop_queue_hide);

/**
 * nodrop_queue_destroy() - free a queue
 * @q: the queue, which has left its device if it ever had one; its ring may be
 *	gone already
 *
 * Context: process context; nobody else uses @q any more.
 */
void nodrop_queue_destroy(struct nodrop_queue *q)
{
	WARN_ON(q->txq);

	nodrop_kick_cancel(q);
	nodrop_queue_hide(q);
	/* nodrop_queue_find() may be looking past it at the next one. */
	kfree_rcu(q, rcu);
}
EXPORT_SYMBOL_GPL(nodrop_queue_destroy);

/**
 * nodrop_queue_find() - the queue of a consumer that knows the protocol
 * @key: as given to nodrop_queue_create()
 *
 * Context: any. Either the caller keeps the owner of @key alive, and its queue
 * with it, or it holds the RCU read lock for as long as it uses the queue.
 * Return: the queue or NULL.
 */
struct nodrop_queue *nodrop_queue_find(const void *key)
{
	struct nodrop_queue *q;

	rcu_read_lock();
	hash_for_each_possible_rcu(nodrop_queues, q, node, (unsigned long)key)
		if (q->key == key)
			break;
	rcu_read_unlock();
	return q;
}
EXPORT_SYMBOL_GPL(nodrop_queue_find);

/*
 * Whatever stopped the txq before, the next reservation finds out anew. Needs
 * no order between @stopped and XON: no sender stops the txq meanwhile, and a
 * consumer that wakes it orders its own.
 *
 * Context: producer_lock held; @txq feeds the ring, or did so.
 */
void nodrop_reopen(struct nodrop_queue *q, struct netdev_queue *txq)
{
	if (!txq || !netif_running(txq->dev))
		return;
	WRITE_ONCE(q->stopped, false);
	/*
	 * Not wake, which does nothing for a txq that runs: the consumer may
	 * have woken it and not have kicked yet.
	 */
	netif_tx_start_queue(txq);
	nodrop_run_qdiscs(q, txq);
}

/* What nodrop_hint() has told the qdisc is void. */
static void nodrop_unhint(struct netdev_queue *txq)
{
#ifdef CONFIG_BQL
	dql_reset(&txq->dql);
	WRITE_ONCE(txq->dql.adj_limit, txq->dql.limit);
#endif
}

/**
 * nodrop_queue_bind() - say which txq feeds the ring from now on
 * @q: the queue
 * @txq: the txq, or NULL when the ring leaves its device
 *
 * Wakes @txq, and the one before it, whatever their state, so that a change of
 * index or of the consumer can leave no txq stopped for ever. Must be called
 * with NULL before the txq goes away; nothing of the core runs on behalf of
 * @q afterwards.
 *
 * Context: process context, RTNL held.
 */
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq)
{
	struct netdev_queue *before = q->txq;

	ASSERT_RTNL();

	nodrop_lock(q);
	WRITE_ONCE(q->txq, txq);
	if (before != txq) {
		WRITE_ONCE(q->reserved, q->produced);
		if (!txq)
			WRITE_ONCE(q->bypass_reason, NODROP_DROP_OFF);
		/* A consumer that comes back gets the whole guard_ms again. */
		WRITE_ONCE(q->stalled, false);
		if (before) {
			nodrop_unhint(before);
			nodrop_reopen(q, before);
		}
	}
	nodrop_reopen(q, txq);
	nodrop_unlock(q);

	if (!txq) {
		nodrop_guard_cancel(q);
		nodrop_kick_cancel(q);
	}
}
EXPORT_SYMBOL_GPL(nodrop_queue_bind);

/**
 * nodrop_queue_stale() - other txqs' qdiscs may hold packets for the ring
 * @q: the queue
 * @stale: the driver assigns packets of other txqs to this ring
 *
 * A kick then runs the qdiscs of all txqs of the device.
 *
 * Context: process context, RTNL held.
 */
void nodrop_queue_stale(struct nodrop_queue *q, bool stale)
{
	WRITE_ONCE(q->stale, stale);
}
EXPORT_SYMBOL_GPL(nodrop_queue_stale);

/**
 * nodrop_queue_unaware() - the ring goes to a consumer that wakes nobody
 * @q: the queue
 *
 * From now on a full ring drops, as it does without nodrop. It stays so for
 * the life of @q: such a consumer does not say when it is done.
 *
 * Context: process context.
 */
void nodrop_queue_unaware(struct nodrop_queue *q)
{
	nodrop_lock(q);
	WRITE_ONCE(q->unaware, true);
	WRITE_ONCE(q->bypass_reason, NODROP_DROP_FOREIGN);
	WRITE_ONCE(q->woken, false);
	WRITE_ONCE(q->reserved, q->produced);
	nodrop_reopen(q, q->txq);
	nodrop_unlock(q);
}
EXPORT_SYMBOL_GPL(nodrop_queue_unaware);

/**
 * nodrop_queue_stats() - a consistent copy of the counters, and the ring's fill
 * @q: the queue
 * @stats: where to, indexed by enum nodrop_stat
 *
 * Context: process context.
 */
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS])
{
	nodrop_lock(q);
	memcpy(stats, q->stats, sizeof(q->stats));
	memcpy(stats + NODROP_SENDER_STATS, q->consumer_stats,
	       sizeof(q->consumer_stats));
	stats[NODROP_RING] = nodrop_ring_count(q->ring);
	stats[NODROP_LIMIT] = q->limit;
	stats[NODROP_PACE] = q->pace;
	nodrop_unlock(q);
}
EXPORT_SYMBOL_GPL(nodrop_queue_stats);
