// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guard: a consumer that takes nothing must not hold its senders for ever.
 *
 * A stopped txq keeps its packets in the qdisc and their sockets charged, so
 * senders block. That is right while the consumer works and wrong when it was
 * left alone or hangs. The guard looks at a stopped queue NODROP_GUARD_SAMPLES
 * times in nodrop_guard_ms. When it finds all the time that the consumer took
 * nothing, the consumer is gone: the txq is opened and the full ring drops, as
 * it does without nodrop, until the consumer takes a packet.
 *
 * Many looks and not one, because time jumps: a virtual machine that was
 * paused finds a timer expired before its consumer could run. A jump is one
 * look, however long it was.
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
MODULE_PARM_DESC(guard_ms, "Milliseconds after which a consumer that takes nothing from a full ring is taken for gone and the ring drops again, 0: never (default 1000)");

#define NODROP_GUARD_SAMPLES 8

/* How often it looks while it is switched off, in case it is switched on. */
#define NODROP_GUARD_IDLE_MS 1000

/* A sixteenth less, because each look is up to a jiffy late. */
static unsigned long nodrop_guard_period(void)
{
	unsigned int ms = READ_ONCE(nodrop_guard_ms) ?: NODROP_GUARD_IDLE_MS;

	return max(1UL, msecs_to_jiffies(ms - ms / 16) / NODROP_GUARD_SAMPLES);
}

static void nodrop_guard_sample(struct timer_list *timer)
{
	struct nodrop_queue *q = container_of(timer, struct nodrop_queue,
					      guard);
	unsigned int taken;

	/*
	 * The lock under which senders stop: none of them takes this look for
	 * one that is still to come.
	 * Litmus: SB+expire-lock-xoff+stop-lock-pending
	 */
	spin_lock(&q->ring->producer_lock);
	/* Of a device that is down all txqs are stopped, and opened at "up". */
	if (!q->txq || !netif_running(q->txq->dev))
		goto out;

	if (!netif_tx_queue_stopped(q->txq)) {
		/* A consumer that woke it and went leaves its kick to us. */
		nodrop_run_qdiscs(q, q->txq);
		goto out;
	}

	taken = READ_ONCE(q->taken);
	if (taken != q->guard_mark) {
		q->guard_mark = taken;
		q->guard_samples = 1;
	} else if (!READ_ONCE(nodrop_guard_ms)) {
		q->guard_samples = 0;
	} else if (++q->guard_samples >= NODROP_GUARD_SAMPLES) {
		/*
		 * A consumer that takes a packet at this very moment may clear
		 * @stalled before it is set; its next packet clears it again.
		 * A sender that sees it cleared stops after what we open here.
		 * Litmus: ISA2+trip-lock-open+clear+stop-lock-xoff
		 */
		WRITE_ONCE(q->stalled, true);
		q->stats[NODROP_GUARD_TRIPS]++;
		trace_nodrop_guard(q, taken);
		/*
		 * And look once more: if the consumer itself has just woken
		 * it, and goes now, nobody else runs the qdisc.
		 */
		netif_tx_wake_queue(q->txq);
	}
	mod_timer(&q->guard, jiffies + nodrop_guard_period());
out:
	spin_unlock(&q->ring->producer_lock);
}

/* Context: as nodrop_queue_init(). */
void nodrop_guard_init(struct nodrop_queue *q)
{
	timer_setup(&q->guard, nodrop_guard_sample, 0);
}

/*
 * The txq was just stopped. One timer serves many stops: it runs as long as
 * it finds the txq stopped.
 *
 * Context: producer_lock held.
 */
void nodrop_guard_arm(struct nodrop_queue *q)
{
	if (!q->txq || timer_pending(&q->guard))
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
