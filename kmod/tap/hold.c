// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which frames a ring takes, what they cost their sockets, and the counters.
 * See hold.h.
 */
#include <linux/module.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "guard.h"
#include "hold.h"

static bool nodrop_hold_on = true;
module_param_named(nodrop, nodrop_hold_on, bool, 0644);
MODULE_PARM_DESC(nodrop, "Hold sockets whose frames find no room instead of dropping these (default on)");

/* Above that a send buffer is no limit, and its share of a ring no price. */
#define NODROP_HOLD_SNDBUF_MAX	(64 << 20)

const char *const nodrop_hold_stat_names[NODROP_HOLD_STATS] = {
	[NODROP_HOLD_OVER] = "over",
	[NODROP_HOLD_PRICED] = "priced",
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

/* TCP has a destructor of its own for what it sends; these are not for that. */
static bool nodrop_hold_is_tcp(const struct sk_buff *skb)
{
	return skb->sk->sk_protocol == IPPROTO_TCP &&
	       skb->destructor != sock_rfree &&
	       skb->destructor != sock_efree &&
	       skb->destructor != sock_edemux &&
	       skb->destructor != sock_pfree;
}

/* Does a socket wait until this frame is read? */
static bool nodrop_hold_can(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk || !skb->destructor || !sk_fullsock(sk))
		return false;
	if (skb->destructor != sock_wfree)
		return nodrop_hold_is_tcp(skb);
	return READ_ONCE(sk->sk_sndbuf) <= NODROP_HOLD_SNDBUF_MAX;
}

/*
 * Does the ring hold @n frames or more? Slots that the reader has not given
 * back yet count. Frames lie without a gap, so one slot tells.
 */
static bool nodrop_hold_has(const struct ptr_ring *ring, int n)
{
	int at = ring->producer - n;

	if (at < 0)
		at += ring->size;
	/* The reader may give it back right now; either answer was right. */
	return data_race(ring->queue[at]);
}

/*
 * TCP keeps little on its way by itself (TSQ), so it pays what all pay. Nor
 * does a socket pay more than what is left of its send buffer: one that has
 * its buffer used up twice would not wait but fail (ip_append_data()).
 *
 * Context: nobody else has the frame.
 */
static bool nodrop_hold_charge(const struct ptr_ring *ring, int limit,
			       struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	int sndbuf, left, price;

	if (skb->destructor != sock_wfree || skb_shared(skb) ||
	    !nodrop_hold_has(ring, max(limit / 2, 1)))
		return false;

	sndbuf = READ_ONCE(sk->sk_sndbuf);
	left = sndbuf - (int)refcount_read(&sk->sk_wmem_alloc);
	if (left <= 0)
		return false;

	price = nodrop_hold_has(ring, max(limit - limit / 4, 1)) ?
		left : min(left, sndbuf / 8);
	skb->truesize += price;
	refcount_add(price, &sk->sk_wmem_alloc);
	return true;
}

/* Why a frame that cannot be held is dropped. */
static enum nodrop_hold_stat nodrop_hold_cause(const struct nodrop_hold *hold)
{
	if (!READ_ONCE(nodrop_hold_on))
		return NODROP_HOLD_DROP_OFF;
	return hold->gone ? NODROP_HOLD_DROP_GUARD : NODROP_HOLD_DROP_UNHELD;
}

/**
 * nodrop_hold_produce() - put a frame into the ring
 * @hold: beside the ring
 * @skb: the frame; nobody else may have it
 *
 * Context: softirqs off.
 * Return: 0, or an error: the frame is still the caller's, and counted.
 */
int nodrop_hold_produce(struct nodrop_hold *hold, struct sk_buff *skb)
{
	struct ptr_ring *ring = hold->ring;
	bool over, can;
	int err, limit;

	/* Outside of the lock: it calls who waits. */
	if (unlikely(READ_ONCE(hold->gone)) && !nodrop_hold_is_back(hold))
		skb_orphan(skb);
	can = READ_ONCE(nodrop_hold_on) && nodrop_hold_can(skb);

	spin_lock(&ring->producer_lock);
	/*
	 * The frame's fields have been read before the reader can free it;
	 * __ptr_ring_produce() orders writes only. Pairs with the reader's
	 * dependency on the frame.
	 * Litmus: LB+use-lock-mb-slot+take-reuse
	 */
	smp_mb__after_spinlock();
	nodrop_hold_guard_arm(hold);
	limit = ring->size - NODROP_HOLD_RESERVE;
	over = !limit || nodrop_hold_has(ring, limit);
	if (over && !can) {
		hold->stats[nodrop_hold_cause(hold)]++;
		err = -ENOSPC;
		goto out;
	}

	if (__ptr_ring_full(ring)) {
		hold->stats[NODROP_HOLD_DROP_FULL]++;
		err = -ENOSPC;
		goto out;
	}
	if (can) {
		hold->stats[NODROP_HOLD_OVER] += over;
		hold->stats[NODROP_HOLD_PRICED] +=
			nodrop_hold_charge(ring, limit, skb);
	}
	err = __ptr_ring_produce(ring, skb);
out:
	spin_unlock(&ring->producer_lock);
	return err;
}

/* Segments of a large frame, of which one was dropped just now, are, too. */
void nodrop_hold_rest(struct nodrop_hold *hold, unsigned int segments)
{
	spin_lock(&hold->ring->producer_lock);
	hold->stats[NODROP_HOLD_DROP_REST] += segments;
	spin_unlock(&hold->ring->producer_lock);
}

/*
 * No sender reaches the ring any more: free what it holds, and so give back
 * what sockets are charged with.
 *
 * Context: process context.
 */
void nodrop_hold_purge(struct nodrop_hold *hold)
{
	struct sk_buff *skb;

	while ((skb = ptr_ring_consume(hold->ring)))
		kfree_skb(skb);
}

/* Context: process context. */
void nodrop_hold_read(struct nodrop_hold *hold, u64 stats[NODROP_HOLD_STATS])
{
	struct ptr_ring *ring = hold->ring;

	spin_lock_bh(&ring->consumer_lock);
	spin_lock(&ring->producer_lock);
	memcpy(stats, hold->stats, sizeof(hold->stats));
	stats[NODROP_HOLD_RING] = nodrop_hold_frames(ring);
	stats[NODROP_HOLD_LIMIT] = ring->size - NODROP_HOLD_RESERVE;
	spin_unlock(&ring->producer_lock);
	spin_unlock_bh(&ring->consumer_lock);
}
