// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reader's side: take a packet; when slots were given back, see to it that
 * the senders go on, on their own CPU if there is any way.
 */
#include <linux/prefetch.h>

#include "nodrop_flow.h"

/* How long a reader of an empty ring waits for a sender that was asked. */
#define NODROP_PATIENCE 256

/* Rings of fewer slots are empty before a knock is heard. */
#define NODROP_SMALL 64

static void nodrop_count(struct nodrop_queue *q, enum nodrop_stat stat)
{
	q->reader_stats[stat - NODROP_SENDER_STATS]++;
}

/* Open the txq; whoever transmits next goes on from there. */
static void nodrop_ask(struct nodrop_queue *q)
{
	q->phase = NODROP_RUNNING;
	/* A device that goes down stopped its txqs for another reason. */
	if (unlikely(!netif_running(q->txq->dev)))
		return;

	q->phase = NODROP_ASKED;
	WRITE_ONCE(q->reader_cpu, raw_smp_processor_id());
	nodrop_count(q, NODROP_WAKES);
	netif_tx_start_queue(q->txq);
	/*
	 * Between opening the txq and asking. Pairs with the barrier in
	 * nodrop_produce(): who sees the question sees the open txq.
	 * Litmus: MP+open-wmb-ask+answer-mb-xoff
	 */
	smp_wmb();
	if (!READ_ONCE(q->asked))
		WRITE_ONCE(q->asked, true);
}

/* Does the qdisc hold packets? */
static bool nodrop_backlog(const struct netdev_queue *txq)
{
	bool backlog;

	rcu_read_lock();
	backlog = qdisc_qlen_sum(rcu_dereference(txq->qdisc));
	rcu_read_unlock();
	return backlog;
}

/* Nobody came: make somebody run the qdisc. */
static void nodrop_knock(struct nodrop_queue *q)
{
	int cpu = READ_ONCE(q->cpu);

	q->phase = NODROP_RUNNING;
	WRITE_ONCE(q->asked, false);
	if (cpu >= 0 && cpu != raw_smp_processor_id() && nodrop_kick(q, cpu)) {
		nodrop_count(q, NODROP_KICKS);
		return;
	}

	/*
	 * With softirqs off, so that transmit runs here, at the end, and not
	 * in ksoftirqd. Softirqs never take consumer_lock.
	 */
	nodrop_count(q, NODROP_KICKS_HERE);
	local_bh_disable();
	netif_schedule_queue(q->txq);
	local_bh_enable();
}

/**
 * nodrop_release() - slots were given back to the senders
 * @q: the queue
 *
 * Context: as nodrop_consume().
 */
void nodrop_release(struct nodrop_queue *q)
{
	int size = q->ring->size;

	if (unlikely(!q->txq))
		return;

	/* In a small ring every look at the txq is likely to open it. */
	if (q->phase != NODROP_RUNNING && size < NODROP_SMALL)
		prefetchw(&q->txq->state);

	/*
	 * Between freeing slots and reading XOFF. Pairs with the barrier in
	 * nodrop_stop().
	 * Litmus: SB+stop-mb-room+release-mb-xoff
	 */
	smp_mb();
	if (netif_tx_queue_stopped(q->txq)) {
		if (q->phase != NODROP_STOPPED) {
			q->phase = NODROP_STOPPED;
			q->since = q->taken;
		}
		if (q->taken - q->since >= size / 2)
			nodrop_ask(q);
	} else if (q->phase == NODROP_ASKED) {
		if (!READ_ONCE(q->asked))
			q->phase = NODROP_ANSWERED;
		else if (size >= NODROP_SMALL &&
			 q->taken - q->since >= size - size / 4)
			nodrop_knock(q);
	} else if (q->phase == NODROP_STOPPED) {
		q->phase = NODROP_ANSWERED;
	}
}

/**
 * nodrop_ran_dry() - the reader found nothing and is about to sleep
 * @q: the queue, stopped when the reader looked last
 *
 * Context: as nodrop_consume().
 */
void nodrop_ran_dry(struct nodrop_queue *q)
{
	int i;

	if (unlikely(!q->txq)) {
		q->phase = NODROP_RUNNING;
		return;
	}

	if (q->phase == NODROP_STOPPED)
		nodrop_ask(q);

	/* A sender that is at it needs less time than an interrupt. */
	for (i = 0; i < NODROP_PATIENCE && READ_ONCE(q->asked) &&
	     __ptr_ring_empty(q->ring); i++)
		cpu_relax();
	if (!__ptr_ring_empty(q->ring))
		return;

	/*
	 * An answer may come from a run of the qdisc that had seen the txq
	 * stopped and was about to end, when another sender goes past the
	 * qdisc just then. What counts at last is what the qdisc holds.
	 */
	if (nodrop_backlog(q->txq))
		nodrop_knock(q);
	else
		q->phase = NODROP_RUNNING;
}
