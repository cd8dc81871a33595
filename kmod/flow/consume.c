// SPDX-License-Identifier: GPL-2.0-only
/*
 * The consumer: wake the txq once half is taken, and have the qdisc run on the
 * sender's CPU if possible.
 */
#include <linux/sched/clock.h>

#include "internal.h"
#include "trace.h"

/* Bound of a busy-wait for a sender: less than an IPI and a wake-up take. */
#define NODROP_PATIENCE_NS 5000

static void nodrop_count_kick(struct nodrop_queue *q, enum nodrop_stat stat)
{
	spin_lock(&q->ring->consumer_lock);
	q->stats[stat]++;
	trace_nodrop_kick(q);
	spin_unlock(&q->ring->consumer_lock);
}

/*
 * Does the qdisc hold packets that no CPU transmits? Lockless: it may miss one
 * that is being enqueued, but not when the ring is empty.
 */
static bool nodrop_waits(const struct netdev_queue *txq)
{
	struct Qdisc *qdisc;
	bool waits;

	rcu_read_lock();
	qdisc = nodrop_qdisc(txq);
	waits = !qdisc_is_empty(qdisc) && !qdisc_is_running(qdisc);
	rcu_read_unlock();
	return waits;
}

/**
 * nodrop_check() - wake the txq or request a kick, if due
 * @q: the queue
 * @empty: the ring is empty
 *
 * Context: consumer_lock held.
 */
void nodrop_check(struct nodrop_queue *q, bool empty)
{
	unsigned int limit = READ_ONCE(q->limit), step = nodrop_batch(limit);
	int excess;

	q->check_at = q->taken + step;
	if (empty && unlikely(READ_ONCE(q->stalled)))
		WRITE_ONCE(q->stalled, false);
	if (unlikely(!q->txq))
		return;

	/*
	 * Write @taken before reading XOFF. Pairs with the barrier in
	 * nodrop_stop().
	 * Litmus: SB+stop-mb-taken+take-mb-xoff
	 */
	smp_mb();
	/* After "up", nodrop_queue_bind() wakes it. */
	if (unlikely(nodrop_is_stopped(q->txq)) &&
	    likely(netif_running(q->txq->dev))) {
		excess = nodrop_held(q) - limit / 2;
		if (excess > 0) {
			q->check_at = q->taken + min_t(unsigned int, excess,
						       step);
			return;
		}
		q->woken = true;
		q->stats[NODROP_WAKES]++;
		trace_nodrop_wake(q);
		nodrop_xon(q->txq);
		if (!empty)
			return;
	} else if (likely(!q->woken)) {
		return;
	}
	if (empty)
		q->woken = false;
	else if (q->max < NODROP_SMALL || !nodrop_waits(q->txq))
		return;
	/*
	 * Wake the txq before setting @todo, on which another consumer may act.
	 * Pairs with xchg() in nodrop_act_slow(): that consumer reads the
	 * qdisc's length after the wake.
	 * Litmus: ISA2+xon-release-todo+take-lock-qlen+enqueue-lock-xoff
	 */
	smp_store_release(&q->todo, empty ? NODROP_DO_LOOK : NODROP_DO_RUN);
}
EXPORT_SYMBOL_GPL(nodrop_check);

/**
 * nodrop_dry() - the consumer looked for a packet, and there was none
 * @q: the queue
 *
 * Context: consumer_lock held.
 */
void nodrop_dry(struct nodrop_queue *q)
{
	nodrop_measure_dry(q);
	nodrop_check(q, true);
}
EXPORT_SYMBOL_GPL(nodrop_dry);

/*
 * The qdisc's lock orders the wake before reading the qdisc's length here, and
 * an enqueue before its run reads XOFF: at least one sees the other.
 * Litmus: SB+open-lock-qlen+enqueue-lock-xoff
 * A lockless qdisc (pfifo_fast) gives no such order on weakly ordered machines,
 * but its runs do: run it.
 * Litmus: SB+open-lock-packets+enqueue-lock-xoff
 */
static bool nodrop_has_backlog(struct Qdisc *qdisc)
{
	bool backlog;

	if (qdisc->flags & TCQ_F_NOLOCK)
		return true;
	spin_lock_bh(qdisc_lock(qdisc));
	backlog = qdisc_qlen_sum(qdisc);
	spin_unlock_bh(qdisc_lock(qdisc));
	return backlog;
}

/* Have the qdisc run: by a kick, or else on this CPU. */
static void nodrop_restart(struct nodrop_queue *q, struct netdev_queue *txq)
{
	int cpu = READ_ONCE(q->cpu);

	/* On PREEMPT_RT, ksoftirqd would run it, after any realtime task. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT) || READ_ONCE(q->max) < NODROP_SMALL)
		cpu = -1;
	if (cpu >= 0 && cpu != raw_smp_processor_id() && nodrop_kick(q, cpu)) {
		nodrop_count_kick(q, NODROP_KICKS);
		return;
	}

	/* local_bh_enable() transmits here; else ksoftirqd would. */
	nodrop_count_kick(q, NODROP_KICKS_HERE);
	local_bh_disable();
	netif_schedule_queue(txq);
	local_bh_enable();
}

/* Does the ring hold packets? Lockless: may be outdated at once. */
static bool nodrop_has_packets(const struct nodrop_queue *q)
{
	return !READ_ONCE(q->unaware) &&
	       READ_ONCE(q->produced) != READ_ONCE(q->taken);
}

/*
 * Wait for a packet, for less time than sleeping and a wake-up take. A sender
 * of this CPU cannot run meanwhile.
 */
static void nodrop_wait(const struct nodrop_queue *q)
{
	u64 start = local_clock();

	if (READ_ONCE(q->cpu) == raw_smp_processor_id())
		return;
	/* Ends also if this CPU's clock is behind that of an earlier one. */
	while (!nodrop_has_packets(q) && !need_resched() &&
	       local_clock() - start < NODROP_PATIENCE_NS)
		cpu_relax();
}

/**
 * nodrop_act_slow() - the part of nodrop_act() that does something
 * @q: the queue
 *
 * Of two consumers that are here at the same time, xchg() lets one act.
 *
 * Context: as nodrop_act().
 * Return: as nodrop_act().
 */
bool nodrop_act_slow(struct nodrop_queue *q)
{
	struct netdev_queue *txq;
	int todo;

	/* Before 7.3, vhost_net polls with preemption off: act later. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT) && !preemptible())
		return false;
	/* Before @todo: a txq that is bound after that needs a grace period. */
	rcu_read_lock();
	todo = xchg(&q->todo, 0);
	/* A sender under way is faster than an IPI. */
	if (todo == NODROP_DO_LOOK)
		nodrop_wait(q);
	/*
	 * The txq lives for a grace period after nodrop_queue_bind(q, NULL).
	 * Litmus: MP+unbind-sync-free+rcu-txq-use
	 */
	txq = READ_ONCE(q->txq);
	/* If it is stopped again, the next wake decides. */
	if (todo && txq && !nodrop_is_stopped(txq) &&
	    (todo == NODROP_DO_RUN || nodrop_has_backlog(nodrop_qdisc(txq)))) {
		nodrop_restart(q, txq);
		if (todo == NODROP_DO_LOOK)
			nodrop_wait(q);
	}
	rcu_read_unlock();
	return nodrop_has_packets(q);
}
EXPORT_SYMBOL_GPL(nodrop_act_slow);
