// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bursts: the consumer is notified at their end, and always then.
 */
#include "fixture.h"
#include "../burst.h"

static unsigned int burst_calls;	/* notifications of the consumer */
static bool burst_drops;		/* the driver drops what it transmits */

static void call_unless_held(struct flow *f)
{
	if (!nodrop_burst_holds(f->q))
		burst_calls++;
}

/* As a driver's transmit function. */
static netdev_tx_t burst_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct flow *f = *(struct flow **)netdev_priv(dev);
	netdev_tx_t ret = NETDEV_TX_BUSY;

	nodrop_burst_begin(f->q);
	if (nodrop_reserve(f->q, f->txq, true) != NODROP_BUSY) {
		ret = NETDEV_TX_OK;
		if (!burst_drops && !produce(f, skb))
			call_unless_held(f);
	}
	if (nodrop_burst_end(f->q, f->txq))
		burst_calls++;
	return ret;
}

static const struct net_device_ops burst_ops = {
	.ndo_start_xmit = burst_xmit,
};

static struct flow *burst_new(struct kunit *test, int size)
{
	struct flow *f = flow_new(test, size);

	f->dev->netdev_ops = &burst_ops;
	burst_calls = 0;
	burst_drops = false;
	return f;
}

static netdev_tx_t send(struct flow *f, unsigned int n, bool more)
{
	netdev_tx_t ret;

	rcu_read_lock_bh();
	ret = netdev_start_xmit(packet(n), f->dev, f->txq, more);
	rcu_read_unlock_bh();
	return ret;
}

static void test_calls_for_a_single_packet(struct kunit *test)
{
	struct flow *f = burst_new(test, 5);

	send(f, 0, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	send(f, 1, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 2U);
}

static void test_calls_once_at_the_end(struct kunit *test)
{
	struct flow *f = burst_new(test, 50);
	int i;

	for (i = 0; i < 10; i++)
		send(f, i, true);
	KUNIT_EXPECT_EQ(test, burst_calls, 0U);
	KUNIT_EXPECT_EQ(test, f->q->burst_cpu, -1);
	send(f, i, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	KUNIT_EXPECT_FALSE(test, f->q->notice);
}

/* XDP frames come between the packets of a burst, and on other CPUs. */
static void test_others_are_not_held(struct kunit *test)
{
	struct flow *f = burst_new(test, 50);

	send(f, 0, true);
	call_unless_held(f);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	preempt_disable();
	f->q->burst_cpu = !raw_smp_processor_id();
	call_unless_held(f);
	preempt_enable();
	KUNIT_EXPECT_EQ(test, burst_calls, 2U);
	f->q->burst_cpu = -1;
}

/* The driver drops the last packet. */
static void test_burst_that_ends_in_a_drop(struct kunit *test)
{
	struct flow *f = burst_new(test, 50);

	send(f, 0, true);
	burst_drops = true;
	send(f, 1, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	send(f, 2, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
}

static void test_burst_that_is_dropped(struct kunit *test)
{
	struct flow *f = burst_new(test, 50);

	burst_drops = true;
	send(f, 0, true);
	send(f, 1, true);
	send(f, 2, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 0U);
}

/* The packet that stops the txq is the last, despite xmit_more. */
static void test_burst_that_stops(struct kunit *test)
{
	struct flow *f = burst_new(test, 3);

	send(f, 0, true);
	send(f, 1, true);
	KUNIT_EXPECT_EQ(test, burst_calls, 0U);
	send(f, 2, true);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
}

/* No slot in the middle of it. */
static void test_burst_that_goes_back(struct kunit *test)
{
	struct flow *f = burst_new(test, 3);

	send(f, 0, true);
	KUNIT_EXPECT_EQ(test, produce(f, packet(1)), 0);
	KUNIT_EXPECT_EQ(test, produce(f, packet(2)), 0);
	netif_tx_start_queue(f->txq);
	KUNIT_EXPECT_EQ(test, (int)send(f, 3, true), (int)NETDEV_TX_BUSY);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	KUNIT_EXPECT_FALSE(test, f->q->notice);
}

/* The rest of it never comes; the next packet is alone. */
static void test_burst_that_was_cut_off(struct kunit *test)
{
	struct flow *f = burst_new(test, 50);

	send(f, 0, true);
	burst_drops = true;
	send(f, 1, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 1U);
	burst_drops = false;
	send(f, 2, false);
	KUNIT_EXPECT_EQ(test, burst_calls, 2U);
}

static struct kunit_case burst_cases[] = {
	KUNIT_CASE(test_calls_for_a_single_packet),
	KUNIT_CASE(test_calls_once_at_the_end),
	KUNIT_CASE(test_others_are_not_held),
	KUNIT_CASE(test_burst_that_ends_in_a_drop),
	KUNIT_CASE(test_burst_that_is_dropped),
	KUNIT_CASE(test_burst_that_stops),
	KUNIT_CASE(test_burst_that_goes_back),
	KUNIT_CASE(test_burst_that_was_cut_off),
	{}
};

static struct kunit_suite burst_suite = {
	.name = "nodrop_burst",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = burst_cases,
};

kunit_test_suite(burst_suite);
