// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: as many packets as the consumer takes in target_us.
 *
 * A fast consumer gets a ring that outlasts a moment in which it does not run,
 * a slow one a short queue. A sample of its pace is at least a batch of
 * packets; one in which the ring ran empty is discarded. The limit grows by a
 * quarter of the difference, at most to its double, and shrinks by a sixteenth:
 * too short a ring costs throughput, one too long a moment of latency.
 */
#include <linux/module.h>
#include <linux/timekeeping.h>

#include "internal.h"

static unsigned int nodrop_target_us = 500;
module_param_named(target_us, nodrop_target_us, uint, 0644);
MODULE_PARM_DESC(target_us, "Microseconds for which a full ring keeps its consumer busy (default 500)");

/* The lower bound of the limit. */
static unsigned int nodrop_floor(const struct nodrop_queue *q)
{
	unsigned int floor = q->floor, mean = READ_ONCE(q->mean);

	/*
	 * GSO packets cost the consumer little more, blocked senders much. ACKs
	 * in the qdisc delay whole windows of data while the consumer shares
	 * its CPU with the sender and runs only now and then.
	 */
	if (mean > NODROP_GSO_BYTES)
		floor = max_t(unsigned int, floor, NODROP_FLOOR_GSO);
	else if (mean && mean < NODROP_ACK_BYTES)
		floor = max_t(unsigned int, floor, NODROP_FLOOR_ACK);
	return min(floor, q->max);
}

static unsigned int nodrop_wanted(const struct nodrop_queue *q,
				  unsigned int pace_ns)
{
	u64 packets = READ_ONCE(nodrop_target_us) * 1000ULL;

	packets = div_u64(packets, pace_ns ?: 1);
	return max_t(u64, nodrop_floor(q), min_t(u64, q->max, packets));
}

/* Move the limit towards what a consumer of this pace takes in target_us. */
static void nodrop_adapt(struct nodrop_queue *q, unsigned int pace_ns)
{
	unsigned int wanted = nodrop_wanted(q, pace_ns);
	unsigned int limit = q->limit;

	q->pace = pace_ns;
	if (wanted > limit)
		limit += min(DIV_ROUND_UP(wanted - limit, 4), limit);
	else
		limit -= DIV_ROUND_UP(limit - wanted, 16);
	if (limit != q->limit)
		WRITE_ONCE(q->limit, limit);
}

/**
 * nodrop_measure() - complete a sample of the consumer's pace
 * @q: the queue
 *
 * Context: consumer_lock held.
 */
void nodrop_measure(struct nodrop_queue *q)
{
	unsigned int n = q->taken - q->pace_taken;
	u64 now = ktime_get_mono_fast_ns();

	if (q->pace_at && now > q->pace_at)
		nodrop_adapt(q, min_t(u64, div_u64(now - q->pace_at, n),
				      UINT_MAX));
	q->pace_at = now;
	q->pace_taken = q->taken;
}
EXPORT_SYMBOL_GPL(nodrop_measure);

/*
 * The ring is empty: discard the sample under way. A consumer that often finds
 * it empty completes none, so raise the limit to its lower bound here.
 *
 * Context: consumer_lock held.
 */
void nodrop_measure_dry(struct nodrop_queue *q)
{
	unsigned int floor = nodrop_floor(q);

	q->pace_at = 0;
	q->pace_taken = q->taken;
	if (q->limit < floor)
		WRITE_ONCE(q->limit, floor);
}
