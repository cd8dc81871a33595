// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: as many packets as the consumer takes in target_us.
 *
 * A fast consumer gets a ring that outlasts a moment in which it does not run,
 * a slow one a short queue. A sample of its pace is a batch of packets, or as
 * many as the limit allows; one in which the consumer found the ring empty is
 * discarded. Its pace is the mean over the last 128 ms that the samples took,
 * and at first slow. A consumer with a buffer of its own, a guest's descriptors
 * or a VPN's socket, looks fast until that is full; and one that was not
 * running for a moment looks slow.
 *
 * The limit grows by a quarter of the difference, at most to its double, and
 * shrinks by a sixteenth: too short a ring costs throughput, one too long a
 * moment of latency. After a sample that took longer than half a millisecond it
 * shrinks by more, up to half: a slow consumer has few samples. It starts at
 * NODROP_LEAST.
 *
 * More than that, as long as it is no more than NODROP_BURST_US:
 * - @floor, because each stop and wake has a price;
 * - for GSO packets: they cost the consumer little more than others, and
 *   blocked senders much;
 * - when the ring was empty: there is no queue, and a burst may fill it.
 */
#include <linux/module.h>
#include <linux/timekeeping.h>

#include "internal.h"

#define NODROP_BURST_US 5000U
/* The same for packets that are not GSO packets, after an empty ring */
#define NODROP_REFILL_US 2000U

static unsigned int nodrop_target_us = 500;
module_param_named(target_us, nodrop_target_us, uint, 0644);
MODULE_PARM_DESC(target_us, "Microseconds for which a full ring keeps its consumer busy (default 500)");

#define NODROP_MEAN_NS (128 * NSEC_PER_MSEC)

static u64 nodrop_packets(const struct nodrop_queue *q, unsigned int us)
{
	return div64_u64((us * 1000ULL) << NODROP_PACE_SHIFT, q->pace);
}

/* What a consumer of the measured pace takes in @us. */
static unsigned int nodrop_wanted(const struct nodrop_queue *q, unsigned int us)
{
	u64 floor = clamp_t(u64, nodrop_packets(q, NODROP_BURST_US),
			    NODROP_LEAST, q->floor);

	return min_t(u64, max(nodrop_packets(q, us), floor), q->max);
}

/*
 * The mean pace after a sample of @n packets in @ns. In @span the consumer took
 * them, and before them others at the old pace, at which all together would
 * have taken @old.
 */
static u64 nodrop_mean(const struct nodrop_queue *q, unsigned int n, u64 ns)
{
	u64 pace = q->pace ?: (NODROP_MEAN_NS / NODROP_LEAST) <<
			      NODROP_PACE_SHIFT;
	u64 span = max_t(u64, ns, NODROP_MEAN_NS);
	u64 old = span - ns + ((n * pace) >> NODROP_PACE_SHIFT);

	return max(mul_u64_u64_div_u64(pace, span, max(old, 1ULL)), 1ULL);
}

/* Not if the guard has lowered it meanwhile. */
static void nodrop_set_limit(struct nodrop_queue *q, unsigned int before,
			     unsigned int limit)
{
	if (limit != before)
		cmpxchg(&q->limit, before, limit);
}

/* After a sample of @ns. */
static void nodrop_adapt(struct nodrop_queue *q, u64 ns)
{
	u32 most = min_t(u64, ns, 4 * NSEC_PER_MSEC);
	u32 part = min_t(u32, 8 * NSEC_PER_MSEC / most, 16);
	unsigned int us = READ_ONCE(nodrop_target_us);
	unsigned int was = READ_ONCE(q->limit), limit = was, wanted;

	if (READ_ONCE(q->gso))
		us = max(us, NODROP_BURST_US);
	wanted = nodrop_wanted(q, us);
	if (wanted > limit)
		limit += min(DIV_ROUND_UP(wanted - limit, 4), limit);
	else
		limit -= DIV_ROUND_UP(limit - wanted, part);
	nodrop_set_limit(q, was, limit);
}

/**
 * nodrop_measure() - complete a sample of the consumer's pace
 * @q: the queue
 * @floor: its new @floor
 *
 * Context: consumer_lock held.
 */
void nodrop_measure(struct nodrop_queue *q, unsigned int floor)
{
	unsigned int n = q->taken - q->pace_taken;
	u64 now = ktime_get_mono_fast_ns(), ns;

	q->floor = floor;
	if (q->pace_at && now > q->pace_at) {
		ns = min_t(u64, now - q->pace_at, UINT_MAX);
		q->pace = nodrop_mean(q, n, ns);
		nodrop_adapt(q, ns);
	}
	q->pace_at = now;
	q->pace_taken = q->taken;
}
EXPORT_SYMBOL_GPL(nodrop_measure);

/*
 * The consumer found the ring empty. With a limit below @floor a sample ends
 * here, however short, and the next one begins with the next packet: there may
 * be few until the ring is empty again.
 *
 * Context: consumer_lock held.
 */
void nodrop_measure_dry(struct nodrop_queue *q)
{
	unsigned int us = READ_ONCE(q->gso) ? NODROP_BURST_US :
					      NODROP_REFILL_US;
	bool small = READ_ONCE(q->limit) < min(q->floor, q->max);
	unsigned int limit;

	if (small && q->pace_at && q->taken != q->pace_taken)
		nodrop_measure(q, q->floor);
	limit = READ_ONCE(q->limit);
	if (q->pace && limit < q->max)
		nodrop_set_limit(q, limit, max(limit, nodrop_wanted(q, us)));
	nodrop_measure_anew(q);
	if (READ_ONCE(q->limit) < min(q->floor, q->max))
		q->pace_taken -= NODROP_BATCH;
}
