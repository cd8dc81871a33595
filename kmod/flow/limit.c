// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: as many packets as the consumer takes in target_us.
 *
 * A fast consumer gets a ring that outlasts a moment in which it does not run,
 * a slow one a short queue. Its pace is measured while it works: from when it
 * takes packets until it comes for more, which a read(), a poll() of an empty
 * ring and a batch of vhost-net show alike. @rate is the mean over 128 ms of
 * such time, and at first 0. It is long because a consumer with a buffer of its
 * own, a guest's descriptors or a VPN's socket, looks fast until that is full,
 * and one that was not running for a moment looks slow.
 *
 * Each stop and wake has a price, so the limit is at least @floor packets, as
 * long as the consumer takes these in 5 ms, and always NODROP_LEAST.
 *
 * A consumer that found the ring empty may sleep, or work on what it took. It
 * works if the txq was stopped meanwhile: the time since then counts.
 *
 * The clock is read once for a batch of packets. Below @floor it is also read
 * when the ring is empty and with the next packet, as there may be fewer than a
 * batch in between. Above, the time before an empty ring is not counted.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/timekeeping.h>

#include "internal.h"

#define NODROP_FLOOR_US 5000

static unsigned int nodrop_target_us = 500;
module_param_named(target_us, nodrop_target_us, uint, 0644);
MODULE_PARM_DESC(target_us, "Microseconds for which a full ring keeps its consumer busy (default 500)");

/* What the consumer takes in @us. */
static u64 nodrop_packets(const struct nodrop_queue *q, unsigned int us)
{
	return mul_u64_u64_div_u64(q->rate, us * 1000ULL, NODROP_MEAN_NS) >>
	       NODROP_RATE_SHIFT;
}

static unsigned int nodrop_wanted(const struct nodrop_queue *q,
				  unsigned int floor)
{
	u64 few = min_t(u64, nodrop_packets(q, NODROP_FLOOR_US), floor);
	u64 packets = nodrop_packets(q, READ_ONCE(nodrop_target_us));

	return min_t(u64, max3(packets, few, (u64)NODROP_LEAST), q->max);
}

/**
 * nodrop_measure() - the consumer comes for packets, and is done with the last
 * @q: the queue
 * @n: how many it takes now; @taken does not count them yet
 * @floor: least limit of a consumer that is fast enough
 *
 * Context: consumer_lock held.
 */
void nodrop_measure(struct nodrop_queue *q, int n, unsigned int floor)
{
	u64 done = (u64)(q->taken - q->busy_taken) << NODROP_RATE_SHIFT;
	bool small = READ_ONCE(q->limit) < min(floor, q->max);
	u64 now = 0;

	if (!n && !q->busy_since)
		return;
	if (n || small)
		now = ktime_get_mono_fast_ns();
	if (q->busy_since && now > q->busy_since) {
		q->rate = mul_u64_u64_div_u64(q->rate + done, NODROP_MEAN_NS,
					      NODROP_MEAN_NS + now -
					      q->busy_since);
		WRITE_ONCE(q->limit, nodrop_wanted(q, floor));
	}
	if (n && !q->busy_since && q->txq && nodrop_is_stopped(q->txq))
		q->busy_since = min(now, READ_ONCE(q->stopped_at));
	else
		q->busy_since = n ? now : 0;
	q->busy_taken = q->taken;
	/* Small: measure again with the next packet. */
	if (!n && small)
		q->busy_taken -= NODROP_BATCH;
}
EXPORT_SYMBOL_GPL(nodrop_measure);
