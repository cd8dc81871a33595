/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the core know of each other.
 */
#ifndef NODROP_INTERNAL_H
#define NODROP_INTERNAL_H

#include "nodrop_flow.h"

extern unsigned int nodrop_guard_ms;

void nodrop_guard_init(struct nodrop_queue *q);
void nodrop_guard_arm(struct nodrop_queue *q);
void nodrop_guard_cancel(struct nodrop_queue *q);
void nodrop_kick_init(struct nodrop_queue *q);
bool nodrop_kick(struct nodrop_queue *q, int cpu);
void nodrop_kick_cancel(struct nodrop_queue *q);
void nodrop_reopen(struct nodrop_queue *q, struct netdev_queue *txq);
unsigned int nodrop_in_front_of(const struct net_device *dev);
void nodrop_run_qdiscs(const struct nodrop_queue *q, struct netdev_queue *txq);

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

/* How many packets the queue holds; exact under both locks. */
static inline unsigned int nodrop_held(const struct nodrop_queue *q)
{
	return READ_ONCE(q->produced) - READ_ONCE(q->taken);
}

/* A ring of size 0 has no slot that could ever come free. */
static inline bool nodrop_has_slot(const struct nodrop_queue *q)
{
	lockdep_assert_held(&q->ring->producer_lock);

	return q->ring->size && !__ptr_ring_full(q->ring);
}

/* The next slot is free: it is the txq's. */
static inline void nodrop_keep_room(struct nodrop_queue *q)
{
	WRITE_ONCE(q->room, q->ring->queue);
	q->waits = false;
}

/* Copies the device's name, IFNAMSIZ bytes. Return: the txq's index. */
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
