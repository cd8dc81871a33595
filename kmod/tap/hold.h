/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holding senders who reach a ring past any qdisc, by their sockets.
 *
 * A frame for a macvtap or ipvtap comes through a receive handler. No txq
 * stands in front of its ring that could be stopped, and whoever stopped the
 * sender's own would stop all else that goes through it. But a frame from a
 * socket of this machine is still charged to that socket when it gets here,
 * and stays so until the reader has taken it: that socket, and nobody else,
 * waits as soon as its send buffer is used up. So:
 *
 * 1. The ring is longer than txqueuelen, by NODROP_HOLD_RESERVE slots. They
 *    are for frames whose sockets wait; all others find the ring full when it
 *    holds txqueuelen frames, as without nodrop. What can be held need not be
 *    dropped, and does not take the place of what cannot.
 * 2. The price. A frame that finds the ring half full costs its socket an
 *    eighth of its send buffer, one that finds it three quarters full costs
 *    what is left of it. So the more there is, the fewer each socket has on
 *    its way, one at the end, and the ring stays below txqueuelen without a
 *    drop.
 * 3. The guard. When a reader takes nothing for a while (guard_ms), all
 *    sockets get back what they are charged with; the frames stay. Until the
 *    reader takes something nobody is held.
 * 4. The end. What the ring holds when its file is closed is freed there and
 *    then. Two rings with frames of each other's sockets would otherwise keep
 *    each other for ever.
 *
 * Who can be held: sockets with a send buffer that is limited. Not forwarded
 * frames, copies (broadcast, multicast), pktgen, and virtual machines without
 * a limit (TUNSETSNDBUF INT_MAX, which is what QEMU sets).
 */
#ifndef NODROP_HOLD_H
#define NODROP_HOLD_H

#include <linux/ptr_ring.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>

/* Twice what the backlogs of two CPUs may bring at once, and some. */
#define NODROP_HOLD_RESERVE	4096

/* What is told of one ring. */
enum nodrop_hold_stat {
	NODROP_HOLD_OVER,		/* frames held beyond txqueuelen */
	NODROP_HOLD_PRICED,		/* frames that cost their socket more */
	NODROP_HOLD_GUARD_TRIPS,	/* times the reader was gone */
	NODROP_HOLD_DROP_UNHELD,	/* frames: no socket that could wait */
	NODROP_HOLD_DROP_OFF,		/* frames: switched off */
	NODROP_HOLD_DROP_GUARD,		/* frames: reader is gone */
	NODROP_HOLD_DROP_FULL,		/* frames: sockets wait, no slot left */
	NODROP_HOLD_DROP_REST,		/* segments behind a dropped one */
	NODROP_HOLD_COUNTERS,

	/* Not counters: what the ring holds, what txqueuelen lets it hold. */
	NODROP_HOLD_RING = NODROP_HOLD_COUNTERS,
	NODROP_HOLD_LIMIT,
	NODROP_HOLD_STATS
};

extern const char *const nodrop_hold_stat_names[NODROP_HOLD_STATS];

/**
 * struct nodrop_hold - what stands beside one ring
 * @ring: the ring; never changes
 * @gone: the reader has taken nothing for too long; producer_lock to write
 * @armed: @guard is to look again; producer_lock
 * @closed: nothing arms @guard any more; producer_lock
 * @looks: how often @guard has found the same @head; producer_lock
 * @head: where the reader was when @guard looked last; producer_lock
 * @stats: producer_lock
 * @guard: looks after the reader while the ring holds something
 */
struct nodrop_hold {
	struct ptr_ring *ring;
	bool gone;
	bool armed;
	bool closed;
	u8 looks;
	int head;
	u64 stats[NODROP_HOLD_COUNTERS];
	struct delayed_work guard;
};

/* How many slots a ring has for a txqueuelen. */
static inline int nodrop_hold_size(unsigned int txqueuelen)
{
	return min_t(unsigned int, txqueuelen, INT_MAX - NODROP_HOLD_RESERVE) +
	       NODROP_HOLD_RESERVE;
}

void nodrop_hold_init(struct nodrop_hold *hold, struct ptr_ring *ring);
int nodrop_hold_produce(struct nodrop_hold *hold, struct sk_buff *skb);
void nodrop_hold_rest(struct nodrop_hold *hold, unsigned int segments);
void nodrop_hold_close(struct nodrop_hold *hold);
void nodrop_hold_purge(struct nodrop_hold *hold);
void nodrop_hold_read(struct nodrop_hold *hold, u64 stats[NODROP_HOLD_STATS]);

#endif
