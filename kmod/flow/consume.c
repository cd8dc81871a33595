// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reader's side: when slots or bytes were given back, see to it that the
 * senders go on, on their own CPU if there is any way.
 */
#include "limit.h"
#include "trace.h"

/* How long a reader of an empty ring waits for a sender that was asked. */
#define NODROP_PATIENCE 256

/* Slots of a ring that is empty before a knock is heard. */
#define NODROP_SMALL 64

/*
 * The few packets that a small ring takes cost its reader less to send than an
 * interrupt would.
 */
static bool nodrop_serves_itself(const struct nodrop_queue *q)
{
	return q->ring->size < NODROP_LIMIT_MIN_RING;
}

static void nodrop_count(struct nodrop_queue *q, enum nodrop_stat stat)
{
	q->reader_stats[stat - NODROP_SENDER_STATS]++;
}

/*
 * How much of what stopped the txq is read? A ring that was full is counted
 * by what the reader took since it saw that: to look at the senders' counter
 * would cost a small ring as much as the packet.
 */
static unsigned int nodrop_read_since(const struct nodrop_queue *q,
				      unsigned int *full)
{
	int left;

	if (!q->limited) {
		*full = q->ring->size;
		return q->taken - q->since;
	}
	*full = READ_ONCE(q->full);
	left = READ_ONCE(q->mark) - q->taken;
	return *full - clamp(left, 0, (int)*full);
}

/* Has the reader taken half of what stopped the txq? */
static bool nodrop_may_ask(const struct nodrop_queue *q)
{
	unsigned int full, done = nodrop_read_since(q, &full);

	if (q->ring->size < NODROP_LIMIT_MIN_RING)
		return done + 1 >= full - full / 4;
	return done >= full / 2 && !nodrop_over_limit(q);
}

/* Has it taken three quarters? A small ring is empty before that is heard. */
static bool nodrop_may_knock(const struct nodrop_queue *q)
{
	unsigned int full, done = nodrop_read_since(q, &full);

	return q->ring->size >= NODROP_SMALL && done >= full - full / 4;
}

/* Open the txq; whoever transmits next goes on from there. */
static void nodrop_ask(struct nodrop_queue *q)
{
	q->phase = NODROP_RUNNING;
	/* A device that goes down stopped its txqs for another reason. */
	if (unlikely(!netif_running(q->txq->dev)))
		return;

	q->phase = NODROP_ASKED;
	nodrop_count(q, NODROP_WAKES);
	trace_nodrop_wake(q, 0);
	netif_tx_start_queue(q->txq);
	/*
	 * Between opening the txq and asking. Pairs with the barrier in
	 * nodrop_produce(): who sees the question sees the open txq.
	 * Litmus: MP+open-wmb-ask+answer-mb-xoff
	 */
	smp_wmb();
	if (!READ_ONCE(q->asked))
		WRITE_ONCE(q->asked, true);
}

/*
 * The qdisc's lock is between opening the txq and the look at what the qdisc
 * holds, and between an enqueue and its run's look at XOFF: one of the two
 * sees the other. A lockless qdisc (pfifo_fast) gives no such promise on
 * weakly ordered machines; there the guard's next look makes it run.
 * Litmus: SB+open-lock-qlen+enqueue-lock-xoff
 */
static bool nodrop_has_backlog(struct netdev_queue *txq)
{
	struct Qdisc *qdisc = rcu_dereference(txq->qdisc);
	bool backlog;

	if (qdisc->flags & TCQ_F_NOLOCK)
		return qdisc_qlen_sum(qdisc);
	spin_lock_bh(qdisc_lock(qdisc));
	backlog = qdisc_qlen_sum(qdisc);
	spin_unlock_bh(qdisc_lock(qdisc));
	return backlog;
}

/* Does a qdisc hold packets for the ring? */
static bool nodrop_backlog(const struct nodrop_queue *q)
{
	struct net_device *dev = q->txq->dev;
	/* RTNL may change it: a txq that comes or goes is looked after. */
	unsigned int i, n = data_race(dev->real_num_tx_queues);
	bool backlog;

	rcu_read_lock();
	backlog = nodrop_has_backlog(q->txq);
	for (i = 0; READ_ONCE(q->strays) && i < n && !backlog; i++)
		backlog = nodrop_has_backlog(&dev->_tx[i]);
	rcu_read_unlock();
	return backlog;
}

/* Nobody came: make somebody run the qdisc. */
static void nodrop_knock(struct nodrop_queue *q)
{
	int cpu = READ_ONCE(q->cpu);

	q->phase = NODROP_RUNNING;
	WRITE_ONCE(q->asked, false);
	if (nodrop_serves_itself(q))
		cpu = -1;
	if (cpu >= 0 && cpu != raw_smp_processor_id() && nodrop_kick(q, cpu)) {
		nodrop_count(q, NODROP_KICKS);
		trace_nodrop_kick(q, cpu);
		return;
	}

	/*
	 * With softirqs off, so that transmit runs here, at the end, and not
	 * in ksoftirqd. Softirqs never take consumer_lock.
	 */
	nodrop_count(q, NODROP_KICKS_HERE);
	trace_nodrop_kick(q, raw_smp_processor_id());
	local_bh_disable();
	nodrop_run_qdiscs(q, q->txq);
	local_bh_enable();
}

/**
 * nodrop_release() - slots or bytes were given back to the senders
 * @q: the queue
 *
 * Context: as nodrop_consume().
 */
void nodrop_release(struct nodrop_queue *q)
{
	struct netdev_queue *txq = q->txq;
	int cpu = raw_smp_processor_id();

	if (q->reader_cpu != cpu)
		WRITE_ONCE(q->reader_cpu, cpu);
	if (unlikely(!txq))
		return;

	nodrop_complete(q);
	/* It was stopped: no need to look again before it may be opened. */
	if (q->phase == NODROP_STOPPED && !nodrop_may_ask(q))
		return;

	/*
	 * Between freeing slots, completing bytes, and reading XOFF. Pairs
	 * with the barrier in nodrop_stop().
	 * Litmus: SB+stop-mb-room+release-mb-xoff
	 * Litmus: SB+charge-mb-limit+complete-mb-xoff
	 */
	smp_mb();
	if (netif_tx_queue_stopped(txq)) {
		if (q->phase != NODROP_STOPPED)
			q->since = q->taken;
		q->phase = NODROP_STOPPED;
		if (nodrop_may_ask(q))
			nodrop_ask(q);
	} else if (q->phase == NODROP_STOPPED) {
		q->phase = NODROP_ANSWERED;
	}

	if (q->phase != NODROP_ASKED)
		return;
	if (!READ_ONCE(q->asked))
		q->phase = NODROP_ANSWERED;
	else if (nodrop_may_knock(q) && nodrop_backlog(q))
		nodrop_knock(q);
}
EXPORT_SYMBOL_GPL(nodrop_release);

/**
 * nodrop_ran_dry() - the reader found nothing and is about to sleep
 * @q: the queue; stopped when the reader looked last, or with bytes to complete
 *
 * Context: as nodrop_consume().
 * Return: true when there is something to read after all: a sender came, or
 * what this reader sent by itself.
 */
bool nodrop_ran_dry(struct nodrop_queue *q)
{
	bool backlog;
	int i;

	if (unlikely(!q->txq)) {
		q->phase = NODROP_RUNNING;
		return false;
	}

	if (q->bytes)
		nodrop_release(q);
	if (q->phase == NODROP_RUNNING)
		return false;
	if (q->phase == NODROP_STOPPED)
		nodrop_ask(q);

	/*
	 * A sender that is at it needs less time than an interrupt. Who sends
	 * by himself what the qdisc holds need not wait for him.
	 */
	backlog = nodrop_serves_itself(q) && nodrop_backlog(q);
	for (i = 0; i < NODROP_PATIENCE && !backlog && READ_ONCE(q->asked) &&
	     __ptr_ring_empty(q->ring); i++)
		cpu_relax();
	if (!__ptr_ring_empty(q->ring))
		return true;

	/*
	 * An answer may come from a run of the qdisc that had seen the txq
	 * stopped and was about to end, when another sender goes past the
	 * qdisc just then. What counts at last is what the qdisc holds.
	 */
	if (backlog || nodrop_backlog(q))
		nodrop_knock(q);
	else
		q->phase = NODROP_RUNNING;
	return !__ptr_ring_empty(q->ring);
}
EXPORT_SYMBOL_GPL(nodrop_ran_dry);
