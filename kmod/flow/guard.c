// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stall guard: a consumer that takes nothing must not block senders for
 * ever.
 *
 * A stopped txq keeps packets in the qdisc and their sockets charged, so
 * senders block. That is the point while the consumer works, and wrong when it
 * hangs or never reads. The guard samples a stopped txq at least
 * NODROP_GUARD_SAMPLES times in guard_ms. If the consumer took nothing in all
 * of them, it is stalled: the guard wakes the txq, and a full ring drops until
 * the consumer takes a packet.
 *
 * Samples and not one timeout, because time jumps: after a pause of a virtual
 * machine the timer has expired before the consumer could run. A jump is one
 * sample, however long.
 */
#include <linux/module.h>

#include "internal.h"
#include "trace.h"

/*
 * Long against a consumer that is starved of CPU or stopped by a garbage
 * collector, short against what a person or a protocol waits for.
 */
unsigned int nodrop_guard_ms = 1000;
module_param_named(guard_ms, nodrop_guard_ms, uint, 0644);
MODULE_PARM_DESC(guard_ms, "Milliseconds after which a consumer that takes nothing from a full ring is stalled and the ring drops, 8 timer ticks at least, 0: never (default 1000)");

#define NODROP_GUARD_SAMPLES 8U

/* Bounds the period, because guard_ms may be lowered at any time. */
#ifndef NODROP_GUARD_LONG_MS
#define NODROP_GUARD_LONG_MS 1000U
#endif

/* A sixteenth less, because each sample is up to a jiffy late. */
static unsigned long nodrop_guard_period(void)
{
	unsigned int ms = READ_ONCE(nodrop_guard_ms) ?: NODROP_GUARD_LONG_MS;

	ms = min(ms, NODROP_GUARD_LONG_MS);
	return max(1UL, msecs_to_jiffies(ms - ms / 16) / NODROP_GUARD_SAMPLES);
}

/* How many samples make a consumer that takes nothing a stalled one. */
static unsigned int nodrop_guard_enough(void)
{
	unsigned int ms = READ_ONCE(nodrop_guard_ms);

	/* Rounds up; if the guard was just switched off: never. */
	return max((ms - 1) / (NODROP_GUARD_LONG_MS / NODROP_GUARD_SAMPLES) + 1,
		   NODROP_GUARD_SAMPLES);
}

static void nodrop_guard_sample(struct timer_list *timer)
{
	struct nodrop_queue *q = container_of(timer, struct nodrop_queue,
					      guard);
	unsigned int taken;
	bool stopped;

	/*
	 * Senders stop the txq under this lock: a stop precedes this sample, or
	 * finds the timer not pending and arms it.
	 * Litmus: SB+expire-lock-xoff+stop-lock-pending
	 */
	spin_lock(&q->ring->producer_lock);
	/* After "up", nodrop_queue_bind() wakes it. */
	if (!q->txq || !netif_running(q->txq->dev))
		goto out;

	/* Else the consumer may have woken it and not come back to kick. */
	stopped = netif_xmit_stopped(q->txq);
	if (!stopped)
		nodrop_run_qdiscs(q, q->txq);
	/* If @stopped is still set, it was not the consumer, but netpoll. */
	if (!stopped && !READ_ONCE(q->stopped))
		goto out;

	taken = READ_ONCE(q->taken);
	if (taken != q->guard_mark) {
		q->guard_mark = taken;
		q->guard_samples = 1;
	} else if (!READ_ONCE(nodrop_guard_ms)) {
		q->guard_samples = 0;
	} else if (++q->guard_samples >= nodrop_guard_enough()) {
		/*
		 * A consumer that takes a packet right now may clear @stalled
		 * before it is set; its next packet clears it again. A sender
		 * that sees it cleared stops the txq after the wake below.
		 * Litmus: ISA2+trip-lock-open+clear+stop-lock-xoff
		 */
		WRITE_ONCE(q->stalled, true);
		q->stats[NODROP_GUARD_TRIPS]++;
		trace_nodrop_guard(q, taken);
		nodrop_reopen(q, q->txq);
	}
	mod_timer(&q->guard, jiffies + nodrop_guard_period());
out:
	spin_unlock(&q->ring->producer_lock);
}

/* Context: as nodrop_queue_create(). */
void nodrop_guard_init(struct nodrop_queue *q)
{
	timer_setup(&q->guard, nodrop_guard_sample, 0);
}

/*
 * The txq was just stopped. One timer serves many stops: it is armed again as
 * long as it finds the txq stopped.
 *
 * Context: producer_lock held.
 */
void nodrop_guard_arm(struct nodrop_queue *q)
{
	if (timer_pending(&q->guard))
		return;

	q->guard_mark = READ_ONCE(q->taken);
	q->guard_samples = 0;
	mod_timer(&q->guard, jiffies + nodrop_guard_period());
}

/* Context: process context, no ring lock held, @q bound to no txq. */
void nodrop_guard_cancel(struct nodrop_queue *q)
{
	timer_delete_sync(&q->guard);
}
