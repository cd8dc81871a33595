/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nodrop flow control: a ring that pushes back instead of dropping.
 *
 * One nodrop_queue stands beside one ptr_ring. Senders fill the ring through
 * a netdev_queue (txq) that has a qdisc; one reader at a time empties it. The
 * aim is that a packet which a qdisc can hold never meets a full ring, and
 * that the ring is no longer than it must be. This core knows rings and txqs
 * and nothing of the driver around them.
 *
 * The protocol, in the order in which a packet meets it
 *
 * 1. Room first. The slot that comes next belongs to the txq once a sender
 *    found it free (@room). nodrop_claim() is called before the skb is
 *    touched. No slot: the txq is stopped, a full barrier, and the ring is
 *    looked at again. If it is still full the sender gets NODROP_BUSY and the
 *    untouched skb goes back to the qdisc.
 * 2. Stop early. nodrop_produce() fills the slot. When no slot is left for the
 *    next packet, or when the ring holds more bytes than the txq's byte queue
 *    limit, it stops the txq, a full barrier, and looks again. So rule 1
 *    rarely has to say no, and packets wait in the qdisc, not in the ring.
 * 3. Notify once. While a burst goes on (xmit_more) the reader is not called;
 *    at its end, or when the txq stops, it is: nodrop_burst_begin(), _end().
 * 4. Release in batches. ptr_ring gives slots back 16 at a time. Only then, or
 *    when it finds nothing to read, does the reader complete the bytes that it
 *    took, issue its full barrier and look at the txq.
 * 5. Ask before you knock. A reader that woke the txq itself would run its
 *    senders' whole transmit path. So when half of what stopped the txq is
 *    read it opens the txq and sets @asked, no more: a sender that comes by
 *    goes on and takes the question back. When three quarters are read and
 *    nobody came, or when the ring is empty and the qdisc is not, the reader
 *    knocks: it makes the senders' CPU run the qdisc. A small ring's reader
 *    runs it itself, which costs less than an interrupt, and reads on.
 * 6. The guard. When the reader of a stopped txq takes nothing for a while
 *    (nodrop_guard_ms) the ring drops again, until the reader takes
 *    something. Nobody hangs because of a reader that went away.
 * 7. Strangers. A reader that takes the ring by itself and does not know the
 *    protocol would never wake anybody: nodrop_queue_foreign() makes the ring
 *    a dropping one, as it is without nodrop.
 * 8. In front. Packets that lose their slot (the ring shrinks, a reader puts
 *    back what it took, another queue of the device goes) wait in front of
 *    the ring and are read first: inject.c.
 *
 * Why nothing is lost and nobody sleeps for ever
 *
 *  - Transmit on one txq is serialised by the txq's lock, and others that
 *    share the ring without a qdisc behind them (XDP) go through
 *    nodrop_produce_aside(), which leaves the txq's slot alone.
 *  - Stop and release are a store-buffering pair: the sender writes XOFF and
 *    then reads the ring and the limit; the reader writes them and then reads
 *    XOFF. With a full barrier on both sides one of them sees the other.
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
 *  outer one. What is said below to be written under both may be read under
 *  either. consumer_lock is never taken in softirq context.
 */
#ifndef NODROP_FLOW_H
#define NODROP_FLOW_H

#include <linux/netdevice.h>
#include <linux/prefetch.h>
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

/* What is told of one queue. */
enum nodrop_stat {
	/* Written by senders, under producer_lock. */
	NODROP_STOPS,		/* times the txq was stopped */
	NODROP_STOPS_LIMIT,	/* of these: by the byte limit, not the ring */
	NODROP_BUSY_RETURNS,	/* packets given back to the qdisc untouched */
	NODROP_TX_ON_READER,	/* packets filled in on the reader's CPU */
	NODROP_GUARD_TRIPS,	/* times the reader was taken for gone */
	NODROP_DROP_NOQUEUE,	/* packets: no qdisc to hold it */
	NODROP_DROP_OFF,	/* packets: flow control off for the device */
	NODROP_DROP_FOREIGN,	/* packets: reader does not know the protocol */
	NODROP_DROP_GUARD,	/* packets: reader is gone */
	NODROP_DROP_UNCLAIMED,	/* packets: none of these; is to stay 0 */
	NODROP_DROP_ASIDE,	/* XDP frames: no slot but the txq's */
	NODROP_DROP_PURGED,	/* packets in the ring when its reader left */
	NODROP_SENDER_STATS,

	/* Written by the reader, under consumer_lock; the first: txq opened. */
	NODROP_WAKES = NODROP_SENDER_STATS,
	NODROP_KICKS,		/* times it made the senders' CPU transmit */
	NODROP_KICKS_HERE,	/* times it transmitted by itself */
	NODROP_COUNTERS,

	/* Not a counter: packets that the queue holds now. */
	NODROP_RING = NODROP_COUNTERS,
	NODROP_STATS
};

/* What the reader has seen of the txq. */
enum nodrop_phase {
	NODROP_RUNNING,		/* not stopped when slots were last released */
	NODROP_STOPPED,		/* stopped; waits until enough is read */
	NODROP_ASKED,		/* opened; waits for a sender to come by */
	NODROP_ANSWERED,	/* somebody came by, or opened it for us */
};

struct nodrop_front;

/*
 * All users of the core call this function. Its symbol has a number, which
 * changes with what is declared here: a driver that was built with another one
 * does not load.
 */
#define nodrop_release nodrop_release_protocol_1

/**
 * struct nodrop_queue - flow control state of one ring
 *
 * Read by all, written now and then:
 * @ring: the ring; never changes
 * @txq: the txq that feeds the ring, NULL while nothing does; both locks
 * @reader_cpu: where the reader last gave slots back; -1: never; consumer_lock
 * @floor: how many packets are never too many for the byte limit
 * @foreign: the reader does not know the protocol; both locks
 * @limited: bytes are charged to the txq's byte queue limit; both locks
 * @strays: qdiscs of other txqs of the device may hold packets for the ring
 * @gone: the reader has taken nothing for too long
 * @asked: the txq was opened and no sender has come by since
 *
 * Written by senders, under producer_lock unless it says otherwise:
 * @room: the array of @ring if its next slot is free and the txq's, else NULL.
 *	A resize changes the array, and so takes the slot away.
 * @produced: packets that came into the queue
 * @full: how many it held when the txq was last stopped; only if @limited
 * @mark: @produced at that moment; what comes later, past the txq, is not
 *	waited for
 * @cpu: the last CPU that sent, not counting @reader_cpu; -1: none
 * @burst_cpu: the CPU that is amid a burst, -1: none; txq's lock
 * @notice: the reader is to be called at the burst's end; txq's lock
 * @waits: the txq was stopped and has claimed no slot since: the next one is
 *	kept for it, unless there is only one
 * @on: flow control is wanted for the device
 * @passed: why the last packet was let through without a slot, an enum
 *	nodrop_stat, 0: it was not; txq's lock
 * @kicking: where @kick is; written by the reader and by @kick
 * @stats: the senders' counters
 *
 * Written by the reader, under consumer_lock:
 * @taken: packets that left the queue
 * @bytes: taken, charged and not yet completed
 * @since: @taken when the reader first saw the txq stopped
 * @uncharged: so many of the next packets are not to be completed; both locks
 * @phase: what the reader knows of the txq
 * @in_front: how many packets of @front are still to be read; both locks to
 *	add some
 * @reader_stats: the reader's counters, from NODROP_SENDER_STATS on
 *
 * Seldom used:
 * @kick: runs the qdisc on @cpu
 * @guard: looks after the reader while the txq is stopped; producer_lock for
 *	all that belongs to it
 * @guard_mark: @taken when the guard looked last
 * @guard_looks: how often the guard has seen the same @taken
 * @guard_open: the guard found the txq open when it looked last
 * @front: packets in front of the ring; both locks
 * @destroy: frees a packet
 * @key: what nodrop_queue_find() knows the queue by
 * @node: the list that nodrop_queue_find() looks through
 * @rcu: frees the queue when nobody looks through that list any more
 */
struct nodrop_queue {
	struct ptr_ring *ring;
	struct netdev_queue *txq;
	int reader_cpu;
	unsigned int floor;
	bool foreign;
	bool limited;
	bool strays;
	bool gone;
	bool asked;

	void **room ____cacheline_aligned_in_smp;
	unsigned int produced;
	unsigned int full;
	unsigned int mark;
	int cpu;
	int burst_cpu;
	bool notice;
	bool waits;
	bool on;
	u8 passed;
	u8 kicking;
	u64 stats[NODROP_SENDER_STATS];

	unsigned int taken ____cacheline_aligned_in_smp;
	unsigned int since;
	unsigned int bytes;
	unsigned int uncharged;
	enum nodrop_phase phase;
	unsigned int in_front;
	u64 reader_stats[NODROP_COUNTERS - NODROP_SENDER_STATS];

	call_single_data_t kick ____cacheline_aligned_in_smp;
	struct timer_list guard;
	unsigned int guard_mark;
	u8 guard_looks;
	bool guard_open;
	struct nodrop_front *front;
	void (*destroy)(void *packet);
	const void *key;
	struct hlist_node node;
	struct rcu_head rcu;
};

/* How many bytes a packet is charged with; the same at both ends. */
typedef unsigned int nodrop_bytes_t(const void *packet);

/*
 * Is there a qdisc that can keep what the ring has no room for? A txq that is
 * deactivated, as for a moment when txqueuelen changes, has the noop qdisc,
 * which looks like one: its own is the sleeping one.
 */
static inline bool nodrop_has_qdisc(const struct netdev_queue *txq)
{
	return rcu_access_pointer(txq->qdisc_sleeping)->enqueue;
}

extern const char *const nodrop_stat_names[NODROP_STATS];

/* A queue's life: queue.c, inject.c. */
struct nodrop_queue *nodrop_queue_create(struct ptr_ring *ring,
					 const void *key,
					 void (*destroy)(void *packet));
void nodrop_queue_hide(struct nodrop_queue *q);
void nodrop_queue_destroy(struct nodrop_queue *q);
struct nodrop_queue *nodrop_queue_find(const void *key);
void nodrop_queue_bind(struct nodrop_queue *q, struct netdev_queue *txq);
void nodrop_queue_foreign(struct nodrop_queue *q);
void nodrop_queue_stats(struct nodrop_queue *q, u64 stats[NODROP_STATS]);
void nodrop_queue_strays(struct nodrop_queue *q, bool strays);
void nodrop_queue_batches(struct nodrop_queue *q, unsigned int n);
int nodrop_queue_resize(struct nodrop_queue *q, int size);
int nodrop_queue_leave(struct nodrop_queue *q, struct nodrop_queue *heir);

/* Senders: produce.c. */
enum nodrop_verdict nodrop_find_room(struct nodrop_queue *q,
				     struct netdev_queue *txq, bool on);
int nodrop_produce(struct nodrop_queue *q, void *packet, unsigned int bytes);
int nodrop_produce_aside(struct nodrop_queue *q, void *frame);

/* Readers: consume.c, inject.c. */
void nodrop_release(struct nodrop_queue *q);
bool nodrop_ran_dry(struct nodrop_queue *q);
void *nodrop_take_front(struct nodrop_queue *q);
void *nodrop_peek(struct nodrop_queue *q);
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n);

/*
 * Nothing to read: is there anything to do for the senders? Return: true when
 * there is something to read after that.
 */
static inline bool nodrop_found_nothing(struct nodrop_queue *q)
{
	if (unlikely(q->phase != NODROP_RUNNING || q->bytes))
		return nodrop_ran_dry(q);
	return false;
}

/* The next packet, and what it means for the senders; NULL: there is none. */
static __always_inline void *nodrop_take(struct nodrop_queue *q,
					 nodrop_bytes_t *bytes)
{
	struct ptr_ring *ring = q->ring;
	void *packet;

	/* A small ring's reader is likely to open the txq. */
	if (q->phase != NODROP_RUNNING && ring->batch == 1)
		prefetchw(&q->txq->state);
	if (unlikely(q->in_front))
		packet = nodrop_take_front(q);
	else
		packet = __ptr_ring_consume(ring);
	if (!packet)
		return NULL;

	WRITE_ONCE(q->taken, q->taken + 1);
	if (unlikely(q->uncharged))
		q->uncharged--;
	else if (q->limited)
		q->bytes += bytes(packet);
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
 * nodrop_consume() - take the next packet
 * @q: the queue
 * @bytes: tells how many bytes a packet was charged with
 *
 * Context: process context, softirqs on, consumer_lock held.
 * Return: the packet, NULL when there is none.
 */
static __always_inline void *nodrop_consume(struct nodrop_queue *q,
					    nodrop_bytes_t *bytes)
{
	void *packet = nodrop_take(q, bytes);

	if (!packet && nodrop_found_nothing(q))
		packet = nodrop_take(q, bytes);
	return packet;
}

/**
 * nodrop_consume_batched() - take several packets
 * @q: the queue
 * @packets: where to
 * @n: how many at most
 * @bytes: as for nodrop_consume()
 *
 * A batch ends where the ring was empty, also when there is more after that: a
 * small ring would stand full while the reader works through a long batch.
 *
 * Context: as nodrop_consume().
 * Return: how many there were.
 */
static __always_inline int nodrop_consume_batched(struct nodrop_queue *q,
						  void **packets, int n,
						  nodrop_bytes_t *bytes)
{
	int i;

	for (i = 0; i < n; i++) {
		packets[i] = nodrop_take(q, bytes);
		if (packets[i])
			continue;
		if (!nodrop_found_nothing(q) || i)
			break;
		packets[i] = nodrop_take(q, bytes);
		if (!packets[i])
			break;
	}
	return i;
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
	if (unlikely(q->in_front))
		return false;
	if (!__ptr_ring_empty(q->ring))
		return false;
	return !nodrop_found_nothing(q);
}

/**
 * nodrop_claim() - make sure of a slot before the packet is touched
 * @q: the queue
 * @txq: the txq that the packet comes through
 * @on: whether flow control is wanted for the device
 *
 * After NODROP_CLAIMED the caller may put one packet into the ring, or none.
 *
 * Without a lock: what a resize does to the slot is seen when the packet is
 * put in, under producer_lock.
 * Litmus: MP+resize-lock-slot+claim-lock-slot
 *
 * Context: softirqs off, the transmit lock of @txq held, RCU read lock held.
 * Return: what to do with the packet.
 */
static inline enum nodrop_verdict nodrop_claim(struct nodrop_queue *q,
					       struct netdev_queue *txq,
					       bool on)
{
	void **room = READ_ONCE(q->room);

	if (!nodrop_has_qdisc(txq)) {
		WRITE_ONCE(q->passed, NODROP_DROP_NOQUEUE);
		return NODROP_PASS;
	}
	if (likely(on && room && room == READ_ONCE(q->ring->queue) &&
		   READ_ONCE(q->txq) == txq))
		return NODROP_CLAIMED;
	return nodrop_find_room(q, txq, on);
}

/**
 * nodrop_burst_begin() - a packet is about to be transmitted
 * @q: the queue
 *
 * While a burst goes on, nodrop_burst_holds() says so to whoever wants to
 * call the reader.
 *
 * A queue that changes its index has two txqs for a moment, with a lock each:
 * what a burst writes is marked for that, and for whoever asks from elsewhere.
 *
 * Context: as nodrop_claim(), from here to nodrop_burst_end().
 */
static inline void nodrop_burst_begin(struct nodrop_queue *q)
{
	if (netdev_xmit_more() || READ_ONCE(q->notice))
		WRITE_ONCE(q->burst_cpu, smp_processor_id());
}

/**
 * nodrop_burst_holds() - is the reader to be called later?
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
 * reader has a full barrier before it looks whether the reader sleeps.
 * Litmus: SB+burst-mb-sleeps+sleep-mb-ring
 *
 * Return: true when the caller must call the reader now.
 */
static inline bool nodrop_burst_end(struct nodrop_queue *q,
				    const struct netdev_queue *txq)
{
	if (likely(READ_ONCE(q->burst_cpu) < 0))
		return false;
	WRITE_ONCE(q->burst_cpu, -1);
	if (!READ_ONCE(q->notice))
		return false;
	/* The reader may open it right now: then the burst goes on. */
	if (netdev_xmit_more() && !data_race(netif_xmit_stopped(txq)))
		return false;
	WRITE_ONCE(q->notice, false);
	return true;
}

#endif
