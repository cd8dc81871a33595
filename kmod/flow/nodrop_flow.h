/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nodrop flow control: backpressure to the qdisc instead of a drop when a
 * ptr_ring is full.
 *
 * Each ptr_ring has a struct nodrop_queue. Senders fill the ring through one
 * netdev_queue (txq); one consumer at a time empties it. While the txq has a
 * qdisc and the consumer makes progress, none of its packets is dropped for
 * want of a slot, and the ring holds no more than the consumer's rate needs.
 * The core knows rings and txqs, and no driver.
 *
 *   sender                              nodrop_queue                consumer
 *   reserve: reserved > 0?
 *   produce: produced++, reserved--                         consume: taken++
 *   at reserved == 0, read taken:
 *     slots:   reserve them
 *     too few: XOFF, stopped = 1,        at check_at, or if the ring is empty,
 *              read taken once more      read stopped; at wake_at, or if empty:
 *                                        stopped = 0, XON
 *   (the qdisc queues packets)           half way from wake_at to mark, or if
 *                                        empty, and no sender came: kick
 *   (the sender's CPU runs the qdisc)
 *
 * Limit. @max is txqueuelen. @limit is the number of packets that the consumer
 *   takes in target_us, a module parameter, clamped to @floor and @max:
 *   limit.c. The ring's array is longer than @max by a slack (ring.c), so a
 *   smaller txqueuelen only changes @max.
 * Reserve. A sender looks for a slot before it touches the packet, and takes no
 *   lock for that while slots are reserved (nodrop_reserved()). With none left
 *   it takes producer_lock and reads @taken: in nodrop_produce() after its
 *   packet is in the ring, or in nodrop_reserve(). It reserves all free slots,
 *   or stops the txq if fewer than a batch are free: 16 slots, or a quarter of
 *   a limit below 64.
 *   Transmit is lockless: before one sender fills the slot that it has seen,
 *   another sender, an XDP frame, a resize or the end of flow control may take
 *   it. Then the sender uses a slot of the slack, which has one for each CPU.
 *   So nodrop_produce() never drops. Without flow control, nodrop_reserve()
 *   drops if the ring is full, before the packet is touched.
 * Bypass. A stop sets the XOFF bit of byte queue limits, which only qdiscs
 *   heed. A sender past the qdisc may fill the ring up to @max; then its packet
 *   is dropped. One that sends a packet again if it comes back (pktgen) is
 *   stopped at the limit, by the driver's XOFF bit, too. XDP frames may use the
 *   slack and all but a batch of the reserved slots. While the qdisc has
 *   packets and no slot is reserved, both leave a quarter of @limit free. They
 *   suppress the kick, so they schedule the qdisc if it has packets.
 * Stop and wake. The sender sets @mark to @produced, and @wake_at to @mark less
 *   half of @limit. Then it sets XOFF, then @stopped, and reads @taken once
 *   more. If the consumer has come to @wake_at meanwhile, the sender wakes the
 *   txq itself and has the qdisc run. The consumer writes @taken and then reads
 *   @stopped. There is a full barrier on both sides (nodrop_stop(),
 *   nodrop_check()), so at least one of them sees what the other wrote. The
 *   consumer reads @stopped every 16 packets (every quarter of @limit if that
 *   is less) and when the ring is empty. Once it has seen @stopped, it also
 *   checks exactly at @wake_at.
 *   Litmus: SB+stop-mb-taken+take-mb-stopped (proof/litmus)
 *   The consumer's wake clears @stopped, then XOFF. It does not schedule the
 *   qdisc: the next sender, or else the kick, runs it. As a stop writes XOFF
 *   first and a wake @stopped first, the XOFF of a bound txq of a device that
 *   is up never remains set while @stopped is clear. @stopped without XOFF is
 *   harmless, and so is a needless wake: a sender that finds no slot stops the
 *   txq again and returns NETDEV_TX_BUSY.
 *   Litmus: 2+2W+stop-wmb-stopped+wake-release-xon
 * Kick. After a wake the consumer expects a sender. If none has come once it
 *   has taken half of the packets left at the wake (all, if the limit is below
 *   48), and the qdisc has packets, it kicks. The kick is an IPI that makes
 *   @cpu, the last CPU to send, run the qdisc. If the ring is empty, the
 *   consumer first busy-waits for a sender, for less time than an IPI takes,
 *   and kicks only if none has come. If there is no such CPU, or txqueuelen is
 *   below 32, it runs the qdisc on its own CPU.
 *   It sets @todo under consumer_lock, and nodrop_act() acts without locks: no
 *   code under a lock of the ring may run or enable softirqs.
 * Stall guard. A consumer that takes nothing for guard_ms while the txq is
 *   stopped is stalled. The guard's timer then wakes the txq and schedules the
 *   qdisc, and a full ring drops until the consumer takes a packet. So a
 *   consumer that takes nothing blocks no sender for much longer than guard_ms;
 *   one that takes a packet now and then may block them indefinitely.
 * Unaware consumer. One that bypasses nodrop_consume() would wake nothing.
 *   There is no flow control with it; a full ring drops.
 *
 * Locks: the ring's own; consumer_lock nests outside producer_lock. Fields
 * written with both held may be read with either. consumer_lock is never taken
 * in softirq context. Senders run with softirqs off, and so does any path that
 * takes both locks.
 */
#ifndef NODROP_FLOW_H
#define NODROP_FLOW_H

#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/smp.h>
#include <linux/timer.h>
#include <net/sch_generic.h>

/* Statistics of a queue. */
enum nodrop_stat {
	/* Counters of senders and the guard, under producer_lock. */
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_STOPS_LIMIT,	/* of these: by a limit below txqueuelen */
	NODROP_BUSY_RETURNS,	/* NETDEV_TX_BUSY returned */
	NODROP_GUARD_TRIPS,	/* times the consumer was found stalled */
	NODROP_DROP_NOQUEUE,	/* drops: the txq has no qdisc */
	NODROP_DROP_OFF,	/* drops: flow control is off */
	NODROP_DROP_FOREIGN,	/* drops: the consumer is unaware */
	NODROP_DROP_GUARD,	/* drops: the consumer is stalled */
	NODROP_DROP_UNCLAIMED,	/* drops for no such reason: stays 0 */
	NODROP_DROP_BYPASS,	/* drops: sent past the qdisc; no slot */
	NODROP_DROP_XDP,	/* XDP frames without a slot; the caller also
				 * drops the frames behind it in its batch
				 */
	NODROP_DROP_PURGED,	/* left by a detached queue, or put back, when
				 * there was no slot
				 */

	/* Counters of the consumer, under consumer_lock. */
	NODROP_WAKES,		/* by the consumer alone */
	NODROP_KICKS,		/* IPIs sent, or found on their way */
	NODROP_KICKS_HERE,	/* times it ran the qdisc on its own CPU */
	NODROP_COUNTERS,

	/* Gauges. */
	NODROP_RING = NODROP_COUNTERS,	/* packets in the ring */
	NODROP_LIMIT,		/* packets it may hold now */
	NODROP_PACE,		/* ns the consumer takes for a packet */
	NODROP_STATS
};

/*
 * The version of this header, in the name of a function that all users of the
 * core call: a module that was built with another version does not load, on
 * kernels without MODVERSIONS, too.
 */
#define nodrop_check nodrop_check_protocol_8

/**
 * struct nodrop_queue - flow control of one ring
 *
 * @produced, @taken and what is compared with them count for ever and wrap.
 *
 * Written seldom, under both locks unless stated:
 * @ring: the ring; never changes
 * @txq: the txq that feeds the ring, NULL while unbound
 * @max: txqueuelen, at least 1
 * @consumer_cpu: CPU on which the consumer last ran nodrop_check(), or -1;
 *	under consumer_lock
 * @unaware: the consumer reads the ring past nodrop_consume()
 * @stalled: the consumer has taken nothing for guard_ms; set by the guard under
 *	producer_lock, cleared by the consumer with its next packet, under
 *	consumer_lock
 * @stale: other txqs' qdiscs may hold packets for this ring, so whatever runs
 *	the qdisc of @txq also runs theirs
 *
 * Written by senders, under producer_lock unless stated:
 * @produced: packets that entered the ring
 * @reserved: slots that @txq's senders may fill before @taken is read again
 * @mean: running mean of packet lengths in bytes, for @limit and bulk dequeue
 * @cpu: last CPU that sent, other than @consumer_cpu, or -1
 * @bypass_reason: the NODROP_DROP_* that a full ring counts now, 0 while there
 *	is flow control
 * @keeps: the last sender that reserved sends a packet again if it comes back
 *
 * Written by the consumer, under consumer_lock:
 * @taken: packets that left the ring
 * @check_at: value of @taken at which the consumer reads @stopped again
 * @limit: packets that the ring may hold now; a resize clamps it
 * @floor: lower bound of @limit; @max takes precedence
 * @woken: the txq was woken, and no sender has been seen since; nodrop_act()
 *	sets it without the lock
 * @todo: work for nodrop_act(), which takes it over with xchg()
 * @pace: last sample of the consumer's pace, ns a packet
 * @pace_taken: @taken when the sample under way began
 * @pace_at: when that was, ns; 0: no sample is under way
 *
 * State of the last stop, written by the sender that stops the txq. It lies in
 * the cache line of @taken, which that sender reads anyway:
 * @stopped: the core has stopped the txq; set under producer_lock, cleared by a
 *	wake under either lock. May be set while XOFF is clear
 * @mark: @produced at the stop
 * @wake_at: value of @taken at which the consumer wakes the txq
 *
 * Slow path:
 * @stats: the counters, see enum nodrop_stat
 * @kick: the IPI
 * @kicking: its state, see kick.c
 * @guard: the guard's timer, pending while the txq is stopped; producer_lock
 * @guard_mark: @taken in its last sample
 * @guard_samples: consecutive samples with that value
 * @destroy: frees a packet
 * @key: what nodrop_queue_find() is given
 * @node: links the queue to the table of that function
 * @rcu: frees the queue after a grace period
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
	unsigned int reserved;
	unsigned int mean;
	int cpu;
	u8 bypass_reason;
	bool keeps;

	unsigned int taken ____cacheline_aligned_in_smp;
	unsigned int check_at;
	unsigned int limit;
	unsigned int floor;
	bool woken;
	int todo;
	unsigned int pace;
	unsigned int pace_taken;
	u64 pace_at;

	bool stopped;
	unsigned int mark;
	unsigned int wake_at;

	u64 stats[NODROP_COUNTERS] ____cacheline_aligned_in_smp;
	call_single_data_t kick;
	int kicking;
	struct timer_list guard;
	unsigned int guard_mark;
	unsigned int guard_samples;
	void (*destroy)(void *packet);
	const void *key;
	struct hlist_node node;
	struct rcu_head rcu;
};

/*
 * Can the txq's qdisc queue packets? Tests qdisc_sleeping: while the txq is
 * deactivated, as for a moment when txqueuelen changes, its qdisc is the noop
 * qdisc, which has an enqueue function, too.
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
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq,
		       bool stale);
void nodrop_queue_switched(struct nodrop_queue *q, bool on);
void nodrop_queue_unaware(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);
int nodrop_queue_detach(struct nodrop_queue *q, struct nodrop_queue *target);

/*
 * For ndo_poll_controller: netpoll spins with interrupts off while the txq is
 * stopped. Let it find out in nodrop_reserve() whether there is a slot. A
 * needless wake is harmless, and the stall guard goes by @stopped. The device
 * is up: netpoll keeps it from going down meanwhile.
 */
static inline void nodrop_poll(struct netdev_queue *txq)
{
	clear_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
	clear_bit(__QUEUE_STATE_DRV_XOFF, &txq->state);
}

/* Whose packets wait: egress.c. */
int nodrop_egress_add(struct net_device *dev);
void nodrop_egress_remove(struct net_device *dev);

/* The ring's length: ring.c. */
int nodrop_grow(struct nodrop_queue *q, unsigned int max);
void nodrop_resize(struct nodrop_queue *q, unsigned int max);
void nodrop_shrink(struct nodrop_queue *q);
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n);

/* Senders: produce.c. */
int nodrop_reserve(struct nodrop_queue *q, struct netdev_queue *txq, bool on,
		   bool keeps);
int nodrop_produce(struct nodrop_queue *q, void *packet, unsigned int bytes);
int nodrop_produce_xdp(struct nodrop_queue *q, void *frame);

/* Consumers: consume.c, limit.c. */
void nodrop_check(struct nodrop_queue *q, bool dry);
void nodrop_measure(struct nodrop_queue *q);
bool nodrop_act_slow(struct nodrop_queue *q);

/* Packets in a sample of the consumer's pace, at least. */
#define NODROP_BATCH 16

/*
 * Take the next packet. If the ring is empty, wake the txq if it is stopped
 * and return NULL.
 */
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
 * @packets: array for them
 * @n: its length
 *
 * Context: as nodrop_consume().
 * Return: how many were taken.
 */
static __always_inline int nodrop_consume_batched(struct nodrop_queue *q,
						  void **packets, int n)
{
	int i;

	/* With a limit of one batch each batch would empty the ring. */
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
		nodrop_check(q, true);
	return packet;
}

/**
 * nodrop_act() - do what was decided under consumer_lock
 * @q: the queue
 *
 * Context: process context, softirqs on, no lock of the ring held.
 * Return: true if the ring holds packets after that, so that the caller reads
 * again; false also if there was nothing to do.
 */
static inline bool nodrop_act(struct nodrop_queue *q)
{
	return unlikely(READ_ONCE(q->todo)) && nodrop_act_slow(q);
}

/**
 * nodrop_reserved() - is there a slot, as far as is known without a lock?
 * @q: the queue
 * @txq: the txq that the packet comes through
 *
 * If true, the caller may produce one packet. Else it calls nodrop_reserve().
 * So the latter alone checks whether flow control is wanted for the device, and
 * whether @txq has a qdisc: once the reserved slots are used up.
 *
 * Context: softirqs off from here to nodrop_produce(), RCU; nothing else
 * transmits to the ring on this CPU meanwhile.
 * Return: true if there is.
 */
static inline bool nodrop_reserved(const struct nodrop_queue *q,
				   const struct netdev_queue *txq)
{
	return likely(READ_ONCE(q->reserved) && READ_ONCE(q->txq) == txq);
}

#endif
