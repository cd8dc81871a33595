// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guard: a reader that takes nothing must not hold its senders for ever.
 *
 * Frames in a ring stay charged to their sockets. That is right while the
 * reader works, and wrong when it was left alone or hangs: without nodrop a
 * socket that sends to such a tap is blocked until the tap is closed. The
 * guard looks NODROP_HOLD_LOOKS times in guard_ms whether the reader took
 * anything. If it never did, all that the ring holds is given up by its
 * sockets, which go on, and so is what comes until the reader reads on. The
 * frames themselves stay, as many as txqueuelen and more where they were held.
 *
 * Work and not a timer: it takes the consumer's lock, which readers hold with
 * softirqs on.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <net/sock.h>

#include "guard.h"

static unsigned int nodrop_hold_guard_ms = 1000;
module_param_named(guard_ms, nodrop_hold_guard_ms, uint, 0644);
MODULE_PARM_DESC(guard_ms, "Milliseconds after which a reader that takes nothing is taken for gone and holds nobody, 0: never (default 1000)");

#define NODROP_HOLD_LOOKS	8

/* How often it looks while it is switched off, in case it is switched on. */
#define NODROP_HOLD_IDLE_MS	1000

static unsigned long nodrop_hold_period(void)
{
	unsigned int ms = READ_ONCE(nodrop_hold_guard_ms) ?:
			  NODROP_HOLD_IDLE_MS;

	return max(1UL, msecs_to_jiffies(ms) / NODROP_HOLD_LOOKS);
}

static void nodrop_hold_lock(struct ptr_ring *ring)
{
	spin_lock_bh(&ring->consumer_lock);
	spin_lock(&ring->producer_lock);
}

static void nodrop_hold_unlock(struct ptr_ring *ring)
{
	spin_unlock(&ring->producer_lock);
	spin_unlock_bh(&ring->consumer_lock);
}

/*
 * A sender comes by. If the reader was taken for gone and is not any more,
 * sockets are held again.
 *
 * Context: producer_lock held.
 */
void nodrop_hold_guard_arm(struct nodrop_hold *hold)
{
	if (unlikely(hold->gone)) {
		if (!nodrop_hold_is_back(hold))
			return;
		WRITE_ONCE(hold->gone, false);
	}
	if (hold->armed || hold->closed)
		return;

	hold->armed = true;
	hold->looks = 0;
	WRITE_ONCE(hold->head, READ_ONCE(hold->ring->consumer_head));
	schedule_delayed_work(&hold->guard, nodrop_hold_period());
}

/*
 * Context: both locks held.
 * Return: is the reader gone?
 */
static bool nodrop_hold_is_gone(struct nodrop_hold *hold)
{
	int head = hold->ring->consumer_head;

	if (head != hold->head) {
		WRITE_ONCE(hold->head, head);
		hold->looks = 0;
	} else if (!READ_ONCE(nodrop_hold_guard_ms)) {
		hold->looks = 0;
	} else if (hold->looks < NODROP_HOLD_LOOKS) {
		hold->looks++;
	}
	return hold->looks == NODROP_HOLD_LOOKS;
}

/*
 * Give back what sockets are charged with for the frames in the ring. A
 * socket that was closed may end by that, and its end may take the locks of a
 * ring of its own: it is put off until these are free.
 *
 * Context: both locks held; @ended has room for all that the ring can hold.
 * Return: how many are in @ended.
 */
static int nodrop_hold_give_up(struct ptr_ring *ring, struct sock **ended)
{
	int frames = nodrop_hold_frames(ring), n = 0, i;
	int at = ring->consumer_head;
	struct sk_buff *skb;

	for (i = 0; i < frames; i++) {
		skb = ring->queue[at];
		if (skb->destructor == sock_wfree) {
			refcount_inc(&skb->sk->sk_wmem_alloc);
			ended[n++] = skb->sk;
		}
		skb_orphan(skb);
		if (++at == ring->size)
			at = 0;
	}
	return n;
}

static void nodrop_hold_trip(struct nodrop_hold *hold)
{
	struct ptr_ring *ring = hold->ring;
	struct sock **ended;
	int size, n = 0;

	size = READ_ONCE(ring->size);
	ended = kvmalloc_array(size, sizeof(*ended), GFP_KERNEL);
	nodrop_hold_lock(ring);
	/* It may have been resized, or read from, just now. */
	if (ended && ring->size <= size && nodrop_hold_is_gone(hold)) {
		n = nodrop_hold_give_up(ring, ended);
		WRITE_ONCE(hold->gone, true);
		hold->stats[NODROP_HOLD_GUARD_TRIPS]++;
		hold->armed = false;
	}
	if (hold->armed)
		schedule_delayed_work(&hold->guard, nodrop_hold_period());
	nodrop_hold_unlock(ring);

	while (n)
		sk_free(ended[--n]);
	kvfree(ended);
}

static void nodrop_hold_look(struct work_struct *work)
{
	struct nodrop_hold *hold = container_of(to_delayed_work(work),
						struct nodrop_hold, guard);
	struct ptr_ring *ring = hold->ring;
	bool gone = false;

	nodrop_hold_lock(ring);
	if (hold->closed || __ptr_ring_empty(ring))
		hold->armed = false;
	else
		gone = nodrop_hold_is_gone(hold);
	if (hold->armed && !gone)
		schedule_delayed_work(&hold->guard, nodrop_hold_period());
	nodrop_hold_unlock(ring);

	if (gone)
		nodrop_hold_trip(hold);
}

void nodrop_hold_guard_init(struct nodrop_hold *hold)
{
	INIT_DELAYED_WORK(&hold->guard, nodrop_hold_look);
}

/**
 * nodrop_hold_close() - the reader goes: the guard ends
 * @hold: beside its ring, which takes frames for a moment still
 *
 * Context: process context.
 */
void nodrop_hold_close(struct nodrop_hold *hold)
{
	nodrop_hold_lock(hold->ring);
	hold->closed = true;
	hold->armed = false;
	nodrop_hold_unlock(hold->ring);
	cancel_delayed_work_sync(&hold->guard);
}
