// SPDX-License-Identifier: GPL-2.0-only
/*
 * The consumer: wake the txq once enough is read, and have the qdisc run on the
 * senders' CPU if possible.
 */
#include <linux/sched/clock.h>

#include "internal.h"
#include "trace.h"

/* Bound of a busy-wait for a sender: less than an IPI and a wake-up take. */
#define NODROP_PATIENCE_NS 5000

static void nodrop_count_kick(struct nodrop_queue *q, enum nodrop_stat stat,
			      int cpu)
{
	spin_lock(&q->ring->consumer_lock);
	q->stats[stat]++;
	trace_nodrop_kick(q, cpu);
	spin_unlock(&q->ring->consumer_lock);
}

/* Wake the txq; the next sender runs the qdisc. */
static void nodrop_wake(struct nodrop_queue *q)
{
	WRITE_ONCE(q->stopped, false);
	WRITE_ONCE(q->woken, true);
	q->stats[NODROP_WAKES]++;
	trace_nodrop_wake(q, 0);
	nodrop_xon(q->txq);
}

/*
 * Kick once half of what was left at the wake is read, if no packet has come
 * since the stop; schedule a check at that point. With a limit below
 * NODROP_FLOOR the ring would be empty before the IPI arrives.
 */
static bool nodrop_needs_kick(struct nodrop_queue *q, int step)
{
	unsigned int mark = READ_ONCE(q->mark);
	unsigned int kick_at = mark - (mark - READ_ONCE(q->wake_at)) / 2;
	int left = kick_at - q->taken;

	if (left > 0) {
		if (left < (int)(q->check_at - q->taken))
			q->check_at = kick_at;
		return false;
	}
	return left > -step && q->limit >= NODROP_FLOOR &&
	       READ_ONCE(q->produced) == mark;
}

/**
 * nodrop_check() - wake the txq or request a kick, if due
 * @q: the queue
 * @dry: the ring is empty
 *
 * Context: consumer_lock held.
 */
void nodrop_check(struct nodrop_queue *q, bool dry)
{
	int step = nodrop_batch(q->limit);
	unsigned int taken = q->taken;
	int left, cpu = raw_smp_processor_id();

	if (q->consumer_cpu != cpu)
		WRITE_ONCE(q->consumer_cpu, cpu);
	q->check_at = taken + step;
	if (dry)
		nodrop_measure_dry(q);
	if (unlikely(!q->txq))
		return;

	/*
	 * Write @taken before reading @stopped. Pairs with the barrier in
	 * nodrop_stop().
	 * Litmus: SB+stop-mb-taken+take-mb-stopped
	 */
	smp_mb();
	if (READ_ONCE(q->stopped)) {
		/*
		 * Read @stopped before @wake_at. Pairs with smp_wmb() in
		 * nodrop_stop().
		 * Litmus: MP+mark-wmb-stopped+stopped-rmb-mark
		 */
		smp_rmb();
		left = READ_ONCE(q->wake_at) - taken;
		if (dry || left <= 0)
			nodrop_wake(q);
		else if (left < step)
			q->check_at = taken + left;
	}

	if (likely(!READ_ONCE(q->woken)))
		return;
	if (!dry && !nodrop_needs_kick(q, step))
		return;
	if (dry)
		WRITE_ONCE(q->woken, false);
	/*
	 * Wake the txq before setting @todo, on which another consumer may act.
	 * Pairs with xchg() in nodrop_act_slow(): that consumer reads the
	 * qdisc's length after the wake.
	 * Litmus: ISA2+xon-release-todo+take-lock-qlen+enqueue-lock-xoff
	 */
	smp_store_release(&q->todo, true);
}
EXPORT_SYMBOL_GPL(nodrop_check);

/*
 * The qdisc's lock orders the wake before reading the qdisc's length here, and
 * an enqueue before its run reads XOFF: at least one sees the other. A lockless
 * qdisc (pfifo_fast) gives no such order on weakly ordered machines; there the
 * guard's next sample runs it.
 * Litmus: SB+open-lock-qlen+enqueue-lock-xoff
 */
static bool nodrop_has_backlog(struct Qdisc *qdisc)
{
	bool backlog;

	if (qdisc->flags & TCQ_F_NOLOCK)
		return qdisc_qlen_sum(qdisc);
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
	if (READ_ONCE(q->max) < NODROP_SMALL || IS_ENABLED(CONFIG_PREEMPT_RT))
		cpu = -1;
	if (cpu >= 0 && cpu != raw_smp_processor_id() && nodrop_kick(q, cpu)) {
		nodrop_count_kick(q, NODROP_KICKS, cpu);
		return;
	}

	/* local_bh_enable() transmits here; else ksoftirqd would. */
	nodrop_count_kick(q, NODROP_KICKS_HERE, raw_smp_processor_id());
	local_bh_disable();
	nodrop_run_qdiscs(q, txq);
	local_bh_enable();
}

/* Does the ring hold packets? Lockless: may be outdated at once. */
static bool nodrop_has_packets(const struct nodrop_queue *q)
{
	return !READ_ONCE(q->unaware) &&
	       READ_ONCE(q->produced) != READ_ONCE(q->taken);
}

/* Wait for a packet, for less time than sleeping and a wake-up take. */
static void nodrop_wait(const struct nodrop_queue *q)
{
	u64 start = local_clock();

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

	/* Before 7.3, vhost_net polls with preemption off: act later. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT) && !preemptible())
		return false;
	/* Before @todo: a txq that is bound after that needs a grace period. */
	rcu_read_lock();
	if (!xchg(&q->todo, false)) {
		rcu_read_unlock();
		return false;
	}
	/*
	 * The txq lives for a grace period after nodrop_queue_bind(q, NULL).
	 * Litmus: MP+unbind-sync-free+rcu-txq-use
	 */
	txq = READ_ONCE(q->txq);
	if (!txq)
		goto out;
	/* A sender under way is faster than an IPI, or the lock of a qdisc. */
	if (READ_ONCE(q->max) >= NODROP_SMALL ||
	    qdisc_is_empty(nodrop_qdisc(txq)))
		nodrop_wait(q);
	if (READ_ONCE(q->stopped) ||
	    (nodrop_has_packets(q) &&
	     READ_ONCE(q->produced) != READ_ONCE(q->mark))) {
		/* Senders are active: decide again at a later check. */
		WRITE_ONCE(q->woken, true);
	} else if (nodrop_any_qdisc(q, txq, nodrop_has_backlog)) {
		nodrop_restart(q, txq);
		nodrop_wait(q);
	}
out:
	rcu_read_unlock();
	return nodrop_has_packets(q);
}
EXPORT_SYMBOL_GPL(nodrop_act_slow);
