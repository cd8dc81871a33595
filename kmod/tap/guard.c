// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stall guard: a consumer that takes nothing must not block senders for
 * ever.
 *
 * While the ring holds frames, the guard samples at least NODROP_HOLD_LOOKS
 * times in guard_ms whether the consumer took one. If it never did, it is
 * stalled: all frames in the ring are uncharged. Until it takes a frame, new
 * ones are, too: by their sender, or by the next sample. Samples and not one
 * timeout, because time jumps: after a pause of a virtual machine a timer has
 * expired before the consumer could run. The period is bounded, because
 * guard_ms may be lowered at any time.
 *
 * Work and not a timer: it takes consumer_lock, which consumers hold with
 * softirqs on.
 */
#include <linux/module.h>
#include <net/sock.h>

#include "hold.h"

static unsigned int nodrop_hold_guard_ms = 1000;
module_param_named(guard_ms, nodrop_hold_guard_ms, uint, 0644);
MODULE_PARM_DESC(guard_ms, "Milliseconds after which a consumer that takes nothing is stalled and blocks no sender, 0: never (default 1000)");

#define NODROP_HOLD_LOOKS	8
#define NODROP_HOLD_LONG_MS	1000U

/* Frames that are uncharged with the locks held. */
#define NODROP_HOLD_BATCH	64

/* Milliseconds between two samples. */
static unsigned int nodrop_hold_period(void)
{
	unsigned int ms = READ_ONCE(nodrop_hold_guard_ms) ?:
			  NODROP_HOLD_LONG_MS;

	return max(min(ms, NODROP_HOLD_LONG_MS) / NODROP_HOLD_LOOKS, 1U);
}

static void nodrop_hold_guard_next(struct nodrop_hold *hold, unsigned int ms)
{
	cancel_delayed_work(&hold->guard);
	schedule_delayed_work(&hold->guard, msecs_to_jiffies(ms));
}

void nodrop_hold_lock(struct ptr_ring *ring)
{
	spin_lock_bh(&ring->consumer_lock);
	spin_lock(&ring->producer_lock);
}

void nodrop_hold_unlock(struct ptr_ring *ring)
{
	spin_unlock(&ring->producer_lock);
	spin_unlock_bh(&ring->consumer_lock);
}

/* Sample from now on: the ring gets a frame. Context: producer_lock held. */
void nodrop_hold_guard_arm(struct nodrop_hold *hold)
{
	if (hold->armed || hold->closed)
		return;

	hold->armed = true;
	hold->samples = 0;
	hold->uncharged = 0;
	hold->taken = nodrop_hold_taken(hold);
	WRITE_ONCE(hold->stalled, false);
	WRITE_ONCE(hold->head, READ_ONCE(hold->ring->consumer_head));
	nodrop_hold_guard_next(hold, nodrop_hold_period());
}

/* vhost-net has the ring, and may put frames back into it. */
void nodrop_hold_guard_keep(struct nodrop_hold *hold)
{
	nodrop_hold_lock(hold->ring);
	hold->kept = true;
	nodrop_hold_guard_arm(hold);
	nodrop_hold_unlock(hold->ring);
}

/*
 * Uncharge one frame after another. The last charge keeps a closed socket, and
 * freeing a tap's socket takes a lock of its ring: drop these locks before.
 *
 * Context: process context, both locks held; dropped now and then.
 */
static void nodrop_hold_uncharge(struct nodrop_hold *hold)
{
	struct ptr_ring *ring = hold->ring;
	struct sk_buff *skb;
	struct sock *sk;
	int at;

	while (nodrop_hold_taken(hold) == hold->taken &&
	       hold->uncharged < nodrop_hold_frames(ring)) {
		at = ring->consumer_head + hold->uncharged++;
		skb = ring->queue[at < ring->size ? at : at - ring->size];
		sk = skb->destructor == sock_wfree ? skb->sk : NULL;
		if (sk)
			refcount_inc(&sk->sk_wmem_alloc);
		skb_orphan(skb);
		if (!sk && hold->uncharged % NODROP_HOLD_BATCH)
			continue;
		nodrop_hold_unlock(ring);
		if (sk)
			sk_free(sk);
		cond_resched();
		nodrop_hold_lock(ring);
	}
}

/*
 * Counts frames: after a resize or a full turn, consumer_head may be the same
 * although some were taken. @head stays as it was if some were: senders must
 * not find the consumer stalled.
 *
 * Context: both locks held.
 */
static bool nodrop_hold_has_stalled(struct nodrop_hold *hold)
{
	unsigned int ms = READ_ONCE(nodrop_hold_guard_ms);
	u32 taken = nodrop_hold_taken(hold);

	if (!ms || taken != hold->taken || __ptr_ring_empty(hold->ring)) {
		hold->samples = 0;
		hold->uncharged = 0;
		hold->taken = taken;
		return false;
	}
	WRITE_ONCE(hold->head, hold->ring->consumer_head);
	hold->samples++;
	return hold->stalled || hold->samples >= ms / nodrop_hold_period();
}

static void nodrop_hold_sample(struct work_struct *work)
{
	struct nodrop_hold *hold = container_of(to_delayed_work(work),
						struct nodrop_hold, guard);
	struct ptr_ring *ring = hold->ring;
	bool stalled;

	nodrop_hold_lock(ring);
	if (!hold->armed && !__ptr_ring_empty(ring)) {
		/* vhost-net has put frames back. */
		nodrop_hold_guard_arm(hold);
		goto out;
	}
	stalled = nodrop_hold_has_stalled(hold);
	hold->stats[NODROP_HOLD_GUARD_TRIPS] += stalled && !hold->stalled;
	WRITE_ONCE(hold->stalled, stalled);
	if (stalled)
		nodrop_hold_uncharge(hold);

	hold->armed = !hold->closed && !__ptr_ring_empty(ring);
	if (hold->armed)
		nodrop_hold_guard_next(hold, nodrop_hold_period());
	else if (hold->kept && !hold->closed)
		nodrop_hold_guard_next(hold, NODROP_HOLD_LONG_MS);
out:
	nodrop_hold_unlock(ring);
}

void nodrop_hold_guard_init(struct nodrop_hold *hold)
{
	INIT_DELAYED_WORK(&hold->guard, nodrop_hold_sample);
}

/* The consumer has closed its file. Context: process context. */
void nodrop_hold_guard_end(struct nodrop_hold *hold)
{
	nodrop_hold_lock(hold->ring);
	hold->closed = true;
	nodrop_hold_unlock(hold->ring);
	cancel_delayed_work_sync(&hold->guard);
}
