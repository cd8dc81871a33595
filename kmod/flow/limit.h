/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The byte queue limit of the txq (struct dql), as far as the core uses it.
 *
 * Senders charge, the reader completes, and dql finds out how many bytes the
 * ring must hold so that the reader does not starve. The kernel's own
 * netdev_tx_completed_queue() is not used: it would wake the txq on the
 * reader's CPU, by another bit than ours.
 *
 * A limit is of no use to a ring of so few slots that ptr_ring releases them
 * one by one: such a ring is short by itself, and would pay for a completion
 * with every packet.
 */
#ifndef NODROP_LIMIT_H
#define NODROP_LIMIT_H

#include <linux/kcsan-checks.h>

#include "internal.h"

#define NODROP_LIMIT_MIN_RING 32

/*
 * What a ring may always hold below the administrator's limit_max, packets.
 * dql alone goes down to two packets when the senders are slow, and then the
 * reader sleeps and wakes up with each of them. GSO packets have many bytes,
 * but cost the reader little more than others, and their senders much when
 * they are held: with 256 of them 16 flows lost 3 % (docs/results.md).
 */
#define NODROP_FLOOR 64
#define NODROP_FLOOR_GSO 512
#define NODROP_GSO_BYTES 4096

#ifdef CONFIG_BQL
/* What was charged and not completed, bytes. */
static inline unsigned int nodrop_inflight(const struct nodrop_queue *q)
{
	if (!q->limited)
		return 0;
	return READ_ONCE(q->txq->dql.num_queued) -
	       READ_ONCE(q->txq->dql.num_completed);
}

/* Context: one of the ring's locks held. */
static inline bool nodrop_over_limit(const struct nodrop_queue *q)
{
	unsigned int bytes, held;

	if (!q->limited || likely(dql_avail(&q->txq->dql) >= 0))
		return false;
	bytes = nodrop_inflight(q);
	if (bytes > READ_ONCE(q->txq->dql.max_limit))
		return true;
	held = nodrop_held(q);
	if (bytes / NODROP_GSO_BYTES > held)
		return held >= NODROP_FLOOR_GSO;
	return held >= READ_ONCE(q->floor);
}

/*
 * More in flight than dql counts with? Its counters are 32 bits wide and go
 * round: a completion would be a BUG then. Only a ring that drops gets that
 * far, one of very many slots, with large packets that nobody reads.
 *
 * Context: as nodrop_over_limit().
 */
static inline bool nodrop_beyond_count(const struct nodrop_queue *q)
{
	return q->limited && unlikely(dql_avail(&q->txq->dql) < 0) &&
	       nodrop_inflight(q) > DQL_MAX_LIMIT;
}

/*
 * dql's senders and its reader have no lock in common: each marks what it
 * reads of the other's, and neither marks what it writes.
 *
 * Context: producer_lock held.
 */
static inline void nodrop_charge(struct nodrop_queue *q, unsigned int bytes)
{
	if (!q->limited)
		return;
	kcsan_disable_current();
	dql_queued(&q->txq->dql, bytes);
	kcsan_enable_current();
}

/* Context: consumer_lock held. */
static inline void nodrop_complete(struct nodrop_queue *q)
{
	if (!q->bytes)
		return;
	/*
	 * Between taking packets and reading what was charged. Pairs with the
	 * barrier of __ptr_ring_produce() in nodrop_produce(): more completed
	 * than charged is a BUG.
	 * Litmus: MP+charge-wmb-slot+take-rmb-queued
	 */
	smp_rmb();
	kcsan_disable_current();
	dql_completed(&q->txq->dql, q->bytes);
	kcsan_enable_current();
	q->bytes = 0;
}

static inline void nodrop_dql_reset(struct netdev_queue *txq)
{
	dql_reset(&txq->dql);
	/* dql_reset() leaves what dql_completed() derives from the rest. */
	txq->dql.adj_limit = txq->dql.limit;
}

/* What is allowed, bytes. */
static inline unsigned int nodrop_limit(const struct nodrop_queue *q)
{
	return q->limited ? READ_ONCE(q->txq->dql.limit) : 0;
}

#define nodrop_limits_possible() true

#else

static inline bool nodrop_over_limit(const struct nodrop_queue *q)
{
	return false;
}

static inline bool nodrop_beyond_count(const struct nodrop_queue *q)
{
	return false;
}

static inline void nodrop_charge(struct nodrop_queue *q, unsigned int bytes)
{
}

static inline void nodrop_complete(struct nodrop_queue *q)
{
}

static inline void nodrop_dql_reset(struct netdev_queue *txq)
{
}

static inline unsigned int nodrop_inflight(const struct nodrop_queue *q)
{
	return 0;
}

static inline unsigned int nodrop_limit(const struct nodrop_queue *q)
{
	return 0;
}

#define nodrop_limits_possible() false

#endif

/*
 * Begin to charge, or no longer; @fresh: the txq is another one, or what it
 * was charged with is void. Packets that the queue holds are not completed.
 *
 * Context: both of the ring's locks held.
 */
static inline void nodrop_update_limit(struct nodrop_queue *q, bool fresh)
{
	bool limited = nodrop_limits_possible() && q->txq && !q->foreign &&
		       q->ring->size >= NODROP_LIMIT_MIN_RING;

	if (!fresh && limited == q->limited)
		return;
	q->limited = limited;
	q->bytes = 0;
	q->uncharged = limited ? nodrop_held(q) : 0;
	if (q->txq)
		nodrop_dql_reset(q->txq);
}

#endif
