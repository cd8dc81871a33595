/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nodrop flow control: a ring that pushes back instead of dropping.
 *
 * One nodrop_queue stands beside one ptr_ring. Senders fill the ring through
 * a netdev_queue (txq) that has a qdisc; one reader at a time empties it. The
 * aim is that a packet which a qdisc can hold never meets a full ring. This
 * core knows rings and txqs and nothing of the driver around them.
 *
 * The protocol, in the order in which a packet meets it
 *
 * 1. Room first. The slot that comes next belongs to the txq once a sender
 *    found it free (@room). nodrop_claim() is called before the skb is
 *    touched. No slot: the txq is stopped, a full barrier, and the ring is
 *    looked at again. If it is still full the sender gets NODROP_BUSY and the
 *    untouched skb goes back to the qdisc.
 * 2. Stop early. nodrop_produce() fills the slot. When no slot is left for the
 *    next packet it stops the txq, a full barrier, and looks again. So rule 1
 *    rarely has to say no.
 * 3. Release in batches. ptr_ring gives slots back 16 at a time. Only then
 *    does nodrop_consume() issue its full barrier and look at the txq.
 * 4. Ask before you knock. A reader that woke the txq itself would run its
 *    senders' whole transmit path. So when half of the ring is free it opens
 *    the txq and sets @asked, no more: a sender that comes by goes on and
 *    takes the question back. When three quarters are free and nobody came,
 *    or when the ring is empty and the qdisc is not, the reader knocks: it
 *    makes the senders' CPU run the qdisc.
 * 5. The guard. When the reader of a full ring takes nothing for a while
 *    (nodrop_guard_ms) the queue drops again, until the reader takes
 *    something. Nobody hangs because of a reader that went away.
 * 6. Strangers. A reader that takes the ring by itself and does not know the
 *    protocol would never wake anybody: nodrop_queue_foreign() makes the ring
 *    a dropping one, as it is without nodrop.
 *
 * Why nothing is lost and nobody sleeps for ever
 *
 *  - Transmit on one txq is serialised by the txq's lock, and others that
 *    share the ring without a qdisc behind them (XDP) go through
 *    nodrop_produce_aside(), which leaves the txq's slot alone.
 *  - Stop and release are a store-buffering pair: the sender writes XOFF and
 *    then reads the ring; the reader writes the ring and then reads XOFF. With
 *    a full barrier on both sides at least one of them sees the other.
 *    Litmus: tests/litmus/SB+stop-mb-room+release-mb-xoff.litmus
 *  - Only a sender behind which the qdisc runs takes a question back, and
 *    whoever sees the question sees the open txq, so that run goes on.
 *    Litmus: tests/litmus/MP+open-wmb-ask+answer-mb-xoff.litmus
 *  - A txq may be opened late, when its ring is full again. Rule 1 makes that
 *    harmless: the next claim finds no room and stops the txq.
 *    Litmus: tests/litmus/MP+fill-lock-produce+consume-data.litmus
 *
 * Locks
 *
 *  producer_lock, consumer_lock are the ring's own. The consumer's is the
 *  outer one. @ring, @txq and @foreign are written under both, so either is
 *  enough to read them. consumer_lock is never taken in softirq context.
 */
#ifndef NODROP_FLOW_H
#define NODROP_FLOW_H

#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/smp.h>
#include <linux/timer.h>
#include <net/sch_generic.h>

/**
 * enum nodrop_verdict - what nodrop_claim() says of a packet
 * @NODROP_PASS: this queue is not flow controlled now; a full ring drops
 * @NODROP_CLAIMED: there is a slot for it
 * @NODROP_BUSY: no room; the txq is stopped, give the packet back to the qdisc
 */
enum nodrop_verdict {
	NODROP_PASS,
	NODROP_CLAIMED,
	NODROP_BUSY,
};

/* Counters of one queue. */
enum nodrop_stat {
	/* Written by senders, under producer_lock. */
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_BUSY_RETURNS,	/* packets given back to the qdisc untouched */
	NODROP_GUARD_TRIPS,	/* times the reader was taken for gone */
	NODROP_DROP_NOQUEUE,	/* packets: no qdisc to hold it */
	NODROP_DROP_OFF,	/* packets: flow control off for the device */
	NODROP_DROP_FOREIGN,	/* packets: reader does not know the protocol */
	NODROP_DROP_GUARD,	/* packets: reader is gone */
	NODROP_DROP_NO_RING,	/* packets: txqueuelen 0 */
	NODROP_DROP_RESIZE,	/* packets: slot taken away by a resize */
	NODROP_DROP_ASIDE,	/* XDP frames: no slot but the txq's */
	NODROP_SENDER_STATS,

	/* Written by the reader, under consumer_lock; the first: txq opened. */
	NODROP_WAKES = NODROP_SENDER_STATS,
	NODROP_KICKS,		/* times it made the senders' CPU transmit */
	NODROP_KICKS_HERE,	/* times it had to transmit by itself */
	NODROP_STATS
};

/* What the reader has seen of the txq. */
enum nodrop_phase {
	NODROP_RUNNING,		/* not stopped when slots were last released */
	NODROP_STOPPED,		/* stopped; waits for half of the ring */
	NODROP_ASKED,		/* opened; waits for a sender to come by */
	NODROP_ANSWERED,	/* somebody came by, or opened it for us */
};

/**
 * struct nodrop_queue - flow control state of one ring
 * @ring: the ring
 * @txq: the txq that feeds the ring, NULL while nothing does
 * @foreign: the reader does not know the protocol
 * @gone: the reader has taken nothing for too long
 * @asked: the txq was opened and no sender has come by since
 * @closed: the ring leaves for good and is never bound again
 * @guard_open: the guard found the txq open when it looked last
 * @guard_looks: how often the guard has seen the same @taken
 * @guard_mark: @taken when the guard looked last
 * @guard: looks after the reader while the txq is stopped
 * @room: the array of @ring if its next slot is free and the txq's, else NULL.
 *	A resize changes the array, and so takes the slot away.
 * @on: flow control is wanted for the device
 * @kicking: @kick is on its way; written by the reader and by @kick
 * @cpu: the last CPU that filled the ring, not counting @reader_cpu; -1: none
 * @stats: the senders' counters
 * @kick: runs the qdisc on @cpu
 * @taken: packets the reader took
 * @since: @taken when the reader first saw the txq stopped
 * @phase: what the reader knows of the txq
 * @reader_cpu: where the reader last opened the txq; -1: never
 * @reader_stats: the reader's counters, from NODROP_SENDER_STATS on
 *
 * From @room on written under producer_lock, from @taken on under
 * consumer_lock. Drivers put it behind structures of their own, where 256
 * bytes are left before the allocation grows into the next size.
 */
struct nodrop_queue {
	struct ptr_ring *ring;
	struct netdev_queue *txq;
	bool foreign;
	bool gone;
	bool asked;
	bool closed : 1;
	bool guard_open : 1;
	u8 guard_looks : 6;
	unsigned int guard_mark;
	struct timer_list guard;

	void **room ____cacheline_aligned_in_smp;
	bool on;
	bool kicking;
	int cpu;
	u64 stats[NODROP_SENDER_STATS];
	call_single_data_t kick;

	unsigned int taken ____cacheline_aligned_in_smp;
	unsigned int since;
	enum nodrop_phase phase;
	int reader_cpu;
	u64 reader_stats[NODROP_STATS - NODROP_SENDER_STATS];
};

/* Is there a qdisc that can keep what the ring has no room for? */
static inline bool nodrop_has_qdisc(const struct netdev_queue *txq)
{
	return rcu_access_pointer(txq->qdisc)->enqueue;
}

extern const char *const nodrop_stat_names[NODROP_STATS];
extern unsigned int nodrop_guard_ms;

void nodrop_queue_init(struct nodrop_queue *q, struct ptr_ring *ring);
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_queue_close(struct nodrop_queue *q);
void nodrop_queue_foreign(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);

enum nodrop_verdict nodrop_find_room(struct nodrop_queue *q,
				     struct netdev_queue *txq, bool on);
int nodrop_produce(struct nodrop_queue *q, void *packet);
int nodrop_produce_aside(struct nodrop_queue *q, void *frame);

void nodrop_release(struct nodrop_queue *q);
void nodrop_ran_dry(struct nodrop_queue *q);

/**
 * nodrop_consume() - take the next packet out of the ring
 * @q: the queue
 *
 * Context: process context, softirqs on, consumer_lock held.
 * Return: the packet, NULL when there is none.
 */
static inline void *nodrop_consume(struct nodrop_queue *q)
{
	struct ptr_ring *ring = q->ring;
	void *packet = __ptr_ring_consume(ring);

	if (!packet) {
		if (unlikely(q->phase != NODROP_RUNNING))
			nodrop_ran_dry(q);
		return NULL;
	}

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

/**
 * nodrop_claim() - make sure of a slot before the packet is touched
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @on: whether flow control is wanted for the device
 *
 * After NODROP_CLAIMED the caller may put one packet into the ring, or none.
 *
 * Context: softirqs off, the transmit lock of @txq held, RCU read lock held.
 * Return: what to do with the packet.
 */
static inline enum nodrop_verdict nodrop_claim(struct nodrop_queue *q,
					       struct netdev_queue *txq,
					       bool on)
{
	void **room = READ_ONCE(q->room);

	if (!nodrop_has_qdisc(txq))
		return NODROP_PASS;
	if (likely(on && room && room == READ_ONCE(q->ring->queue) &&
		   READ_ONCE(q->txq) == txq))
		return NODROP_CLAIMED;
	return nodrop_find_room(q, txq, on);
}

/**
 * nodrop_empty() - is there nothing to read?
 * @q: the queue
 *
 * A reader that polls finds out this way that it has to wait; it need not
 * call nodrop_consume() in vain before it sleeps.
 *
 * Context: as nodrop_consume().
 * Return: true when nodrop_consume() would find nothing.
 */
static inline bool nodrop_empty(struct nodrop_queue *q)
{
	bool empty = __ptr_ring_empty(q->ring);

	if (empty && unlikely(q->phase != NODROP_RUNNING))
		nodrop_ran_dry(q);
	return empty;
}

/* Between the files of the core. */
void nodrop_guard_init(struct nodrop_queue *q);
void nodrop_guard_arm(struct nodrop_queue *q);
void nodrop_guard_cancel(struct nodrop_queue *q);
void nodrop_kick_init(struct nodrop_queue *q);
bool nodrop_kick(struct nodrop_queue *q, int cpu);
void nodrop_kick_cancel(struct nodrop_queue *q);

#endif
