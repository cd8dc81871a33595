// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stall guard: no consumer keeps a txq stopped much longer than guard_ms.
 *
 * A stopped txq keeps packets in the qdisc and their sockets charged, so
 * senders block. That is the point while the consumer works, and wrong when it
 * hangs, never reads, or reads a packet now and then. A stop begins a window,
 * in which a timer samples the consumer: it has guard_ms to take what the ring
 * held then, even if it has the txq woken meanwhile. If it does not, and the
 * txq is stopped then or later, the consumer is stalled: the guard wakes the
 * txq, and the ring drops at a limit of NODROP_LEAST. If it does, the window of
 * the last stop goes on. A drop while it is stalled begins another window, of
 * half of guard_ms: a consumer that takes all of that is not stalled any more,
 * nor is one that finds the ring empty.
 *
 * A consumer that stalls again and again must not block senders for guard_ms
 * each time. Its window is an eighth of the time since its last stall, at least
 * a quarter of guard_ms and at most all of it.
 *
 * Samples and not one timeout, because time jumps: after a pause of a virtual
 * machine the timer has expired before the consumer could run. A jump is one
 * sample, however long.
 *
 * Each sample notifies the consumer if the ring holds packets: it may wait for
 * an edge, which no packet brings while the txq is stopped, nor while the qdisc
 * is empty.
 */
#include <linux/module.h>

#include "internal.h"
#include "trace.h"

/*
 * Long against a consumer that is starved of CPU or stopped by a garbage
 * collector, short against what a person or a protocol waits for.
 */
static unsigned int nodrop_guard_ms = 1000;
module_param_named(guard_ms, nodrop_guard_ms, uint, 0644);
MODULE_PARM_DESC(guard_ms, "Milliseconds in which a consumer must take what a full ring holds, else it is stalled and the ring drops, 8 timer ticks at least, 0: any time (default 1000)");

#define NODROP_GUARD_SAMPLES 8U
#define NODROP_GUARD_FIRST_MS 15U
#define NODROP_GUARD_LONG_MS 1000U

/*
 * Jiffies between two samples. They grow with the window: senders of a consumer
 * that waits for an edge wait for a sample, and a thousand queues may be
 * stopped.
 */
static unsigned long nodrop_guard_period(const struct nodrop_queue *q)
{
	unsigned int ms = READ_ONCE(nodrop_guard_ms) ?: NODROP_GUARD_LONG_MS;
	unsigned int most = min(ms, NODROP_GUARD_LONG_MS) /
			    NODROP_GUARD_SAMPLES;
	unsigned int period = max(q->guard_ms / NODROP_GUARD_SAMPLES,
				  NODROP_GUARD_FIRST_MS);

	return max(msecs_to_jiffies(min(period, most)), 1UL);
}

static void nodrop_guard_next(struct nodrop_queue *q)
{
	unsigned long period = nodrop_guard_period(q);

	q->guard_ms += jiffies_to_msecs(period);
	mod_timer(&q->guard, jiffies + period);
}

/*
 * Has the consumer still to take some of what the ring held when the window
 * began? Then the mark is of a packet that is still in the ring. An old mark is
 * not, even after the counts wrap.
 *
 * Context: producer_lock held.
 */
static bool nodrop_guard_owes(const struct nodrop_queue *q)
{
	unsigned int taken = READ_ONCE(q->taken);

	return q->guard_mark - taken - 1 < q->produced - taken;
}

/* Begin a window, @ms of which are over. Context: producer_lock held. */
static void nodrop_guard_window(struct nodrop_queue *q, unsigned int ms)
{
	q->guard_mark = q->produced;
	q->guard_ms = ms;
	q->guard_stop = 0;
	nodrop_guard_next(q);
}

/* Has the window ended? */
static bool nodrop_guard_is_over(const struct nodrop_queue *q)
{
	unsigned int ms = READ_ONCE(nodrop_guard_ms);

	if (!ms)
		return false;
	if (READ_ONCE(q->stalled))
		ms /= 2;
	else if (q->tripped)
		ms = clamp(jiffies_to_msecs(jiffies - q->tripped) / 8, ms / 4,
			   ms);
	return q->guard_ms >= max(ms, NODROP_GUARD_SAMPLES *
				      jiffies_to_msecs(1));
}

static void nodrop_guard_trip(struct nodrop_queue *q)
{
	WRITE_ONCE(q->stalled, true);
	q->tripped = jiffies ?: 1;
	WRITE_ONCE(q->limit, min(NODROP_LEAST, q->max));
	q->stats[NODROP_GUARD_TRIPS]++;
	trace_nodrop_guard(q);
	nodrop_reopen(q, q->txq);
}

static void nodrop_guard_sample(struct timer_list *timer)
{
	struct nodrop_queue *q = container_of(timer, struct nodrop_queue,
					      guard);
	bool stopped, notify = false;
	enum nodrop_stat why;

	/*
	 * Senders stop the txq under this lock: a stop precedes this sample, or
	 * finds the timer not pending and arms it.
	 * Litmus: SB+expire-lock-xoff+stop-lock-pending
	 */
	spin_lock(&q->ring->producer_lock);
	/* After "up", nodrop_queue_bind() wakes it. */
	if (!q->txq || !netif_running(q->txq->dev))
		goto out;

	/* Flow control may have ended since the stop. */
	why = nodrop_drops(q, q->txq);
	if (why && why != NODROP_DROP_GUARD) {
		nodrop_reopen(q, q->txq);
		goto out;
	}

	/* The consumer sees XOFF at its next check. Should it never come: */
	stopped = nodrop_is_stopped(q->txq);
	if (stopped && nodrop_held(q) <= READ_ONCE(q->limit) / 2) {
		nodrop_xon(q->txq);
		stopped = false;
	}
	if (!stopped) {
		/*
		 * The consumer may have woken it and not come back to kick.
		 * See that wake before __netif_schedule() reads the qdisc's
		 * defer_list (7.3). Pairs as in nodrop_reopen().
		 * Litmus: RWC+open+sample-mb-defer+take-mb-xoff
		 */
		smp_mb();
		netif_schedule_queue(q->txq);
	}
	notify = nodrop_held(q);

	if (!nodrop_guard_owes(q)) {
		WRITE_ONCE(q->stalled, false);
		/* No stop since the window began: others refilled the ring. */
		if (stopped)
			nodrop_guard_window(q, q->guard_stop ?
					       q->guard_ms - q->guard_stop : 0);
	} else if (!nodrop_guard_is_over(q)) {
		nodrop_guard_next(q);
	} else if (stopped && !READ_ONCE(q->stalled)) {
		nodrop_guard_trip(q);
	}
out:
	spin_unlock(&q->ring->producer_lock);
	/* nodrop_guard_cancel() waits for this. */
	if (notify)
		q->ops->notify(q->key);
}

/* Context: as nodrop_queue_create(). */
void nodrop_guard_init(struct nodrop_queue *q)
{
	timer_setup(&q->guard, nodrop_guard_sample, 0);
}

/*
 * The txq is stopped, or a packet was dropped because the consumer is stalled.
 * One timer serves many stops: a window that has begun goes on, even if its
 * time was over while the txq was not stopped.
 *
 * Context: producer_lock held.
 */
void nodrop_guard_arm(struct nodrop_queue *q)
{
	if (timer_pending(&q->guard))
		return;
	if (nodrop_guard_owes(q) && !READ_ONCE(q->stalled))
		nodrop_guard_next(q);
	else
		nodrop_guard_window(q, 0);
}

/* The same when the txq was just stopped. */
void nodrop_guard_stopped(struct nodrop_queue *q)
{
	nodrop_guard_arm(q);
	q->guard_stop = q->guard_ms;
}

/* Context: process context, no ring lock held, @q bound to no txq. */
void nodrop_guard_cancel(struct nodrop_queue *q)
{
	timer_delete_sync(&q->guard);
}
