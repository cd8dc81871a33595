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
 * 1. Room first. nodrop_claim() is called before the skb is touched and sets
 *    the ring's next slot aside for it. No slot: the txq is stopped, a full
 *    barrier, and the ring is looked at again. If it is still full the sender
 *    gets NODROP_BUSY and the untouched skb goes back to the qdisc.
 * 2. Stop early. nodrop_produce() fills the claimed slot. When no slot is left
 *    for the next packet it stops the txq, a full barrier, and looks again. So
 *    rule 1 rarely has to say no.
 * 3. Release in batches. ptr_ring gives slots back 16 at a time. Only then
 *    does nodrop_consume() issue its full barrier, look at the txq and wake
 *    it if it is stopped.
 * 4. The guard. When the reader of a full ring takes nothing for a while
 *    (nodrop_guard_ms) the queue drops again, until the reader takes
 *    something. Nobody hangs because of a reader that went away.
 * 5. Strangers. A reader that takes the ring by itself and does not know the
 *    protocol would never wake anybody: nodrop_queue_foreign() makes the ring
 *    a dropping one, as it is without nodrop.
 *
 * Why nothing is lost and nobody sleeps for ever
 *
 *  - Between claim and produce the slot belongs to one packet. Others that
 *    share the ring without a qdisc behind them (XDP) go through
 *    nodrop_produce_aside(), which never takes the claimed slot.
 *  - Stop and wake are a store-buffering pair: the sender writes XOFF and then
 *    reads the ring; the reader writes the ring and then reads XOFF. With a
 *    full barrier on both sides at least one of them sees the other.
 *    Litmus: tests/litmus/SB+stop-mb-room+release-mb-xoff.litmus
 *  - A wake may come late and open a ring that is full again. Rule 1 makes
 *    that harmless: the next claim finds no room and stops the txq.
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
#include <linux/timer.h>

/**
 * enum nodrop_verdict - what nodrop_claim() says of a packet
 * @NODROP_PASS: this queue is not flow controlled now; a full ring drops
 * @NODROP_CLAIMED: the next slot is this packet's
 * @NODROP_BUSY: no room; the txq is stopped, give the packet back to the qdisc
 */
enum nodrop_verdict {
	NODROP_PASS,
	NODROP_CLAIMED,
	NODROP_BUSY,
};

/* Counters of one queue; all but the last are written by senders. */
enum nodrop_stat {
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_BUSY_RETURNS,	/* packets given back to the qdisc untouched */
	NODROP_GUARD_TRIPS,	/* times the reader was taken for gone */
	NODROP_DROP_NOQUEUE,	/* packets: no qdisc to hold it */
	NODROP_DROP_OFF,	/* packets: flow control off for the device */
	NODROP_DROP_FOREIGN,	/* packets: reader does not know the protocol */
	NODROP_DROP_GUARD,	/* packets: reader is gone */
	NODROP_DROP_NO_RING,	/* packets: txqueuelen 0 */
	NODROP_DROP_RESIZE,	/* packets: slot taken away by a resize */
	NODROP_DROP_ASIDE,	/* XDP frames: no slot but a claimed one */
	NODROP_WAKES,		/* times the reader woke the txq */
	NODROP_STATS
};

/**
 * struct nodrop_queue - flow control state of one ring
 * @ring: the ring
 * @txq: the txq that feeds the ring, NULL while nothing does
 * @foreign: the reader does not know the protocol
 * @gone: the reader has taken nothing for too long
 * @guard_looks: how often the guard has seen the same @taken
 * @guard_mark: @taken when the guard looked last
 * @guard: looks after the reader while the txq is stopped
 * @claim: the packet that owns the next slot, compared but never followed
 * @claim_txq: the txq that @claim came through
 * @stats: the senders' counters
 * @taken: packets the reader took
 * @wakes: NODROP_WAKES
 *
 * From @claim on written under producer_lock, from @taken on under
 * consumer_lock. Drivers put it behind structures of their own, where 256
 * bytes are left before the allocation grows into the next size.
 */
struct nodrop_queue {
	struct ptr_ring *ring;
	struct netdev_queue *txq;
	bool foreign;
	bool gone;
	u8 guard_looks;
	unsigned int guard_mark;
	struct timer_list guard;

	const void *claim ____cacheline_aligned_in_smp;
	struct netdev_queue *claim_txq;
	u64 stats[NODROP_WAKES];

	unsigned int taken ____cacheline_aligned_in_smp;
	u64 wakes;
};

extern const char *const nodrop_stat_names[NODROP_STATS];
extern unsigned int nodrop_guard_ms;

void nodrop_queue_init(struct nodrop_queue *q, struct ptr_ring *ring);
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_queue_foreign(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);

enum nodrop_verdict nodrop_claim(struct nodrop_queue *q,
				 struct netdev_queue *txq, const void *packet);
void nodrop_unclaim(struct nodrop_queue *q, const void *packet);
int nodrop_produce(struct nodrop_queue *q, void *packet);
int nodrop_produce_aside(struct nodrop_queue *q, void *frame);

void *nodrop_consume(struct nodrop_queue *q);

/* Between the files of the core. */
void nodrop_guard_init(struct nodrop_queue *q);
void nodrop_guard_arm(struct nodrop_queue *q);
void nodrop_guard_cancel(struct nodrop_queue *q);

#endif
