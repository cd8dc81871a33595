/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of the core.
 */
#ifndef NODROP_INTERNAL_H
#define NODROP_INTERNAL_H

#include "nodrop_flow.h"

/* Below this txqueuelen the consumer runs the qdisc: an IPI costs more. */
#define NODROP_SMALL 32

/* Lower bounds of the limit: in general, for GSO packets, and for ACKs */
#define NODROP_FLOOR 48
#define NODROP_FLOOR_GSO 512
#define NODROP_GSO_BYTES 4096
#define NODROP_FLOOR_ACK 128
#define NODROP_ACK_BYTES 96

/* The slack, see ring.c; the first is the part of it for XDP frames */
#define NODROP_XDP_SLACK 32
#define NODROP_SLACK (112 + nr_cpu_ids + SMP_CACHE_BYTES * 2 / sizeof(void *))

extern unsigned int nodrop_guard_ms;

void nodrop_guard_init(struct nodrop_queue *q);
void nodrop_guard_arm(struct nodrop_queue *q);
void nodrop_guard_cancel(struct nodrop_queue *q);
void nodrop_kick_init(struct nodrop_queue *q);
bool nodrop_kick(struct nodrop_queue *q, int cpu);
void nodrop_kick_cancel(struct nodrop_queue *q);
void nodrop_reopen(struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_run_qdiscs(const struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_measure_dry(struct nodrop_queue *q);

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
	if (unlikely(q->unaware))
		return nodrop_ring_count(q->ring);
	return READ_ONCE(q->produced) - READ_ONCE(q->taken);
}

/* Slots that senders reserve at once, at least. */
static inline unsigned int nodrop_batch(unsigned int limit)
{
	return clamp(limit / 4, 1U, (unsigned int)NODROP_BATCH);
}

/* Context: RCU read lock held, or softirqs off. */
static inline struct Qdisc *nodrop_qdisc(const struct netdev_queue *txq)
{
	return rcu_dereference_check(txq->qdisc, rcu_read_lock_bh_held());
}

/*
 * Is @test true of the qdisc of @txq or, if @q is stale, of another txq? The
 * qdisc of a stopped txq cannot run.
 *
 * Context: as nodrop_qdisc().
 */
static __always_inline bool nodrop_any_qdisc(const struct nodrop_queue *q,
					     const struct netdev_queue *txq,
					     bool (*test)(struct Qdisc *qdisc))
{
	struct Qdisc *own = nodrop_qdisc(txq), *qdisc;
	struct netdev_queue *other;
	unsigned int i, n;

	if (test(own))
		return true;
	if (likely(!READ_ONCE(q->stale)))
		return false;
	/* If RTNL changes it now, nodrop_queue_bind() schedules the qdiscs. */
	n = READ_ONCE(txq->dev->real_num_tx_queues);
	for (i = 0; i < n; i++) {
		other = netdev_get_tx_queue(txq->dev, i);
		qdisc = nodrop_qdisc(other);
		if (qdisc != own && !netif_xmit_stopped(other) && test(qdisc))
			return true;
	}
	return false;
}

/*
 * Clear one of the bits that nodrop_stop() sets, after @stopped. Pairs with
 * smp_wmb() there.
 */
static inline void nodrop_clear(struct netdev_queue *txq, int xoff)
{
	/* Litmus: 2+2W+stop-wmb-stopped+wake-release-xon */
	clear_bit_unlock(xoff, &txq->state);
}

/* The driver's own bit stays while the device is down: tun.c has set it. */
static inline void nodrop_xon(struct netdev_queue *txq)
{
	nodrop_clear(txq, __QUEUE_STATE_STACK_XOFF);
	if (likely(netif_running(txq->dev)))
		nodrop_clear(txq, __QUEUE_STATE_DRV_XOFF);
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
