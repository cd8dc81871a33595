// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ring's length, and packets that come into it past the senders.
 *
 * The array is longer than txqueuelen by a slack: for slots that ptr_ring
 * releases in batches (two cache lines), XDP frames (32), packets that the
 * consumer puts back (a batch of 64) and packets of senders that follow a stop
 * or a wake that came too late: as many as CPUs until also the driver's bit is
 * set, and then one on its way on each. A new txqueuelen resizes it only if it
 * is too short.
 */
#include <linux/mutex.h>
#include <linux/rtnetlink.h>

#include "internal.h"

#define NODROP_ARRAY_MIN 512

/**
 * nodrop_grow() - make the ring's array long enough
 * @q: the queue
 * @max: the new txqueuelen
 *
 * The caller grows all queues of a device before it resizes the first, so that
 * all get their new size, or none.
 *
 * Context: process context, RTNL held.
 * Return: 0 or -ENOMEM.
 */
int nodrop_grow(struct nodrop_queue *q, unsigned int max)
{
	int size;

	ASSERT_RTNL();
	if (max > INT_MAX - (unsigned int)NODROP_SLACK)
		return -ENOMEM;
	size = max_t(int, max, NODROP_ARRAY_MIN) + NODROP_SLACK;
	if (q->ring->size >= size)
		return 0;
	return ptr_ring_resize(q->ring, size, GFP_KERNEL, q->ops->destroy);
}
EXPORT_SYMBOL_GPL(nodrop_grow);

/**
 * nodrop_resize() - set txqueuelen
 * @q: the queue, grown for it
 * @max: txqueuelen; 0 counts as 1
 *
 * Drops no packet.
 *
 * Context: process context, RTNL held.
 */
void nodrop_resize(struct nodrop_queue *q, unsigned int max)
{
	ASSERT_RTNL();
	max = max ?: 1;
	nodrop_lock(q);
	WRITE_ONCE(q->max, max);
	WRITE_ONCE(q->limit, min(q->limit, max));
	/* It may be beyond a shorter ring. */
	q->check_at = q->taken;
	nodrop_reopen(q, q->txq);
	nodrop_unlock(q);
}
EXPORT_SYMBOL_GPL(nodrop_resize);

/**
 * nodrop_shrink() - shorten the ring's array
 * @q: the queue, unaware and bound to no txq
 *
 * To txqueuelen. It stays as it is without memory, or if it holds more packets
 * than that.
 *
 * Context: process context, RTNL held.
 */
void nodrop_shrink(struct nodrop_queue *q)
{
	unsigned int held;

	ASSERT_RTNL();
	nodrop_lock(q);
	held = nodrop_held(q);
	nodrop_unlock(q);
	if (held <= q->max)
		ptr_ring_resize(q->ring, q->max, GFP_KERNEL, q->ops->destroy);
}
EXPORT_SYMBOL_GPL(nodrop_shrink);

/* Counts packets that ptr_ring_unconsume() finds no slot for. */
static DEFINE_MUTEX(nodrop_putting_back);
static int nodrop_no_slot;

/* Frees nothing: under the locks of the ring, freeing could run softirqs. */
static void nodrop_count_no_slot(void *packet)
{
	nodrop_no_slot++;
}

/**
 * nodrop_unconsume() - put packets back that the consumer did not use
 * @q: the queue
 * @packets: in the order in which nodrop_consume() returned them
 * @n: how many, a batch at most
 *
 * Context: process context, no lock of the ring held.
 */
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n)
{
	int i, lost;

	mutex_lock(&nodrop_putting_back);
	nodrop_no_slot = 0;
	nodrop_lock(q);
	WRITE_ONCE(q->taken, q->taken - n);
	nodrop_restart(q);
	nodrop_unlock(q);
	ptr_ring_unconsume(q->ring, packets, n, nodrop_count_no_slot);
	lost = nodrop_no_slot;

	/* Several consumers together may put back more than fits. */
	nodrop_lock(q);
	WRITE_ONCE(q->taken, q->taken + lost);
	nodrop_restart(q);
	q->stats[NODROP_DROP_PURGED] += lost;
	for (i = 0; i < lost && q->txq; i++)
		dev_core_stats_tx_dropped_inc(q->txq->dev);
	nodrop_unlock(q);
	mutex_unlock(&nodrop_putting_back);

	/* ptr_ring_unconsume() puts the last one back first. */
	for (i = 0; i < lost; i++)
		q->ops->destroy(packets[i]);
}
EXPORT_SYMBOL_GPL(nodrop_unconsume);

/**
 * nodrop_queue_detach() - detach a queue from its device, and empty it
 * @q: the queue; no sender reaches it any more
 *
 * Includes nodrop_queue_bind() with no txq.
 *
 * Context: process context, RTNL held.
 * Return: how many packets it held.
 */
int nodrop_queue_detach(struct nodrop_queue *q)
{
	void *packet;
	int lost = 0;

	nodrop_queue_bind(q, NULL, q->on);
	for (;;) {
		nodrop_lock(q);
		packet = __ptr_ring_consume(q->ring);
		if (packet) {
			WRITE_ONCE(q->taken, q->taken + 1);
			q->stats[NODROP_DROP_PURGED]++;
		}
		nodrop_restart(q);
		nodrop_unlock(q);
		if (!packet)
			return lost;
		q->ops->destroy(packet);
		lost++;
	}
}
EXPORT_SYMBOL_GPL(nodrop_queue_detach);
