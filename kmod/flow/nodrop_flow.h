/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nodrop flow control: backpressure to the qdisc instead of a drop when a
 * ptr_ring is full.
 *
 * Stock: a driver's transmit function puts each packet into the ring, and drops
 * it if the ring is full; the qdisc never learns. Here the driver uses the ring
 * through a struct nodrop_queue. Senders fill it through one netdev_queue
 * (txq), one consumer at a time empties it. The sender that leaves too few free
 * slots stops the txq, so that the next packets wait in the qdisc, and the
 * consumer wakes it. The core knows rings and txqs, and no driver.
 *
 *   sender                              nodrop_queue                consumer
 *   produce: produced++, budget--                           consume: taken++
 *   at budget == 0, read taken:
 *     slots:   budget = free slots
 *     too few: XOFF, read taken again    at check_at, or if the ring is empty,
 *                                        read XOFF; at half the limit: XON
 *   (the qdisc queues packets)           at the next check, if the qdisc still
 *                                        has packets: kick
 *   (the sender's CPU runs the qdisc)
 *
 * Limit. @max is txqueuelen. @limit is what the consumer takes in a short time,
 *   at most @max: limit.c. The ring's array has a slack beyond @max: ring.c.
 * Budget. Packets that may enter before a sender reads @taken, which costs a
 *   cache miss. The sender of the last one reads it. If a batch of slots is
 *   free (1 to 16: a quarter of @limit), all free slots are the new budget,
 *   else it stops the txq. One CPU at a time runs the qdisc, and tests XOFF for
 *   each packet: the one that may be on its way goes into the slack.
 * Stop and wake. The txq runs again once the ring holds half of @limit. The
 *   sender sets XOFF and then reads @taken, the consumer writes @taken and then
 *   reads XOFF, with full barriers: at least one sees what the other wrote, and
 *   wakes the txq.
 *   Litmus: SB+stop-mb-taken+take-mb-xoff (proof/litmus)
 *   XOFF is the bit of byte queue limits: what comes past the qdisc heeds only
 *   the driver's, and so still finds a ring of @max slots.
 * Kick. The wake does not run the qdisc: a sender may. If at its next check the
 *   consumer finds packets in the qdisc that no CPU transmits, it kicks: an IPI
 *   makes @cpu, from which the packet of the stop was sent, run the qdisc. If
 *   that is its own, or txqueuelen below 32, the consumer runs it itself, in a
 *   softirq, when it releases consumer_lock: kick.c.
 * Guard. A consumer that does not take within guard_ms what the ring held at a
 *   stop is stalled: a timer wakes the txq, and the ring drops until the
 *   consumer keeps up again: guard.c.
 * Bypass. XDP frames, and packets that come past the qdisc, cannot wait. They
 *   may fill the ring up to @max; while the qdisc has packets, up to three
 *   quarters of @limit, and half while the txq is stopped.
 * Without flow control (no qdisc, off, an unaware or stalled consumer) a full
 * ring drops.
 *
 * Locks: the ring's own; consumer_lock nests outside producer_lock. Fields
 * written with both may be read with either. Softirqs never take consumer_lock.
 * Senders and the consumer run with softirqs off: a wake may raise one, which
 * must not run under a lock of the ring.
 */
#ifndef NODROP_FLOW_H
#define NODROP_FLOW_H

#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/skbuff.h>
#include <linux/timer.h>
#include <net/sch_generic.h>

/* Statistics of a queue. */
enum nodrop_stat {
	/* Counters of senders and the guard, under producer_lock. */
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_STOPS_LIMIT,	/* of these: by a limit below txqueuelen */
	NODROP_GUARD_TRIPS,	/* times the consumer was found stalled */
	/* Packets dropped: */
	NODROP_DROP_NOQUEUE,	/* the txq has no qdisc */
	NODROP_DROP_OFF,	/* flow control is off */
	NODROP_DROP_FOREIGN,	/* the consumer is unaware */
	NODROP_DROP_GUARD,	/* the consumer is stalled */
	NODROP_DROP_UNCLAIMED,	/* for no such reason: stays 0 */
	NODROP_DROP_BYPASS,	/* sent past the qdisc; no slot */
	NODROP_DROP_XDP,	/* XDP frames, but not those behind it */
	NODROP_DROP_PURGED,	/* detached, or put back; no slot */

	/* Counters of the consumer, under consumer_lock. */
	NODROP_WAKES,		/* by the consumer alone */
	NODROP_KICKS,		/* IPIs sent, or found on their way */
	NODROP_KICKS_HERE,	/* qdisc runs on its own CPU */
	NODROP_COUNTERS,

	/* Gauges. */
	NODROP_RING = NODROP_COUNTERS,	/* packets in the ring */
	NODROP_LIMIT,		/* packets it may hold now */
	NODROP_PACE,		/* ns the consumer takes for a packet */
	NODROP_STALLED,		/* ms since it was found stalled, or 0 */
	NODROP_TAKEN,		/* packets taken, modulo 2^32 */
	NODROP_STATS
};

/*
 * The version of this header, in the name of a function that all users call: a
 * module built with another one does not load, even without MODVERSIONS.
 */
#define nodrop_check nodrop_check_protocol_11

/**
 * struct nodrop_ops - what the core asks of a driver
 * @destroy: frees a packet; in process context, no lock held
 * @notify: wakes the consumer of the queue with this key; in softirqs, not
 *	after nodrop_queue_bind(q, NULL)
 */
struct nodrop_ops {
	void (*destroy)(void *packet);
	void (*notify)(const void *key);
};

/**
 * struct nodrop_queue - flow control of one ring
 *
 * @produced, @taken and what is compared with them count for ever and wrap.
 *
 * Written seldom, under both locks unless stated:
 * @ring: the ring; never changes
 * @txq: the txq that feeds the ring, NULL while unbound
 * @max: txqueuelen, at least 1
 * @on: whether flow control is wanted
 * @unaware: the consumer reads the ring past nodrop_consume()
 * @stalled: the consumer is stalled; producer_lock, but the consumer clears it
 *	without
 *
 * Written by senders, under producer_lock:
 * @produced: packets that entered the ring
 * @budget: as above; below 0: less packets that came after the stop
 * @cpu: from which the packet that caused the last stop was sent, or -1
 * @stopped_at: when that was, ns
 *
 * Written by the consumer, under consumer_lock:
 * @taken: packets that left the ring
 * @check_at: value of @taken at which the consumer reads XOFF again
 * @limit: packets that the ring may hold; a resize and the guard lower it
 * @woken: the txq was woken, and the ring was not empty since
 * @busy_taken: @taken when the measurement under way began, see limit.c
 * @busy_since: when that was, ns; 0: none is under way
 * @rate: packets the consumer takes in NODROP_MEAN_NS, shifted
 *
 * Slow path:
 * @stats: the counters, see enum nodrop_stat
 * @guard: timer, pending while the txq is stopped or a window is open;
 *	producer_lock
 * @tripped: jiffies when the consumer was last found stalled, or 0
 * @guard_mark: @produced when the guard's window began
 * @guard_ms: its length until now
 * @guard_stop: the same at the last stop; 0: none since it began
 * @ops: the driver's
 * @key: what nodrop_queue_find() is given
 * @node: links the queue to the table of that function
 * @rcu: frees the queue after a grace period
 */
struct nodrop_queue {
	struct ptr_ring *ring;
	struct netdev_queue *txq;
	unsigned int max;
	const bool *on;
	bool unaware;
	bool stalled;

	unsigned int produced ____cacheline_aligned_in_smp;
	int budget;
	int cpu;
	u64 stopped_at;

	unsigned int taken ____cacheline_aligned_in_smp;
	unsigned int check_at;
	unsigned int limit;
	bool woken;
	unsigned int busy_taken;
	u64 busy_since;
	u64 rate;

	u64 stats[NODROP_COUNTERS] ____cacheline_aligned_in_smp;
	struct timer_list guard;
	unsigned long tripped;
	unsigned int guard_mark;
	unsigned int guard_ms;
	unsigned int guard_stop;
	const struct nodrop_ops *ops;
	const void *key;
	struct hlist_node node;
	struct rcu_head rcu;
};

/*
 * Can the txq's qdisc queue packets? While the txq is deactivated, as when
 * txqueuelen changes, @qdisc is the noop qdisc, which has an enqueue function.
 */
static inline bool nodrop_has_qdisc(const struct netdev_queue *txq)
{
	return rcu_access_pointer(txq->qdisc_sleeping)->enqueue;
}

extern const char *const nodrop_stat_names[NODROP_STATS];

/* A queue's life: queue.c. */
struct nodrop_queue *nodrop_queue_create(struct ptr_ring *ring,
					 const void *key,
					 const struct nodrop_ops *ops);
void nodrop_queue_hide(struct nodrop_queue *q);
void nodrop_queue_destroy(struct nodrop_queue *q);
struct nodrop_queue *nodrop_queue_find(const void *key);
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq,
		       const bool *on);
void nodrop_queue_unaware(struct nodrop_queue *q);
void nodrop_queue_poll(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);
int nodrop_queue_detach(struct nodrop_queue *q);

/* Whose packets wait: egress.c. */
int nodrop_egress_add(struct net_device *dev);
void nodrop_egress_remove(struct net_device *dev);

/* The ring's length: ring.c. */
int nodrop_grow(struct nodrop_queue *q, unsigned int max);
void nodrop_resize(struct nodrop_queue *q, unsigned int max);
void nodrop_shrink(struct nodrop_queue *q);
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n);

/* Senders: produce.c. */
int nodrop_produce_last(struct nodrop_queue *q, struct sk_buff *skb);
int nodrop_produce_xdp(struct nodrop_queue *q, void *frame);

/* Consumers: consume.c, limit.c. */
void nodrop_check(struct nodrop_queue *q, bool empty);
void nodrop_measure(struct nodrop_queue *q, int n, unsigned int floor);

/* Lower bound of the limit if the consumer is fast; more for a batch */
#define NODROP_FLOOR 48U

/* The limit at first, and the least for a slow consumer */
#define NODROP_LEAST 4U

/* Packets between two looks at the other side, and at the clock, at most */
#define NODROP_BATCH 16U

/* The consumer took @n packets: its batch. */
static __always_inline void nodrop_took(struct nodrop_queue *q, int n,
					bool empty, unsigned int floor)
{
	if (unlikely(!n || q->taken - q->busy_taken >= NODROP_BATCH))
		nodrop_measure(q, n, floor);
	/*
	 * Clear the slots before counting them as free. Pairs with
	 * smp_load_acquire() in nodrop_held().
	 * Litmus: MP+slot-release-taken+acquire-slot
	 */
	smp_store_release(&q->taken, q->taken + n);
	if (unlikely(empty || (int)(q->taken - q->check_at) >= 0))
		nodrop_check(q, empty);
}

/**
 * nodrop_consume() - take the next packet
 * @q: the queue
 *
 * Context: process context, softirqs off, consumer_lock held.
 * Return: the packet, NULL when there is none.
 */
static __always_inline void *nodrop_consume(struct nodrop_queue *q)
{
	void *packet = __ptr_ring_consume(q->ring);

	nodrop_took(q, !!packet, !packet, NODROP_FLOOR);
	return packet;
}

/**
 * nodrop_consume_batched() - take several packets
 * @q: the queue
 * @packets: array for them
 * @n: its length
 *
 * Context: as nodrop_consume().
 * Return: how many were taken.
 */
static __always_inline int nodrop_consume_batched(struct nodrop_queue *q,
						  void **packets, int n)
{
	int taken = __ptr_ring_consume_batched(q->ring, packets, n);

	nodrop_took(q, taken, taken < n,
		    max_t(unsigned int, NODROP_FLOOR, 4 * n));
	return taken;
}

/**
 * nodrop_peek() - get the next packet without taking it
 * @q: the queue
 *
 * Context: as nodrop_consume().
 * Return: the packet, NULL when there is none.
 */
static inline void *nodrop_peek(struct nodrop_queue *q)
{
	void *packet = __ptr_ring_peek(q->ring);

	if (!packet)
		nodrop_took(q, 0, true, NODROP_FLOOR);
	return packet;
}

/**
 * nodrop_has_packets() - does the ring hold packets?
 * @q: the queue
 *
 * For a consumer that found none: a run of the qdisc that it caused may have
 * brought some.
 *
 * Context: any. Lockless: the answer may be outdated at once.
 * Return: true if it does, and the consumer is aware.
 */
static inline bool nodrop_has_packets(const struct nodrop_queue *q)
{
	return !READ_ONCE(q->unaware) &&
	       READ_ONCE(q->produced) != READ_ONCE(q->taken);
}

/**
 * nodrop_produce() - put a packet into the ring
 * @q: the queue
 * @skb: the packet, as given to ndo_start_xmit()
 *
 * Context: softirqs off, producer_lock and RCU read lock held.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller frees the packet.
 */
static __always_inline int nodrop_produce(struct nodrop_queue *q,
					  struct sk_buff *skb)
{
	/*
	 * Complete the driver's reads of the packet before the consumer can
	 * free it for reuse: __ptr_ring_produce() orders writes only. Pairs
	 * with the consumer's dependency on the packet. Free on x86.
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	if (unlikely(q->budget <= 1) ||
	    unlikely(__ptr_ring_produce(q->ring, skb)))
		return nodrop_produce_last(q, skb);
	WRITE_ONCE(q->produced, q->produced + 1);
	q->budget--;
	return 0;
}

#endif
