// SPDX-License-Identifier: GPL-2.0-only
/*
 * Senders: the one whose packet is the last that fits stops the txq; who else
 * may use the ring, and the causes of drops.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

static bool both_stopped(const struct flow *f)
{
	return netif_tx_queue_stopped(f->txq) && nodrop_is_stopped(f->txq);
}

static void test_stops_with_the_last_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int i;

	KUNIT_EXPECT_EQ(test, fill(test, f), f->q->max);
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(f->txq));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 0ULL);
	for (i = 0; i < f->q->max; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
	KUNIT_EXPECT_NULL(test, consume(f));
}

/* The last sender goes on if a batch of slots has become free, not for less. */
static void test_stops_unless_a_batch_is_free(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int taken, i;

	for (taken = NODROP_BATCH - 1; taken <= NODROP_BATCH; taken++) {
		for (i = 0; i < 499; i++)
			KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
		take(test, f, taken);
		KUNIT_EXPECT_EQ(test, transmit(f, 499), 0);
		KUNIT_EXPECT_EQ(test, stopped(f), taken < NODROP_BATCH);
		fill(test, f);
		KUNIT_EXPECT_EQ(test, drain(f),
				taken < NODROP_BATCH ? 500 - taken : 500);
	}
}

/*
 * The consumer takes the last packets before the txq is stopped, and sees no
 * XOFF: the sender wakes the txq itself if the ring has come to half.
 */
static void test_stop_that_comes_too_late(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	const unsigned int all = f->q->max, half = all - all / 2;
	unsigned int i;

	for (i = 0; i < all - 1; i++)
		KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
	flow_reads = f;
	flow_reads_most = half;
	KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), (u64)all - half);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);

	/* With one packet more it leaves that to the consumer's next check. */
	drain(f);
	for (i = 0; i < all - 1; i++)
		KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
	flow_reads = f;
	flow_reads_most = half - 1;
	KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	take(test, f, nodrop_batch(all));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
}

/* A late wake meets a full ring: one packet more for each. */
static void test_late_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int i, n = fill(test, f);

	for (i = 0; i < 2 * nr_cpu_ids; i++) {
		nodrop_queue_poll(f->q);
		KUNIT_EXPECT_EQ(test, transmit(f, n++), 0);
		KUNIT_EXPECT_TRUE(test, stopped(f));
		KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), (u64)n);
	}
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/*
 * After a stop there are few late senders. More come past the qdisc while it
 * runs on another CPU, and heed the driver's bit alone.
 */
static void test_late_senders_are_few(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int round, i;

	flow_limit(f, 100);
	for (round = 0; round < 3; round++) {
		fill(test, f);
		for (i = 0; i < nr_cpu_ids; i++) {
			KUNIT_EXPECT_FALSE(test, both_stopped(f));
			KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
		}
		KUNIT_EXPECT_TRUE(test, both_stopped(f));
		/* These are on their way. */
		for (i = 0; i < nr_cpu_ids; i++)
			KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
		drain(f);
		KUNIT_EXPECT_FALSE(test, stopped(f));
	}
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* A sender past the qdisc may fill the ring up to txqueuelen. */
static void test_past_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int n;

	flow_limit(f, 100);
	for (n = 0; n < 500; n++) {
		KUNIT_ASSERT_EQ(test, transmit_past(f, n), 0);
		KUNIT_ASSERT_EQ(test, stopped(f), n >= 100 - NODROP_BATCH);
	}
	KUNIT_EXPECT_EQ(test, transmit_past(f, n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 1ULL);
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(f->txq));
	KUNIT_EXPECT_EQ(test, drops(f), 1ULL);
}

/* While the qdisc has packets, slots are left to them. */
static void test_past_a_qdisc_with_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int n = 0;

	flow_limit(f, 100);
	f->qdisc->q.qlen = 1;
	while (!transmit_past(f, n))
		n++;
	KUNIT_EXPECT_EQ(test, n, 75U);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, fill(test, f), 25U);
	KUNIT_EXPECT_EQ(test, transmit_past(f, n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 2ULL);
	KUNIT_EXPECT_EQ(test, drops(f), 2ULL);
}

/* A kernel thread past the qdisc heeds the driver's bit, and drops nothing. */
static void test_kernel_thread_waits(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int n = 0, round;

	for (round = 1; round < 4; round++) {
		while (!stopped(f))
			KUNIT_ASSERT_EQ(test, transmit_kthread(f, n++), 0);
		KUNIT_EXPECT_TRUE(test, both_stopped(f));
		KUNIT_EXPECT_LE(test, counted(f, NODROP_RING), (u64)f->q->max);
		KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), (u64)round);
		take_to_wake(test, f);
	}
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* Each CPU may have one on its way when the txq is stopped. */
static void test_kernel_threads_on_their_way(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int i, n = fill(test, f);

	for (i = 0; i < nr_cpu_ids; i++)
		KUNIT_EXPECT_EQ(test, transmit_kthread(f, n++), 0);
	KUNIT_EXPECT_TRUE(test, both_stopped(f));
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

static netdev_tx_t transmit_by_driver(struct sk_buff *skb,
				      struct net_device *dev)
{
	struct flow **f = netdev_priv(dev);

	transmit(*f, skb - packet(0));
	return NETDEV_TX_OK;
}

/* A sender that announces more packets may look at the driver's bit alone. */
static void test_sender_of_several(struct kunit *test)
{
	static const struct net_device_ops driver = {
		.ndo_start_xmit = transmit_by_driver,
	};
	struct flow *f = flow_new(test, 5);
	int i;

	f->dev->netdev_ops = &driver;
	local_bh_disable();
	for (i = 0; i < 5; i++)
		netdev_start_xmit(packet(i), f->dev, f->txq, true);
	netdev_start_xmit(packet(5), f->dev, f->txq, false);
	local_bh_enable();
	KUNIT_EXPECT_TRUE(test, both_stopped(f));
	take_to_wake(test, f);
}

/* netpoll spins while the txq is stopped: its packet is dropped instead. */
static void test_netpoll(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	unsigned int i;

	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, transmit_polled(f, i), 0);
	for (i = 1; i < 3; i++) {
		KUNIT_EXPECT_TRUE(test, stopped(f));
		nodrop_queue_poll(f->q);
		KUNIT_EXPECT_FALSE(test, stopped(f));
		KUNIT_EXPECT_EQ(test, transmit_polled(f, 5), -ENOSPC);
		KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(f->txq));
		KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), (u64)i);
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* Nobody reads, and others send whenever netpoll has woken the txq. */
static void test_netpoll_spares_the_slack(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	unsigned int n = fill(test, f);

	for (; n < 200; n++) {
		nodrop_queue_poll(f->q);
		if (stopped(f))
			break;
		KUNIT_ASSERT_EQ(test, transmit(f, n), 0);
	}
	KUNIT_EXPECT_EQ(test, n, 5U + NODROP_XDP_SLACK);
}

/* Packets of another txq come before nodrop_queue_bind(). */
static void test_another_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct netdev_queue *other = other_txq(f);

	packets_of(f, other, -1);
	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	KUNIT_EXPECT_TRUE(test, netif_xmit_stopped(other));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);
	flow_bind(f, other);
	KUNIT_EXPECT_FALSE(test, netif_xmit_stopped(other));
	KUNIT_EXPECT_EQ(test, transmit(f, 1), 0);
	KUNIT_EXPECT_FALSE(test, netif_xmit_stopped(other));
}

/* The queue is detached, and packets still come. */
static void test_without_a_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	flow_bind(f, NULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, fill(test, f), 4U);
}

/* A full ring drops, and the txq is not stopped. */
static void expect_no_qdisc(struct kunit *test, struct flow *f)
{
	unsigned int i;

	f->qdisc->enqueue = NULL;
	for (i = 0; i < f->q->max; i++)
		KUNIT_EXPECT_EQ(test, transmit_past(f, i), 0);
	KUNIT_EXPECT_EQ(test, transmit_past(f, i), -ENOSPC);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
}

static void test_no_qdisc_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	expect_no_qdisc(test, f);
	take(test, f, 1);
	KUNIT_EXPECT_EQ(test, transmit_past(f, 5), 0);
}

/*
 * Without reading what was taken: as with stock, a long ring takes packets
 * again when ptr_ring has cleared the slots of a batch.
 */
static void test_no_qdisc_and_a_long_ring(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int i;

	expect_no_qdisc(test, f);
	take(test, f, f->ring.batch - 1);
	KUNIT_EXPECT_EQ(test, transmit_past(f, 500), -ENOSPC);
	take(test, f, 1);
	for (i = 0; i < f->ring.batch; i++)
		KUNIT_EXPECT_EQ(test, transmit_past(f, 500 + i), 0);
	KUNIT_EXPECT_EQ(test, transmit_past(f, 500 + i), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 500ULL);
}

/* While txqueuelen changes, a sender that is under way finds noop_qdisc. */
static void test_deactivated_is_not_stopped(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	rcu_assign_pointer(f->txq->qdisc, &noop_qdisc);
	expect_no_qdisc(test, f);
}

/* Its qdisc is kept: the sender is one from the qdisc, and waits. */
static void test_deactivated_with_a_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	rcu_assign_pointer(f->txq->qdisc, &noop_qdisc);
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_EQ(test, transmit_past(f, i), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* The switch takes effect when the budget is used up. */
static void test_off_and_on(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
	f->on = false;
	KUNIT_EXPECT_EQ(test, transmit(f, 4), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, transmit(f, 5), -ENOSPC);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);

	f->on = true;
	KUNIT_EXPECT_EQ(test, transmit(f, 5), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	/* To switch it is also to bind the queue again. */
	f->on = false;
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	f->on = true;
	flow_bind(f, f->txq);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, drops(f), 1ULL);
}

/* Each cause of a drop has a counter, and each counter a name. */
static void test_drop_causes(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);
	u64 stats[NODROP_STATS];
	int i;

	fill(test, f);
	KUNIT_EXPECT_EQ(test, transmit_past(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_BYPASS), 1ULL);
	f->q->stalled = true;
	KUNIT_EXPECT_EQ(test, transmit(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);
	f->on = false;
	KUNIT_EXPECT_EQ(test, transmit(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	f->qdisc->enqueue = NULL;
	KUNIT_EXPECT_EQ(test, transmit(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
	nodrop_queue_unaware(f->q);
	KUNIT_EXPECT_EQ(test, transmit(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 1ULL);

	nodrop_queue_stats(f->q, stats);
	KUNIT_EXPECT_EQ(test, stats[NODROP_DROP_UNCLAIMED], 0ULL);
	KUNIT_EXPECT_EQ(test, stats[NODROP_RING], 1ULL);
	KUNIT_EXPECT_EQ(test, stats[NODROP_LIMIT], 1ULL);
	for (i = 0; i < NODROP_STATS; i++)
		KUNIT_EXPECT_NOT_NULL(test, nodrop_stat_names[i]);
}

static struct kunit_case produce_cases[] = {
	KUNIT_CASE_PARAM(test_stops_with_the_last_slot, size_gen_params),
	KUNIT_CASE(test_stops_unless_a_batch_is_free),
	KUNIT_CASE_PARAM(test_stop_that_comes_too_late, size_gen_params),
	KUNIT_CASE_PARAM(test_late_wake, size_gen_params),
	KUNIT_CASE(test_late_senders_are_few),
	KUNIT_CASE(test_past_the_qdisc),
	KUNIT_CASE(test_past_a_qdisc_with_packets),
	KUNIT_CASE_PARAM(test_kernel_thread_waits, size_gen_params),
	KUNIT_CASE(test_kernel_threads_on_their_way),
	KUNIT_CASE(test_sender_of_several),
	KUNIT_CASE(test_netpoll),
	KUNIT_CASE(test_netpoll_spares_the_slack),
	KUNIT_CASE(test_another_txq),
	KUNIT_CASE(test_without_a_txq),
	KUNIT_CASE(test_no_qdisc_drops),
	KUNIT_CASE(test_no_qdisc_and_a_long_ring),
	KUNIT_CASE(test_deactivated_is_not_stopped),
	KUNIT_CASE(test_deactivated_with_a_qdisc),
	KUNIT_CASE(test_off_and_on),
	KUNIT_CASE(test_drop_causes),
	{}
};

static struct kunit_suite produce_suite = {
	.name = "nodrop_produce",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = produce_cases,
};

kunit_test_suite(produce_suite);
