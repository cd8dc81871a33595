/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nodrop flow control: a ring that pushes back instead of dropping.
 *
 * One nodrop_queue stands beside one ptr_ring. Senders fill the ring through a
 * netdev_queue (txq) that has a qdisc; one consumer at a time empties it. A
 * packet that the qdisc can queue never meets a full ring, and the ring is no
 * longer than it must be. The core knows rings and txqs, and no driver.
 *
 *   qdisc -> sender                      queue                      consumer
 *              |  reserve: produced < reserved?                         |
 *              |  produce: produced++           taken++  <- consume     |
 *              |  produced == reserved: look at taken                   |
 *              |  no slots: XOFF, stopped = 1                           |
 *            (stopped)                  taken reaches wake_at: stopped = 0, XON
 *              |                        taken reaches kick_at, none sent: kick
 *            (the qdisc runs)           nothing to read: wait a moment, kick
 *
 * Limit. @max is txqueuelen. The ring's array is longer by slack: what the
 *   consumer puts back, XDP frames and packets of a detached queue find room
 *   beyond @max, and a smaller txqueuelen is a store. @limit is how many
 *   packets the consumer takes in nodrop_target_us, at most @max: limit.c.
 * Reserve. A sender makes sure of a slot before it touches the skb, without a
 *   lock: @reserved says how far it may produce. A reserved slot is always
 *   there. At @reserved it looks at @taken; fewer than a batch of slots: it
 *   stops the queue.
 * Stop and wake. The sender writes XOFF, @stopped, and then reads @taken; the
 *   consumer writes @taken and then reads @stopped. A full barrier on both
 *   sides: one of them sees the other. The consumer looks every few packets,
 *   at @wake_at, and when it finds nothing to read.
 *   Litmus: SB+stop-mb-taken+take-mb-stopped
 *   @stopped is ours alone. Each XOFF of ours comes before a @stopped = 1, and
 *   each @stopped = 0 before an XON, so that no XOFF lasts without @stopped. A
 *   queue that is woken though it has no slot is harmless: the next sender
 *   reserves none and stops it.
 *   Litmus: 2+2W+stop-wmb-stopped+wake-mb-xon
 * Kick. Whoever sends next after a wake runs the qdisc. If nobody did while
 *   half of the rest was read, or when there is nothing left, the consumer
 *   makes the senders' CPU run it by an interrupt: kick.c. It decides that
 *   under its lock (@todo) and does it after (nodrop_act()): nothing here runs
 *   or enables softirqs under a lock of the ring.
 * Notify once. While a burst goes on (xmit_more) the consumer is not called.
 * Stall guard. A consumer that takes nothing from a stopped queue for
 *   nodrop_guard_ms is stalled: the queue is woken, and a full ring drops until
 *   the consumer takes a packet. Nobody waits for ever: guard.c.
 * Unaware consumer. One that takes packets by itself would wake nobody: its
 *   ring drops, as without nodrop.
 *
 * Locks: the ring's own, consumer_lock outside producer_lock. What is written
 * under both may be read under either. consumer_lock is never taken in softirq
 * context.
 */
#ifndef NODROP_FLOW_H
#define NODROP_FLOW_H

#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/smp.h>
#include <linux/timer.h>
#include <net/sch_generic.h>

/**
 * enum nodrop_verdict - what nodrop_reserve() says of a packet
 * @NODROP_PASS: this queue pushes nothing back now; a full ring drops
 * @NODROP_RESERVED: there is a slot for it
 * @NODROP_BUSY: no slot; the txq is stopped, give the packet back to the qdisc
 */
enum nodrop_verdict {
	NODROP_PASS,
	NODROP_RESERVED,
	NODROP_BUSY,
};

/* What is reported of one queue. */
enum nodrop_stat {
	/* Written by senders, under producer_lock. */
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_STOPS_LIMIT,	/* of these: below txqueuelen */
	NODROP_BUSY_RETURNS,	/* packets given back to the qdisc untouched */
	NODROP_GUARD_TRIPS,	/* times the consumer was found stalled */
	NODROP_DROP_NOQUEUE,	/* packets: no qdisc to queue it */
	NODROP_DROP_OFF,	/* packets: flow control off for the device */
	NODROP_DROP_FOREIGN,	/* packets: consumer is unaware */
	NODROP_DROP_GUARD,	/* packets: consumer is stalled */
	NODROP_DROP_UNCLAIMED,	/* packets: none of these; is to stay 0 */
	NODROP_DROP_XDP,	/* XDP frames: beyond the slack */
	NODROP_DROP_PURGED,	/* packets in the ring when its queue left */
	NODROP_SENDER_STATS,

	/* Written by the consumer, under consumer_lock; first: txq woken. */
	NODROP_WAKES = NODROP_SENDER_STATS,
	NODROP_KICKS,		/* times another CPU was made to transmit */
	NODROP_KICKS_HERE,	/* times the consumer transmitted by itself */
	NODROP_COUNTERS,

	/* No counters: packets in the ring, how many may be, ns a packet. */
	NODROP_RING = NODROP_COUNTERS,
	NODROP_LIMIT,
	NODROP_PACE,
	NODROP_STATS
};

/*
 * All users of the core call this function. Its symbol has a number, which
 * changes with what is declared here: a driver that was built with another one
 * does not load.
 */
#define nodrop_check nodrop_check_protocol_3

/**
 * struct nodrop_queue - flow control state of one ring
 *
 * Written now and then, under both locks unless it says otherwise:
 * @ring: the ring; never changes
 * @txq: the txq that feeds the ring, NULL while nothing does
 * @max: packets that the ring may hold at most: txqueuelen
 * @consumer_cpu: where the consumer looked last; -1: never; consumer_lock
 * @unaware: the consumer does not know the protocol
 * @stalled: the consumer has taken nothing for too long
 * @stale: qdiscs of other txqs of the device may have packets for the ring
 *
 * Written by senders, under producer_lock unless it says otherwise:
 * @produced: packets of the txq that came into the ring
 * @extra: packets that came past the txq: XDP, those of a detached queue
 * @reserved: what @produced may reach before somebody looks at @taken again
 * @mean: of the packets' sizes, bytes
 * @cpu: the last CPU that sent, not counting @consumer_cpu; -1: none
 * @burst_cpu: the CPU that is amid a burst, -1: none; txq's lock
 * @notice: the consumer is to be called at the burst's end; txq's lock
 * @bypass: why packets pass without a slot, an enum nodrop_stat; 0: none does
 * @stats: the senders' counters
 *
 * Of the last stop; written by senders, but for @stopped, which both write:
 * @stopped: the txq was stopped by us and not woken since
 * @mark: @produced and @extra at that moment
 * @wake_at: what @taken must reach before the txq is woken; half way from there
 *	to @mark the senders' CPU is kicked
 *
 * Written by the consumer, under consumer_lock:
 * @taken: packets that left the ring
 * @check_at: what it must reach before the consumer looks at @stopped
 * @limit: packets that the ring may hold now
 * @floor: packets that are never too many below @max
 * @woken: it woke the txq and has not seen the senders go on
 * @todo: see to it that somebody runs the qdisc; taken without the lock
 * @pace: the last sample, ns a packet
 * @pace_taken, @pace_at: @taken and the time when a sample began; 0: none has
 * @consumer_stats: the consumer's counters, from NODROP_SENDER_STATS on
 *
 * Seldom used:
 * @kick: runs the qdisc on @cpu
 * @kicking: where @kick is; written by consumers and by @kick
 * @guard: samples @taken while the txq is stopped; producer_lock
 * @guard_mark: @taken in the last sample
 * @guard_samples: how often it was the same
 * @destroy: frees a packet
 * @key: what nodrop_queue_find() knows the queue by
 * @node: the list that nodrop_queue_find() looks through
 * @rcu: frees the queue when nobody looks through that list any more
 */
struct nodrop_queue {
	struct ptr_ring *ring;
	struct netdev_queue *txq;
	unsigned int max;
	int consumer_cpu;
	bool unaware;
	bool stalled;
	bool stale;

	unsigned int produced ____cacheline_aligned_in_smp;
	unsigned int extra;
	unsigned int reserved;
	unsigned int mean;
	int cpu;
	int burst_cpu;
	bool notice;
	u8 bypass;
	u64 stats[NODROP_SENDER_STATS];

	bool stopped ____cacheline_aligned_in_smp;
	unsigned int mark;
	unsigned int wake_at;

	unsigned int taken ____cacheline_aligned_in_smp;
	unsigned int check_at;
	unsigned int limit;
	unsigned int floor;
	bool woken;
	int todo;
	unsigned int pace;
	unsigned int pace_taken;
	u64 pace_at;
	u64 consumer_stats[NODROP_COUNTERS - NODROP_SENDER_STATS];

	call_single_data_t kick ____cacheline_aligned_in_smp;
	int kicking;
	struct timer_list guard;
	unsigned int guard_mark;
	u8 guard_samples;
	void (*destroy)(void *packet);
	const void *key;
	struct hlist_node node;
	struct rcu_head rcu;
};

/*
 * Is there a qdisc that can keep what the ring has no slot for? A txq that is
 * deactivated, as for a moment when txqueuelen changes, has the noop qdisc,
 * which looks like one: its own is the sleeping one.
 */
static inline bool nodrop_has_qdisc(const struct netdev_queue *txq)
{
	return rcu_access_pointer(txq->qdisc_sleeping)->enqueue;
}

extern const char *const nodrop_stat_names[NODROP_STATS];

/* A queue's life: queue.c. */
struct nodrop_queue *nodrop_queue_create(struct ptr_ring *ring,
					 const void *key,
					 void (*destroy)(void *packet));
void nodrop_queue_hide(struct nodrop_queue *q);
void nodrop_queue_destroy(struct nodrop_queue *q);
struct nodrop_queue *nodrop_queue_find(const void *key);
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_queue_unaware(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);
int nodrop_queue_detach(struct nodrop_queue *q, struct nodrop_queue *target);

/* The ring's length: ring.c. */
int nodrop_grow(struct nodrop_queue *q, unsigned int max);
void nodrop_resize(struct nodrop_queue *q, unsigned int max);
void nodrop_shrink(struct nodrop_queue *q);
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n);

/* Senders: produce.c. */
enum nodrop_verdict nodrop_reserve_slow(struct nodrop_queue *q,
					struct netdev_queue *txq, bool on);
int nodrop_produce(struct nodrop_queue *q, void *packet, unsigned int bytes);
int nodrop_produce_xdp(struct nodrop_queue *q, void *frame);

/* Consumers: consume.c, limit.c. */
void nodrop_check(struct nodrop_queue *q, bool dry);
void nodrop_measure(struct nodrop_queue *q);
bool nodrop_act_slow(struct nodrop_queue *q);

/* Packets between two samples of the consumer's pace, at least. */
#define NODROP_BATCH 16

/* The next packet; NULL: there is none, and the senders know. */
static __always_inline void *nodrop_take(struct nodrop_queue *q)
{
	void *packet = __ptr_ring_consume(q->ring);

	if (!packet) {
		nodrop_check(q, true);
		return NULL;
	}
	WRITE_ONCE(q->taken, q->taken + 1);
	if (unlikely(READ_ONCE(q->stalled)))
		WRITE_ONCE(q->stalled, false);
	if (unlikely((int)(q->taken - q->check_at) >= 0))
		nodrop_check(q, false);
	return packet;
}

/**
 * nodrop_consume() - take the next packet
 * @q: the queue
 *
 * Context: process context, softirqs on, consumer_lock held; the caller calls
 * nodrop_act() as soon as it has released it.
 * Return: the packet, NULL when there is none.
 */
static __always_inline void *nodrop_consume(struct nodrop_queue *q)
{
	if (unlikely(q->taken - q->pace_taken >= NODROP_BATCH))
		nodrop_measure(q);
	return nodrop_take(q);
}

/**
 * nodrop_consume_batched() - take several packets
 * @q: the queue
 * @packets: where to
 * @n: how many at most
 *
 * Context: as nodrop_consume().
 * Return: how many there were.
 */
static __always_inline int nodrop_consume_batched(struct nodrop_queue *q,
						  void **packets, int n)
{
	int i;

	/* A ring as short as one batch would run dry with each of them. */
	if (unlikely(q->floor < 4 * n))
		q->floor = 4 * n;
	if (q->taken - q->pace_taken >= NODROP_BATCH)
		nodrop_measure(q);
	for (i = 0; i < n; i++) {
		packets[i] = nodrop_take(q);
		if (!packets[i])
			break;
	}
	return i;
}

/**
 * nodrop_peek() - what nodrop_consume() would return
 * @q: the queue
 *
 * Context: as nodrop_consume().
 * Return: the packet, which stays where it is, or NULL.
 */
static inline void *nodrop_peek(struct nodrop_queue *q)
{
	void *packet = __ptr_ring_peek(q->ring);

	if (!packet)
		nodrop_check(q, true);
	return packet;
}

/**
 * nodrop_act() - do what was decided under consumer_lock
 * @q: the queue
 *
 * Context: process context, softirqs on, no lock of the ring held.
 * Return: true when there is something to read after that.
 */
static inline bool nodrop_act(struct nodrop_queue *q)
{
	return unlikely(READ_ONCE(q->todo)) && nodrop_act_slow(q);
}

/**
 * nodrop_reserve() - make sure of a slot before the packet is touched
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @on: whether flow control is wanted for the device
 *
 * After NODROP_RESERVED the caller may put one packet into the ring, or none.
 * Without a lock: nothing takes the last reserved slot away.
 * Litmus: MP+stop-lock-xoff+xon-lock-reserved
 *
 * Context: softirqs off, the transmit lock of @txq held, RCU read lock held.
 * Return: what to do with the packet.
 */
static inline enum nodrop_verdict nodrop_reserve(struct nodrop_queue *q,
						 struct netdev_queue *txq,
						 bool on)
{
	if (likely(on && nodrop_has_qdisc(txq) && READ_ONCE(q->txq) == txq &&
		   READ_ONCE(q->reserved) != READ_ONCE(q->produced)))
		return NODROP_RESERVED;
	return nodrop_reserve_slow(q, txq, on);
}

/**
 * nodrop_queue_stale() - packets may come from other txqs' qdiscs
 * @q: the queue
 * @stale: the device has txqs whose packets the driver leads to other queues
 *
 * Opening the txq makes its own qdisc run. With stale, the others' as well.
 *
 * Context: process context, RTNL held.
 */
static inline void nodrop_queue_stale(struct nodrop_queue *q, bool stale)
{
	WRITE_ONCE(q->stale, stale);
}

/**
 * nodrop_burst_begin() - a packet is about to be transmitted
 * @q: the queue
 *
 * While a burst goes on, nodrop_burst_holds() says so to whoever wants to
 * call the consumer.
 *
 * A queue that changes its index has two txqs for a moment, with a lock each:
 * what a burst writes is marked for that, and for whoever asks from elsewhere.
 *
 * Context: as nodrop_reserve(), from here to nodrop_burst_end().
 */
static inline void nodrop_burst_begin(struct nodrop_queue *q)
{
	if (netdev_xmit_more() || READ_ONCE(q->notice))
		WRITE_ONCE(q->burst_cpu, smp_processor_id());
}

/**
 * nodrop_burst_holds() - is the consumer to be called later?
 * @q: the queue
 *
 * Context: the caller has put a packet into the ring.
 * Return: true: nodrop_burst_end() will see to it. Not for XDP, which comes
 * from another CPU or after the burst.
 */
static inline bool nodrop_burst_holds(struct nodrop_queue *q)
{
	if (likely(READ_ONCE(q->burst_cpu) != raw_smp_processor_id()))
		return false;
	WRITE_ONCE(q->notice, true);
	return true;
}

/**
 * nodrop_burst_end() - the packet was transmitted, or not
 * @q: the queue
 * @txq: the txq that the packet came through
 *
 * A burst ends with its last packet or when its txq is stopped. What calls the
 * consumer has a full barrier before it looks whether the consumer sleeps.
 * Litmus: SB+burst-mb-sleeps+sleep-mb-ring
 *
 * Return: true when the caller must call the consumer now.
 */
static inline bool nodrop_burst_end(struct nodrop_queue *q,
				    const struct netdev_queue *txq)
{
	if (likely(READ_ONCE(q->burst_cpu) < 0))
		return false;
	WRITE_ONCE(q->burst_cpu, -1);
	if (!READ_ONCE(q->notice))
		return false;
	/* The consumer may wake it right now: then the burst goes on. */
	if (netdev_xmit_more() && !data_race(netif_xmit_stopped(txq)))
		return false;
	WRITE_ONCE(q->notice, false);
	return true;
}

#endif
