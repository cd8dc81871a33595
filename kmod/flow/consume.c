// SPDX-License-Identifier: GPL-2.0-only
/*
 * The consumer: wake the txq once half is taken, and have the qdisc run on the
 * sender's CPU if possible.
 */
#include "internal.h"
#include "trace.h"

/*
 * Does the qdisc hold packets that no CPU transmits? Lockless: it may miss one
 * that is being enqueued, but not when the ring is empty.
 */
static bool nodrop_waits(struct Qdisc *qdisc)
{
	return !qdisc_is_empty(qdisc) && !qdisc_is_running(qdisc);
}

/* Have the qdisc run: by a kick, or else on this CPU. */
static void nodrop_run(struct nodrop_queue *q, struct Qdisc *qdisc)
{
	int cpu = READ_ONCE(q->cpu);
	/* On PREEMPT_RT, ksoftirqd would run it, after any realtime task. */
	bool here = IS_ENABLED(CONFIG_PREEMPT_RT) || q->max < NODROP_SMALL ||
		    cpu < 0 || cpu == raw_smp_processor_id();

	q->stats[here ? NODROP_KICKS_HERE : NODROP_KICKS]++;
	trace_nodrop_kick(q);
	if (here)
		__netif_schedule(qdisc);
	else
		nodrop_kick(qdisc, cpu);
}

/**
 * nodrop_check() - wake the txq and have its qdisc run, if due
 * @q: the queue
 * @empty: the ring is empty
 *
 * Context: consumer_lock held, softirqs off.
 */
void nodrop_check(struct nodrop_queue *q, bool empty)
{
	unsigned int limit = READ_ONCE(q->limit), step = nodrop_batch(limit);
	struct Qdisc *qdisc;
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

	qdisc = nodrop_qdisc(q->txq);
	if (empty ? nodrop_has_backlog(qdisc) :
		    q->max >= NODROP_SMALL && nodrop_waits(qdisc))
		nodrop_run(q, qdisc);
	if (empty)
		q->woken = false;
}
EXPORT_SYMBOL_GPL(nodrop_check);
