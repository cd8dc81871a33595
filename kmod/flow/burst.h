/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Notify once: a burst (xmit_more) notifies the consumer with its last packet.
 */
#ifndef NODROP_BURST_H
#define NODROP_BURST_H

#include "nodrop_flow.h"

/**
 * nodrop_burst_begin() - a packet is about to be transmitted
 * @q: the queue
 *
 * While a burst goes on, nodrop_burst_holds() defers the consumer's
 * notification.
 *
 * @burst_cpu and @notice need READ_ONCE() and WRITE_ONCE(): XDP reads
 * @burst_cpu without the transmit lock, and while a queue changes its index,
 * two txqs with a lock each feed one ring. The driver notifies the consumer
 * after such a change.
 *
 * Context: as nodrop_reserve(), from here to nodrop_burst_end().
 */
static inline void nodrop_burst_begin(struct nodrop_queue *q)
{
	if (netdev_xmit_more() || READ_ONCE(q->notice))
		WRITE_ONCE(q->burst_cpu, smp_processor_id());
}

/**
 * nodrop_burst_holds() - is the consumer's notification deferred?
 * @q: the queue
 *
 * Context: the caller has put a packet into the ring.
 * Return: true if nodrop_burst_end() will request it. Never for XDP frames:
 * none comes on this CPU between nodrop_burst_begin() and nodrop_burst_end().
 */
static inline bool nodrop_burst_holds(struct nodrop_queue *q)
{
	if (likely(READ_ONCE(q->burst_cpu) != raw_smp_processor_id()))
		return false;
	WRITE_ONCE(q->notice, true);
	return true;
}

/**
 * nodrop_burst_end() - a packet's transmission ends
 * @q: the queue
 * @txq: the txq that the packet came through
 *
 * A burst ends with its last packet or when its txq is stopped. The caller's
 * notification needs a full barrier before it checks for a sleeping consumer,
 * as wq_has_sleeper() has.
 * Litmus: SB+burst-mb-sleeps+sleep-mb-ring
 *
 * Return: true if the caller must notify the consumer now.
 */
static inline bool nodrop_burst_end(struct nodrop_queue *q,
				    const struct netdev_queue *txq)
{
	if (likely(READ_ONCE(q->burst_cpu) < 0))
		return false;
	WRITE_ONCE(q->burst_cpu, -1);
	if (!READ_ONCE(q->notice))
		return false;
	/* A race with a wake is harmless: one notification more, or later. */
	if (netdev_xmit_more() && !data_race(netif_xmit_stopped(txq)))
		return false;
	WRITE_ONCE(q->notice, false);
	return true;
}

#endif
