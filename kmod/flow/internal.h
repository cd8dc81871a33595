/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of the core.
 */
#ifndef NODROP_INTERNAL_H
#define NODROP_INTERNAL_H

#include "nodrop_flow.h"

/* Below this txqueuelen the consumer runs the qdisc: an IPI costs more. */
#define NODROP_SMALL 32

/* The slack, see ring.c: for XDP frames, and what no sender gets */
#define NODROP_XDP_SLACK 32
#define NODROP_PUT_BACK (64 + SMP_CACHE_BYTES * 2 / sizeof(void *))
#define NODROP_SLACK (NODROP_XDP_SLACK + 2 * nr_cpu_ids + NODROP_PUT_BACK)

/* Time over which the consumer's pace is averaged; nodrop_queue.rate's shift */
#define NODROP_MEAN_NS (128ULL * NSEC_PER_MSEC)
#define NODROP_RATE_SHIFT 10

void nodrop_guard_init(struct nodrop_queue *q);
void nodrop_guard_arm(struct nodrop_queue *q);
void nodrop_guard_stopped(struct nodrop_queue *q);
void nodrop_guard_cancel(struct nodrop_queue *q);
bool nodrop_has_backlog(struct Qdisc *qdisc);
void nodrop_kick(struct Qdisc *qdisc, int cpu);
void nodrop_kick_init(void);
void nodrop_kick_exit(void);
void nodrop_reopen(struct nodrop_queue *q, struct netdev_queue *txq);

/* Both ring locks, the consumer's outside, as ptr_ring_resize() nests them. */
static inline void nodrop_lock(struct nodrop_queue *q)
{
	spin_lock_bh(&q->ring->consumer_lock);
	spin_lock(&q->ring->producer_lock);
}

static inline void nodrop_unlock(struct nodrop_queue *q)
{
	spin_unlock(&q->ring->producer_lock);
	spin_unlock_bh(&q->ring->consumer_lock);
}

/*
 * @taken was changed; a measurement begins with the next packet.
 * Context: both locks held.
 */
static inline void nodrop_restart(struct nodrop_queue *q)
{
	q->check_at = q->taken;
	q->busy_taken = q->taken - NODROP_BATCH;
	q->busy_since = 0;
}

/* Packets in a ring by its own indices; exact under both locks. */
static inline unsigned int nodrop_ring_count(const struct ptr_ring *ring)
{
	int head = READ_ONCE(ring->consumer_head);
	int n = ring->producer - head;

	if (!n && ring->size && READ_ONCE(ring->queue[head]))
		return ring->size;
	return n < 0 ? n + ring->size : n;
}

/*
 * Packets in the ring; exact under both locks. An unaware consumer does not
 * advance @taken.
 */
static inline unsigned int nodrop_held(const struct nodrop_queue *q)
{
	/*
	 * The slots of packets that were taken are free. Pairs with
	 * smp_store_release() in nodrop_took().
	 * Litmus: MP+slot-release-taken+acquire-slot
	 */
	unsigned int taken = smp_load_acquire(&q->taken);

	if (unlikely(q->unaware))
		return nodrop_ring_count(q->ring);
	return READ_ONCE(q->produced) - taken;
}

/* Free slots that make a new budget, at least. */
static inline unsigned int nodrop_batch(unsigned int limit)
{
	return clamp(limit / 4, 1U, NODROP_BATCH);
}

/* Context: RCU read lock held, or softirqs off. */
static inline struct Qdisc *nodrop_qdisc(const struct netdev_queue *txq)
{
	return rcu_dereference_check(txq->qdisc, rcu_read_lock_bh_held());
}

/* What a drop at a full ring counts as; 0: there is flow control. */
static inline enum nodrop_stat nodrop_drops(const struct nodrop_queue *q,
					    const struct netdev_queue *txq)
{
	if (unlikely(q->unaware))
		return NODROP_DROP_FOREIGN;
	if (!nodrop_has_qdisc(txq))
		return NODROP_DROP_NOQUEUE;
	if (!READ_ONCE(*q->on))
		return NODROP_DROP_OFF;
	return READ_ONCE(q->stalled) ? NODROP_DROP_GUARD : 0;
}

static inline bool nodrop_is_stopped(const struct netdev_queue *txq)
{
	return test_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
}

/* While the device is down the driver's bit stays set: tun.c has set it. */
static inline void nodrop_xon(struct netdev_queue *txq)
{
	set_mask_bits(&txq->state, netif_running(txq->dev) ?
		      QUEUE_STATE_ANY_XOFF : QUEUE_STATE_STACK_XOFF, 0);
}

/* Packets in the ring, without the locks: @taken may be ahead of @produced. */
static inline unsigned int nodrop_seen(const struct nodrop_queue *q)
{
	return max_t(int, nodrop_held(q), 0);
}

/* Copy the device's name, IFNAMSIZ bytes. Return the txq's index. */
static inline unsigned int nodrop_name(const struct nodrop_queue *q, char *name)
{
	if (!q->txq) {
		memset(name, 0, IFNAMSIZ);
		return 0;
	}
	memcpy(name, q->txq->dev->name, IFNAMSIZ);
	return q->txq - q->txq->dev->_tx;
}

#endif
