// SPDX-License-Identifier: GPL-2.0-only
/*
 * Senders: reserve a slot first, stop early; and the causes of drops.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

static void test_stops_with_the_last_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));

	fill(test, f);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 0ULL);
}

static void test_busy_leaves_the_ring_alone(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	fill(test, f);
	KUNIT_EXPECT_FALSE(test, reserve(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 1ULL);
	for (i = 0; i < f->q->max; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(i));
	KUNIT_EXPECT_NULL(test, consume(f));
}

/* A late wake meets a full ring: the next packet must not be dropped. */
static void test_stale_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int err;

	fill(test, f);
	clear_bit(__QUEUE_STATE_STACK_XOFF, &f->txq->state);
	KUNIT_EXPECT_FALSE(test, transmit(f, 9999, &err));
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* A sender past the qdisc may fill the ring up to txqueuelen. */
static void test_past_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int err, n = 0;

	WRITE_ONCE(f->q->limit, 100);
	while (transmit(f, n, &err))
		n++;
	KUNIT_EXPECT_LE(test, n, 100);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(f->txq));
	while (!reserve_past(f, f->txq, true, false))
		KUNIT_ASSERT_EQ(test, produce(f, packet(n++)), 0);
	KUNIT_EXPECT_EQ(test, n, 500);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 1ULL);

	/* One that keeps the packet waits, too. */
	KUNIT_EXPECT_EQ(test, reserve_past(f, f->txq, true, true), -EBUSY);
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(f->txq));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 1ULL);
}

/* While the qdisc has packets, it leaves slots to them. */
static void test_past_a_qdisc_with_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int n = 0;

	WRITE_ONCE(f->q->limit, 100);
	f->qdisc->q.qlen = 1;
	while (!reserve_past(f, f->txq, true, false))
		KUNIT_ASSERT_EQ(test, produce(f, packet(n++)), 0);
	KUNIT_EXPECT_LE(test, n, 100);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 1ULL);
}

/* Packets that a filter drops after reserve use no slot. */
static void test_reserve_without_produce(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	for (i = 0; i < 2 * f->q->max + 2; i++)
		KUNIT_EXPECT_TRUE(test, reserve(f));
	fill(test, f);
	KUNIT_EXPECT_FALSE(test, reserve(f));
}

/* Packets of another txq come before nodrop_queue_bind(). */
static void test_reserve_by_another_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct netdev_queue *other = other_txq(f);

	rcu_assign_pointer(other->qdisc, f->qdisc);
	rcu_assign_pointer(other->qdisc_sleeping, f->qdisc);
	KUNIT_EXPECT_EQ(test, reserve_by(f, other, true), -EBUSY);
	KUNIT_EXPECT_TRUE(test, netif_xmit_stopped(other));
	flow_bind(f, other);
	KUNIT_EXPECT_FALSE(test, netif_xmit_stopped(other));
	KUNIT_EXPECT_EQ(test, reserve_by(f, other, true), 0);
}

static void test_no_qdisc_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err, i;

	f->qdisc->enqueue = NULL;
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_TRUE(test, transmit(f, i, &err));
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
}

/* While txqueuelen changes, a sender that is under way finds noop_qdisc. */
static void test_deactivated_is_not_stopped(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err, i;

	f->qdisc->enqueue = NULL;
	rcu_assign_pointer(f->txq->qdisc, &noop_qdisc);
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_TRUE(test, transmit(f, i, &err));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
}

/* The queue is detached, and packets still come. */
static void test_reserve_without_a_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, reserve(f));
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, reserve(f));
}

/*
 * While flow control is off, a full ring drops; on again, it does not. To
 * switch it off is also to bind the queue again.
 */
static void test_reserve_while_off(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), 0);
	KUNIT_EXPECT_TRUE(test, reserve(f));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), 0);
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, produce(f, packet(i)), 0);
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), -ENOSPC);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	KUNIT_EXPECT_FALSE(test, reserve(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 1ULL);
}

/* A slot that a sender has seen stands, whatever ends flow control then. */
static void end_by_switch(struct flow *f)
{
	nodrop_queue_switched(f->q, false);
}

static void end_by_another_sender(struct flow *f)
{
	reserve_by(f, f->txq, false);
}

static void end_by_noqueue(struct flow *f)
{
	f->qdisc->enqueue = NULL;
}

static void end_by_stall(struct flow *f)
{
	f->q->stalled = true;
}

static void end_by_unaware(struct flow *f)
{
	nodrop_queue_unaware(f->q);
}

static void test_a_seen_slot_stands(struct kunit *test)
{
	static void (*const ends[])(struct flow *f) = {
		end_by_switch, end_by_another_sender, end_by_noqueue,
		end_by_stall, end_by_unaware,
	};
	struct flow *f = flow_new(test, 5);
	typeof(f->qdisc->enqueue) enqueue = f->qdisc->enqueue;
	int i, j;

	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		f->qdisc->enqueue = enqueue;
		f->q->stalled = false;
		flow_bind(f, f->txq);
		produce_last_seen_twice(test, f);
		ends[i](f);
		/* Of those that come now, none gets a slot. */
		KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, i > 1), -ENOSPC);
		KUNIT_EXPECT_EQ(test, produce(f, packet(5)), 0);
		for (j = 0; j < 6; j++)
			KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(j));
		KUNIT_EXPECT_NULL(test, consume(f));
	}
}

/* It is switched on, which it was, and two senders have seen the last slot. */
static void test_switched_on_again(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	produce_last_seen_twice(test, f);
	nodrop_queue_switched(f->q, true);
	KUNIT_EXPECT_EQ(test, produce(f, packet(5)), 0);
	KUNIT_EXPECT_FALSE(test, reserve(f));

	nodrop_queue_switched(f->q, false);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
}

/* Each cause of a drop has a counter, and each counter a name. */
static void test_drop_causes(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);
	u64 stats[NODROP_STATS];
	int i;

	fill(test, f);
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	f->q->stalled = true;
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, true), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);
	f->qdisc->enqueue = NULL;
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, true), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
	nodrop_queue_unaware(f->q);
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, true), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 1ULL);

	nodrop_queue_stats(f->q, stats);
	KUNIT_EXPECT_EQ(test, stats[NODROP_DROP_UNCLAIMED], 0ULL);
	KUNIT_EXPECT_EQ(test, stats[NODROP_RING], 1ULL);
	for (i = 0; i < NODROP_STATS; i++)
		KUNIT_EXPECT_NOT_NULL(test, nodrop_stat_names[i]);
}

/* The queue is bound to another txq between reserve and produce. */
static void test_void_reservation_uses_the_slack(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i, err;

	for (i = 0; i < 4; i++)
		transmit(f, i, &err);
	KUNIT_ASSERT_TRUE(test, reserve(f));
	produce_xdp(f, frame(0));
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_EQ(test, produce(f, packet(4)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 6ULL);
	KUNIT_EXPECT_EQ(test, reserve_by(f, other_txq(f), true), -EBUSY);

	/* The array has an end. */
	while (!produce(f, packet(9)))
		;
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 1ULL);
	KUNIT_EXPECT_EQ(test, reserve_by(f, other_txq(f), true), -EBUSY);
	flow_bind(f, f->txq);
}

/* Two txqs feed one ring for a moment; one of them has reserved a slot. */
static void test_another_txq_leaves_the_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i, err;

	for (i = 0; i < 4; i++)
		transmit(f, i, &err);
	KUNIT_ASSERT_TRUE(test, reserve(f));
	KUNIT_EXPECT_EQ(test, reserve_by(f, other_txq(f), true), -EBUSY);
	KUNIT_EXPECT_EQ(test, produce(f, packet(4)), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* As many senders as there are CPUs see the last slot, and none has to drop. */
static void test_all_see_the_last_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, 1000);
	unsigned int i, n = f->q->max + nr_cpu_ids;
	int err;

	f->q->limit = f->q->max;
	for (i = 0; i < 999; i++)
		transmit(f, i, &err);
	for (i = 999; i < n; i++)
		KUNIT_ASSERT_TRUE(test, reserve(f));
	for (i = 999; i < n; i++)
		KUNIT_ASSERT_EQ(test, produce(f, packet(i)), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, reserve(f));
	/* There is still slack for all else. */
	for (i = 0; i < 96; i++)
		KUNIT_ASSERT_EQ(test, produce(f, packet(i)), 0);
}

/* The qdisc is removed between reserve and produce: the txq must run. */
static void test_qdisc_goes_after_the_reserve(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	typeof(f->qdisc->enqueue) enqueue = f->qdisc->enqueue;
	int i;

	KUNIT_ASSERT_TRUE(test, reserve(f));
	f->qdisc->enqueue = NULL;
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, produce(f, packet(i)), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, true), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
	f->qdisc->enqueue = enqueue;
}

static struct kunit_case reserve_cases[] = {
	KUNIT_CASE_PARAM(test_stops_with_the_last_slot, size_gen_params),
	KUNIT_CASE_PARAM(test_busy_leaves_the_ring_alone, size_gen_params),
	KUNIT_CASE(test_past_the_qdisc),
	KUNIT_CASE(test_past_a_qdisc_with_packets),
	KUNIT_CASE_PARAM(test_stale_wake, size_gen_params),
	KUNIT_CASE_PARAM(test_reserve_without_produce, size_gen_params),
	KUNIT_CASE(test_reserve_by_another_txq),
	KUNIT_CASE(test_all_see_the_last_slot),
	KUNIT_CASE(test_qdisc_goes_after_the_reserve),
	KUNIT_CASE(test_reserve_without_a_txq),
	KUNIT_CASE(test_reserve_while_off),
	KUNIT_CASE(test_a_seen_slot_stands),
	KUNIT_CASE(test_switched_on_again),
	KUNIT_CASE(test_no_qdisc_drops),
	KUNIT_CASE(test_deactivated_is_not_stopped),
	KUNIT_CASE(test_drop_causes),
	KUNIT_CASE(test_void_reservation_uses_the_slack),
	KUNIT_CASE(test_another_txq_leaves_the_slot),
	{}
};

static struct kunit_suite reserve_suite = {
	.name = "nodrop_reserve",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = reserve_cases,
};

kunit_test_suite(reserve_suite);
