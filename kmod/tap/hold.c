// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which frames a ring accepts, and the counters. See hold.h.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "../flow/owner.h"
#include "hold.h"

static bool nodrop_hold_on = true;
module_param_named(nodrop, nodrop_hold_on, bool, 0644);
MODULE_PARM_DESC(nodrop, "Queue frames that are charged to a socket beyond txqueuelen instead of dropping them (default on)");

/* A socket with a larger send buffer does not block in practice. */
#define NODROP_HOLD_SNDBUF_MAX	(64 << 20)

const char *const nodrop_hold_stat_names[NODROP_HOLD_STATS] = {
	[NODROP_HOLD_OVER] = "over",
	[NODROP_HOLD_GUARD_TRIPS] = "guard_trips",
	[NODROP_HOLD_DROP_UNHELD] = "drop_unheld",
	[NODROP_HOLD_DROP_OFF] = "drop_off",
	[NODROP_HOLD_DROP_GUARD] = "drop_guard",
	[NODROP_HOLD_DROP_FULL] = "drop_full",
	[NODROP_HOLD_DROP_REST] = "drop_rest",
	[NODROP_HOLD_RING] = "ring",
	[NODROP_HOLD_LIMIT] = "limit",
};

void nodrop_hold_init(struct nodrop_hold *hold, struct ptr_ring *ring)
{
	hold->ring = ring;
	nodrop_hold_guard_init(hold);
}

/**
 * nodrop_hold_grow() - make @before long enough for a new size of the ring
 * @hold: of the ring, which still has its old size
 * @size: slots of the ring
 *
 * Context: process context; nothing else changes the ring's size.
 * Return: 0 or -ENOMEM, with nothing changed.
 */
int nodrop_hold_grow(struct nodrop_hold *hold, int size)
{
	u32 entries, at, i, *before, *old = hold->before;

	if (size > NODROP_HOLD_MAX)
		return -ENOMEM;
	/* One more than slots: before the first and after the last frame. */
	entries = roundup_pow_of_two(size + 1);
	if (old && entries <= hold->mask + 1)
		return 0;
	before = kvcalloc(entries, sizeof(*before), GFP_KERNEL);
	if (!before)
		return -ENOMEM;

	spin_lock_bh(&hold->ring->producer_lock);
	for (i = 0; old && i <= hold->mask; i++) {
		at = hold->produced - i;
		before[at & (entries - 1)] = old[at & hold->mask];
	}
	hold->before = before;
	hold->mask = entries - 1;
	spin_unlock_bh(&hold->ring->producer_lock);
	kvfree(old);
	return 0;
}

void nodrop_hold_free(struct nodrop_hold *hold)
{
	kvfree(hold->before);
	hold->before = NULL;
}

/*
 * Is the frame TCP data, whose destructor is TCP's own and none of these? A
 * pure ACK is charged too little to block its socket.
 */
static bool nodrop_hold_is_tcp(const struct sk_buff *skb)
{
	return skb->sk->sk_protocol == IPPROTO_TCP &&
	       !skb_is_tcp_pure_ack(skb) &&
	       skb->destructor != sock_rfree &&
	       skb->destructor != sock_efree &&
	       skb->destructor != sock_edemux &&
	       skb->destructor != sock_pfree;
}

/* Is the frame charged to a socket that blocks at its send buffer's limit? */
static bool nodrop_hold_is_charged(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk || !skb->destructor || !sk_fullsock(sk))
		return false;
	if (skb->destructor != sock_wfree)
		return nodrop_hold_is_tcp(skb);
	return READ_ONCE(sk->sk_sndbuf) <= NODROP_HOLD_SNDBUF_MAX;
}

/*
 * How many frames in the ring are not charged to a socket.
 *
 * Context: producer_lock held.
 */
static int nodrop_hold_plain(const struct nodrop_hold *hold, int frames)
{
	u32 taken = hold->produced - frames;

	return hold->plain - hold->before[taken & hold->mask];
}

/**
 * nodrop_hold_limit() - set the limit for frames that are not charged
 * @hold: of the ring
 * @limit: txqueuelen, no more than NODROP_HOLD_MAX
 *
 * Context: process context; nothing else changes the limit.
 * Return: slots for the frames in the ring and for those that the limit allows:
 * a resize to so many drops none.
 */
int nodrop_hold_limit(struct nodrop_hold *hold, int limit)
{
	int frames, plain;

	nodrop_hold_lock(hold->ring);
	hold->limit = limit;
	frames = nodrop_hold_frames(hold->ring);
	plain = nodrop_hold_plain(hold, frames);
	nodrop_hold_unlock(hold->ring);
	return min(NODROP_HOLD_MAX,
		   nodrop_hold_size(max(plain, limit)) +
		   max(frames - plain - NODROP_HOLD_MOST, 0));
}

/* Why a frame that is not charged is dropped. */
static enum nodrop_hold_stat nodrop_hold_cause(const struct nodrop_hold *hold)
{
	if (!READ_ONCE(nodrop_hold_on))
		return NODROP_HOLD_DROP_OFF;
	return nodrop_hold_stalls(hold) ? NODROP_HOLD_DROP_GUARD :
					  NODROP_HOLD_DROP_UNHELD;
}

/**
 * nodrop_hold_produce() - put a frame into the ring
 * @hold: of the ring
 * @skb: the frame, not shared
 *
 * Context: softirqs off.
 * Return: 0, or -ENOSPC: the drop is counted here, the caller keeps the frame.
 */
int nodrop_hold_produce(struct nodrop_hold *hold, struct sk_buff *skb)
{
	struct ptr_ring *ring = hold->ring;
	int frames, plain, err = -ENOSPC;
	bool charged, beyond, on = READ_ONCE(nodrop_hold_on);

	/* Before the lock is taken: this may wake the sender. */
	if (unlikely(nodrop_hold_stalls(hold)) ||
	    (on && nodrop_is_reply(skb)))
		skb_orphan(skb);
	charged = on && nodrop_hold_is_charged(skb);

	spin_lock(&ring->producer_lock);
	/*
	 * Complete the reads of the frame before the consumer can free it:
	 * __ptr_ring_produce() orders writes only. Pairs with the consumer's
	 * dependency on the frame.
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	nodrop_hold_guard_arm(hold);
	frames = nodrop_hold_frames(ring);
	plain = nodrop_hold_plain(hold, frames);
	if (!charged && plain >= hold->limit) {
		hold->stats[nodrop_hold_cause(hold)]++;
		goto out;
	}
	/* Beyond txqueuelen, leave other frames their slots. */
	beyond = charged && frames >= hold->limit;
	if (beyond && frames - plain >= NODROP_HOLD_MOST) {
		hold->stats[NODROP_HOLD_DROP_FULL]++;
		goto out;
	}

	err = __ptr_ring_produce(ring, skb);
	if (err) {
		hold->stats[NODROP_HOLD_DROP_FULL]++;
		goto out;
	}
	hold->produced++;
	hold->plain += !charged;
	hold->before[hold->produced & hold->mask] = hold->plain;
	hold->stats[NODROP_HOLD_OVER] += beyond;
out:
	spin_unlock(&ring->producer_lock);
	return err;
}

/* Count the segments that are dropped after one of their large frame. */
void nodrop_hold_rest(struct nodrop_hold *hold, unsigned int segments)
{
	spin_lock(&hold->ring->producer_lock);
	hold->stats[NODROP_HOLD_DROP_REST] += segments;
	spin_unlock(&hold->ring->producer_lock);
}

/* Context: process context. */
void nodrop_hold_read(struct nodrop_hold *hold, u64 stats[NODROP_HOLD_STATS])
{
	struct ptr_ring *ring = hold->ring;

	nodrop_hold_lock(ring);
	memcpy(stats, hold->stats, sizeof(hold->stats));
	stats[NODROP_HOLD_RING] = nodrop_hold_frames(ring);
	stats[NODROP_HOLD_LIMIT] = hold->limit;
	nodrop_hold_unlock(ring);
}
