// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a queue: its txq, its consumer, its statistics.
 */
#include <linux/hashtable.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "internal.h"

const char *const nodrop_stat_names[NODROP_STATS] = {
	[NODROP_STOPS]		= "stops",
	[NODROP_STOPS_LIMIT]	= "stops_limit",
	[NODROP_GUARD_TRIPS]	= "guard_trips",
	[NODROP_DROP_NOQUEUE]	= "drop_noqueue",
	[NODROP_DROP_OFF]	= "drop_off",
	[NODROP_DROP_FOREIGN]	= "drop_foreign",
	[NODROP_DROP_GUARD]	= "drop_guard",
	[NODROP_DROP_UNCLAIMED]	= "drop_unclaimed",
	[NODROP_DROP_BYPASS]	= "drop_bypass",
	[NODROP_DROP_XDP]	= "drop_xdp",
	[NODROP_DROP_PURGED]	= "drop_purged",
	[NODROP_WAKES]		= "wakes",
	[NODROP_KICKS]		= "kicks",
	[NODROP_KICKS_HERE]	= "kicks_here",
	[NODROP_RING]		= "ring",
	[NODROP_LIMIT]		= "limit",
	[NODROP_PACE]		= "pace_ns",
	[NODROP_STALLED]	= "stalled_ms",
	[NODROP_TAKEN]		= "taken",
};
EXPORT_SYMBOL_GPL(nodrop_stat_names);

/*
 * The livepatch looks up the queue of each packet, and an unprivileged user may
 * have as many queues as open files: 2^12 rows keep the lookup short.
 */
static DEFINE_HASHTABLE(nodrop_queues, 12);
static DEFINE_MUTEX(nodrop_queues_lock);

/* nodrop_queue.on before nodrop_queue_bind() */
static const bool nodrop_never;

/**
 * nodrop_queue_create() - create a queue, bound to no txq
 * @ring: its ring, initialised, empty or in use by senders and a consumer that
 *	take its locks; nodrop_queue_destroy() alone does not need it
 * @key: for nodrop_queue_find()
 * @ops: the driver's
 *
 * Context: process context.
 * Return: the queue, NULL without memory.
 */
struct nodrop_queue *nodrop_queue_create(struct ptr_ring *ring,
					 const void *key,
					 const struct nodrop_ops *ops)
{
	struct nodrop_queue *q = kzalloc(sizeof(*q), GFP_KERNEL);

	if (!q)
		return NULL;
	q->ring = ring;
	q->key = key;
	q->ops = ops;
	q->on = &nodrop_never;
	q->limit = NODROP_LEAST;
	q->cpu = -1;
	q->busy_taken = -NODROP_BATCH;
	nodrop_guard_init(q);

	mutex_lock(&nodrop_queues_lock);
	nodrop_lock(q);
	q->max = ring->size;
	q->produced = nodrop_ring_count(ring);
	hash_add_rcu(nodrop_queues, &q->node, (unsigned long)key);
	nodrop_unlock(q);
	mutex_unlock(&nodrop_queues_lock);
	return q;
}
EXPORT_SYMBOL_GPL(nodrop_queue_create);

/**
 * nodrop_queue_hide() - hide a queue from nodrop_queue_find()
 * @q: the queue
 *
 * Call it before the owner of the key is freed. A caller that relies on RCU may
 * use the queue until it releases the read lock.
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
 * @q: the queue, bound to no txq; its ring may be freed already
 *
 * Context: process context; @q has no other user.
 */
void nodrop_queue_destroy(struct nodrop_queue *q)
{
	WARN_ON(q->txq);

	nodrop_queue_hide(q);
	/* nodrop_queue_find() may be passing it on its way to the next one. */
	kfree_rcu(q, rcu);
}
EXPORT_SYMBOL_GPL(nodrop_queue_destroy);

/**
 * nodrop_queue_find() - find a queue by its key
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
 * Void the budget, so that the next sender looks at what has changed. Wake
 * @txq and run its qdisc, unless the ring is full: else each change, such as
 * "down" and "up", would admit another packet to a ring that nobody reads.
 *
 * Context: producer_lock held; @txq feeds the ring, or did until now.
 */
void nodrop_reopen(struct nodrop_queue *q, struct netdev_queue *txq)
{
	q->budget = min(q->budget, 0);
	if (!txq)
		return;
	if (q->txq == txq && nodrop_is_stopped(txq) && !nodrop_drops(q, txq) &&
	    nodrop_held(q) >= READ_ONCE(q->limit)) {
		nodrop_guard_arm(q);
		return;
	}
	nodrop_xon(txq);
	if (!netif_running(txq->dev))
		return;
	/*
	 * Clear XOFF before __netif_schedule() reads the qdisc's defer_list
	 * (7.3): with packets there it leaves the run to their sender. Pairs
	 * with llist_del_all() in __dev_xmit_skb(), after which that run reads
	 * XOFF.
	 * Litmus: SB+open-mb-defer+take-mb-xoff
	 */
	smp_mb__after_atomic();
	netif_schedule_queue(txq);
}

/**
 * nodrop_queue_bind() - set the txq that feeds the ring
 * @q: the queue
 * @txq: the txq, or NULL when the queue is detached
 * @on: whether flow control is wanted; read again whenever the budget is used
 *	up. It outlives the binding.
 *
 * Leaves neither @txq nor the previous one stopped for ever. Must be called
 * again when the device is up, and with a NULL @txq before the txq is freed.
 *
 * Context: process context, RTNL held.
 */
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq,
		       const bool *on)
{
	struct netdev_queue *before = q->txq;

	ASSERT_RTNL();
	nodrop_lock(q);
	WRITE_ONCE(q->txq, txq);
	q->on = on;
	/* With another txq, or after "off", it has the whole guard_ms again. */
	if (before != txq || !READ_ONCE(*on)) {
		WRITE_ONCE(q->stalled, false);
		q->tripped = 0;
		q->guard_mark = q->taken;
	}
	if (before != txq) {
		q->woken = false;
		nodrop_reopen(q, before);
	} else if (txq && !nodrop_drops(q, txq) && nodrop_held(q) >= q->limit) {
		/* After "off" and "on". The consumer sees it: both locks. */
		set_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
	}
	nodrop_reopen(q, txq);
	nodrop_unlock(q);

	if (!txq)
		nodrop_guard_cancel(q);
}
EXPORT_SYMBOL_GPL(nodrop_queue_bind);

/**
 * nodrop_queue_unaware() - the ring is given to an unaware consumer
 * @q: the queue
 *
 * From now on a full ring drops, as it does without nodrop. This is for the
 * life of @q: such a consumer does not report when it is done.
 *
 * Context: process context.
 */
void nodrop_queue_unaware(struct nodrop_queue *q)
{
	nodrop_lock(q);
	WRITE_ONCE(q->unaware, true);
	q->woken = false;
	nodrop_reopen(q, q->txq);
	nodrop_unlock(q);
}
EXPORT_SYMBOL_GPL(nodrop_queue_unaware);

/**
 * nodrop_queue_poll() - for ndo_poll_controller
 * @q: the queue
 *
 * netpoll would spin with interrupts off while the txq is stopped. If its
 * packet finds no slot, it stops the txq again. Others may come before, to as
 * many txqs as are woken: not once they have used up much of the slack.
 *
 * Context: any, RCU read lock held; the device is up.
 */
void nodrop_queue_poll(struct nodrop_queue *q)
{
	struct netdev_queue *txq = READ_ONCE(q->txq);

	if (txq && nodrop_seen(q) < READ_ONCE(q->max) + NODROP_XDP_SLACK)
		nodrop_xon(txq);
}
EXPORT_SYMBOL_GPL(nodrop_queue_poll);

/**
 * nodrop_queue_stats() - copy the statistics of a queue
 * @q: the queue
 * @stats: a consistent copy, indexed by enum nodrop_stat
 *
 * Context: process context.
 */
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS])
{
	u64 stalled = 0;

	stats[NODROP_PACE] = 0;
	nodrop_lock(q);
	if (q->txq && nodrop_drops(q, q->txq) == NODROP_DROP_GUARD)
		stalled = jiffies64_to_msecs(jiffies - q->tripped) ?: 1;
	memcpy(stats, q->stats, sizeof(q->stats));
	stats[NODROP_RING] = nodrop_ring_count(q->ring);
	stats[NODROP_LIMIT] = q->limit;
	if (q->rate)
		stats[NODROP_PACE] = div64_u64(NODROP_MEAN_NS <<
					       NODROP_RATE_SHIFT, q->rate);
	stats[NODROP_STALLED] = stalled;
	stats[NODROP_TAKEN] = q->taken;
	nodrop_unlock(q);
}
EXPORT_SYMBOL_GPL(nodrop_queue_stats);
