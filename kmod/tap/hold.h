/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Backpressure for a ring that no qdisc feeds.
 *
 * A frame for a macvtap or ipvtap comes through a receive handler. There is no
 * txq to stop, and stopping the sender's own would stop all else that goes
 * through it. But a frame of a user's socket stays charged to that socket until
 * the consumer has taken it: the socket blocks when its send buffer is full.
 * The stock driver defeats this backpressure: it drops such frames as soon as
 * txqueuelen frames are queued. So:
 *
 * 1. The array has NODROP_HOLD_RESERVE slots more than txqueuelen. Frames that
 *    are charged to a socket ("charged frames") may exceed txqueuelen until the
 *    ring holds NODROP_HOLD_MOST of them. All other frames are counted by
 *    themselves against txqueuelen and do not compete with charged frames. The
 *    ring takes as many of them as the stock driver's.
 * 2. There is no wmem surcharge: no frame's truesize changes. The kernel's own
 *    sockets, except TCP's, are not charged: a guest that does not read would
 *    keep the kernel from replying (ICMP) to others.
 * 3. When a consumer takes nothing for guard_ms, the stall guard uncharges all
 *    frames in the ring, and until the consumer takes one no frame is charged.
 *    Frames that vhost-net has taken and not yet given to its guest, at most
 *    64, are not in the ring: they stay charged, as with the stock driver.
 * 4. Frames in the ring are freed when its file is closed. Otherwise two rings
 *    with frames of each other's sockets keep each other for ever.
 */
#ifndef NODROP_HOLD_H
#define NODROP_HOLD_H

#include <linux/ptr_ring.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

/* 43 UDP sockets with the default send buffer of 208 kB and full frames. */
#define NODROP_HOLD_RESERVE	4096

/* Statistics of a ring (ethtool -S). */
enum nodrop_hold_stat {
	NODROP_HOLD_OVER,		/* charged frames beyond txqueuelen */
	NODROP_HOLD_GUARD_TRIPS,	/* times the consumer was stalled */
	NODROP_HOLD_DROP_UNHELD,	/* drops: not charged to a socket */
	NODROP_HOLD_DROP_OFF,		/* drops: backpressure is off */
	NODROP_HOLD_DROP_GUARD,		/* drops: the consumer is stalled */
	NODROP_HOLD_DROP_FULL,		/* drops: too many charged frames */
	NODROP_HOLD_DROP_REST,		/* drops: segments after a drop */
	NODROP_HOLD_COUNTERS,

	/* Gauges: frames in the ring, txqueuelen. */
	NODROP_HOLD_RING = NODROP_HOLD_COUNTERS,
	NODROP_HOLD_LIMIT,
	NODROP_HOLD_STATS
};

extern const char *const nodrop_hold_stat_names[NODROP_HOLD_STATS];

/**
 * struct nodrop_hold - backpressure of one ring
 * @ring: the ring; never changes
 * @limit: txqueuelen; producer_lock
 * @stalled: the consumer has taken nothing for guard_ms; producer_lock to write
 * @armed: @guard is to sample again; producer_lock
 * @closed: nothing arms @guard any more; producer_lock
 * @kept: @guard goes on while the ring is empty; producer_lock
 * @samples: consecutive samples with the same @taken; producer_lock
 * @uncharged: frames after @taken that @guard has uncharged; producer_lock
 * @taken: nodrop_hold_taken() in the last sample; producer_lock
 * @head: consumer_head then; producer_lock to write
 * @produced: frames that entered the ring; producer_lock
 * @plain: those of @produced that are not charged; producer_lock
 * @before: at n & @mask, the @plain of the time when @produced was n;
 *	producer_lock
 * @mask: entries of @before, a power of two above the ring's slots, minus 1
 * @stats: the counters; producer_lock
 * @guard: samples the consumer while the ring holds frames, or is @kept
 */
struct nodrop_hold {
	struct ptr_ring *ring;
	int limit;
	bool stalled;
	bool armed;
	bool closed;
	bool kept;
	unsigned int samples;
	int uncharged;
	u32 taken;
	int head;
	u32 produced;
	u32 plain;
	u32 *before;
	u32 mask;
	u64 stats[NODROP_HOLD_COUNTERS];
	struct delayed_work guard;
};

/* No ring has more slots. */
#define NODROP_HOLD_MAX		((int)(KMALLOC_MAX_SIZE / sizeof(void *)))

/*
 * Charged frames that may exceed txqueuelen. ptr_ring releases slots in batches
 * of two cache lines.
 */
#define NODROP_HOLD_MOST \
	(NODROP_HOLD_RESERVE - (int)(SMP_CACHE_BYTES * 2 / sizeof(void *)))

/* Slots for a txqueuelen; INT_MAX, which is refused, if it is too large. */
static inline int nodrop_hold_size(unsigned int txqueuelen)
{
	if (txqueuelen > NODROP_HOLD_MAX)
		return INT_MAX;
	return min(NODROP_HOLD_MAX, (int)txqueuelen + NODROP_HOLD_RESERVE);
}

/*
 * Frames in the ring. Slots that were consumed and not yet released still have
 * their pointers, to frames that may be freed, and do not count.
 *
 * Context: producer_lock held; exact with consumer_lock, too.
 */
static inline int nodrop_hold_frames(struct ptr_ring *ring)
{
	int frames = ring->producer - READ_ONCE(ring->consumer_head);

	if (frames < 0 || (!frames && !__ptr_ring_empty(ring)))
		frames += ring->size;
	return frames;
}

/*
 * Frames that have left the ring: consumed, or dropped by a resize.
 *
 * Context: as of nodrop_hold_frames().
 */
static inline u32 nodrop_hold_taken(const struct nodrop_hold *hold)
{
	return hold->produced - nodrop_hold_frames(hold->ring);
}

/*
 * Is the consumer stalled? Lockless, and so wrong for a moment: the guard's
 * next sample uncharges frames that were charged by mistake.
 */
static inline bool nodrop_hold_stalls(const struct nodrop_hold *hold)
{
	return READ_ONCE(hold->stalled) &&
	       READ_ONCE(hold->ring->consumer_head) == READ_ONCE(hold->head);
}

void nodrop_hold_init(struct nodrop_hold *hold, struct ptr_ring *ring);
int nodrop_hold_grow(struct nodrop_hold *hold, int size);
int nodrop_hold_limit(struct nodrop_hold *hold, int limit);
void nodrop_hold_free(struct nodrop_hold *hold);
int nodrop_hold_produce(struct nodrop_hold *hold, struct sk_buff *skb);
void nodrop_hold_rest(struct nodrop_hold *hold, unsigned int segments);
void nodrop_hold_read(struct nodrop_hold *hold, u64 stats[NODROP_HOLD_STATS]);

void nodrop_hold_lock(struct ptr_ring *ring);
void nodrop_hold_unlock(struct ptr_ring *ring);
void nodrop_hold_guard_init(struct nodrop_hold *hold);
void nodrop_hold_guard_arm(struct nodrop_hold *hold);
void nodrop_hold_guard_keep(struct nodrop_hold *hold);
void nodrop_hold_guard_end(struct nodrop_hold *hold);

#endif
