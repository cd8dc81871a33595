/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Backpressure for a ring that no qdisc feeds.
 *
 * A frame for a macvtap or ipvtap comes through a receive handler. There is no
 * TX queue to stop, and stopping the sender's own would stop all else that
 * goes through it. But a frame of a user's socket stays charged to that socket
 * until the reader has taken it: the socket blocks when its send buffer is
 * used up. The stock driver has that backpressure, too, and defeats it by
 * dropping such frames as soon as txqueuelen are queued. So:
 *
 * 1. The array has NODROP_HOLD_RESERVE slots more than txqueuelen. Frames that
 *    are charged to a socket ("charged frames") may exceed txqueuelen until
 *    NODROP_HOLD_MOST of them are there. All other frames are counted by
 *    themselves against txqueuelen, as many as the stock driver queues, and do
 *    not compete with charged frames.
 * 2. Nobody pays more than with the stock driver: no frame's truesize changes.
 *    Sockets by which the kernel answers everybody pay nothing: a guest that
 *    does not read would keep the others from being answered.
 * 3. When a reader takes nothing for guard_ms, the stall guard uncharges all
 *    frames in the ring, and until the reader takes something no frame counts
 *    as charged. Frames that vhost-net has taken and not yet given to its
 *    guest, at most 64, are not in the ring: they stay charged, as with the
 *    stock driver.
 * 4. What the ring holds when its file is closed is freed there and then. Two
 *    rings with frames of each other's sockets would otherwise keep each other
 *    for ever.
 */
#ifndef NODROP_HOLD_H
#define NODROP_HOLD_H

#include <linux/ptr_ring.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

/* 40 UDP sockets with the default send buffer of 208 kB and full frames. */
#define NODROP_HOLD_RESERVE	4096

/* What ethtool -S shows of one ring. */
enum nodrop_hold_stat {
	NODROP_HOLD_OVER,		/* charged frames beyond txqueuelen */
	NODROP_HOLD_GUARD_TRIPS,	/* times the reader stalled */
	NODROP_HOLD_DROP_UNHELD,	/* frames: no socket to block */
	NODROP_HOLD_DROP_OFF,		/* frames: switched off */
	NODROP_HOLD_DROP_GUARD,		/* frames: the reader stalls */
	NODROP_HOLD_DROP_FULL,		/* charged frames: too many */
	NODROP_HOLD_DROP_REST,		/* segments behind a dropped one */
	NODROP_HOLD_COUNTERS,

	/* No counters: frames in the ring, txqueuelen. */
	NODROP_HOLD_RING = NODROP_HOLD_COUNTERS,
	NODROP_HOLD_LIMIT,
	NODROP_HOLD_STATS
};

extern const char *const nodrop_hold_stat_names[NODROP_HOLD_STATS];

/**
 * struct nodrop_hold - what stands beside one ring
 * @ring: the ring; never changes
 * @limit: txqueuelen; producer_lock
 * @stalled: the reader has taken nothing for guard_ms; producer_lock to write
 * @armed: @guard is to sample again; producer_lock
 * @closed: nothing arms @guard any more; producer_lock
 * @samples: how often @guard has found the same @taken; producer_lock
 * @uncharged: frames behind @taken that @guard has uncharged; producer_lock
 * @taken: frames that the reader had taken at the last sample; producer_lock
 * @head: where the reader was then; producer_lock to write
 * @produced: frames, since the ring was made; producer_lock
 * @plain: those of @produced that no socket is charged with; producer_lock
 * @before: by number of a frame, @plain before it; producer_lock
 * @mask: entries of @before, a power of two and no less than the ring's, - 1
 * @stats: producer_lock
 * @guard: samples the reader while the ring holds something
 */
struct nodrop_hold {
	struct ptr_ring *ring;
	int limit;
	bool stalled;
	bool armed;
	bool closed;
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
 * Charged frames in a ring that is longer than txqueuelen for them; a batch of
 * slots may be read and not given back.
 */
#define NODROP_HOLD_MOST	(NODROP_HOLD_RESERVE - 16)

/* Slots for a txqueuelen; too many where the kernel's own driver refuses it. */
static inline int nodrop_hold_size(unsigned int txqueuelen)
{
	if (txqueuelen > NODROP_HOLD_MAX)
		return INT_MAX;
	return min(NODROP_HOLD_MAX, (int)txqueuelen + NODROP_HOLD_RESERVE);
}

/*
 * How many frames the ring holds. Slots that were read and not given back yet
 * still have their pointers; what these point to is gone.
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
 * How many frames are no longer in the ring, since it was made: read, or
 * dropped by a resize.
 *
 * Context: as of nodrop_hold_frames().
 */
static inline u32 nodrop_hold_taken(const struct nodrop_hold *hold)
{
	return hold->produced - nodrop_hold_frames(hold->ring);
}

/*
 * Has the reader stalled? Without a lock this may be wrong for a moment; the
 * next sample of the guard uncharges frames that came in by mistake.
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
void nodrop_hold_guard_end(struct nodrop_hold *hold);

#endif
