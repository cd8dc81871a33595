// SPDX-License-Identifier: GPL-2.0-only
/*
 * The consumer: wake the txq, and kick if no sender comes.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

static void test_reader_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int taken = 0;

	fill(test, f);
	while (stopped(f) && consume(f))
		taken++;
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, taken, f->q->max - f->q->max / 2);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
}

/* In any order of events, an empty ring's txq is not stopped. */
static void test_never_stopped_when_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int sent = 0, seen = 0, step;
	u32 state = 1;
	int err;

	for (step = 0; step < 20000; step++) {
		state = state * 1664525 + 1013904223;
		/* Long runs of either side fill the ring and empty it. */
		if (state >> 31 ^ (step >> 10 & 1)) {
			if (transmit(f, sent, &err)) {
				KUNIT_ASSERT_EQ(test, err, 0);
				sent++;
			}
		} else {
			void *taken = consume(f);

			if (taken)
				KUNIT_ASSERT_PTR_EQ(test, taken,
						    packet(seen++));
			else
				KUNIT_ASSERT_FALSE(test, stopped(f));
		}
	}
	KUNIT_EXPECT_GT(test, seen, 1000U);
}

/* A consumer that woke the txq and then finds the ring empty kicks. */
static void test_dry_reader_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int err;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	while (consume(f))
		;
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_GE(test, kicks(f), 1ULL);
	KUNIT_EXPECT_TRUE(test, transmit(f, 1, &err));
}

/* So does one that only polls after the last packet. */
static void test_polling_reader_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i, err;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	for (i = 0; i < f->q->max; i++)
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_TRUE(test, empty(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_GE(test, kicks(f), 1ULL);
	KUNIT_EXPECT_TRUE(test, transmit(f, 1, &err));
}

/* Take packets until @n were taken in all. */
static void take_until(struct flow *f, unsigned int *taken, unsigned int n)
{
	while (*taken < n && consume(f))
		++*taken;
}

static void test_kicks_at_three_quarters(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);
	unsigned int taken = 0;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	take_until(f, &taken, 255);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 0ULL);
	take_until(f, &taken, 256);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	take_until(f, &taken, 383);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	take_until(f, &taken, 384);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	take_until(f, &taken, 512);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

static void test_small_ring_kicks_when_dry(struct kunit *test)
{
	struct flow *f = flow_new(test, NODROP_FLOOR - 1);
	unsigned int taken = 0;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	take_until(f, &taken, NODROP_FLOOR - 1);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* With an empty qdisc the next sender needs no kick. */
static void test_kicks_for_no_empty_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);
	unsigned int taken = 0;

	fill(test, f);
	take_until(f, &taken, 512);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
}

/* While it is down, its driver keeps the txqs stopped. */
static void test_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	netif_tx_stop_queue(f->txq);
	while (consume(f))
		;
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	set_bit(__LINK_STATE_START, &f->dev->state);
	netif_tx_start_queue(f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* A packet has come since the wake: no kick until the ring is empty. */
static void test_sender_that_goes_on(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);
	unsigned int taken = 0;
	int err;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	take_until(f, &taken, 256);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, transmit(f, 1, &err));
	take_until(f, &taken, 513);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* The consumer has passed @wake_at before the txq is stopped. */
static void test_stop_that_comes_too_late(struct kunit *test)
{
	struct flow *f = flow_new(test, 8);
	unsigned int taken = f->q->taken;
	int i, err;

	for (i = 0; i < 7; i++)
		transmit(f, i, &err);
	/* As if @taken had advanced between nodrop_look() and nodrop_stop(). */
	f->q->limit = 1;
	KUNIT_EXPECT_TRUE(test, transmit(f, 7, &err));
	KUNIT_EXPECT_TRUE(test, stopped(f));
	f->q->limit = 8;
	while (consume(f))
		taken++;
	KUNIT_EXPECT_EQ(test, taken, 8U);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, f->q->stopped);
}

static struct kunit_case wake_cases[] = {
	KUNIT_CASE_PARAM(test_reader_wakes, size_gen_params),
	KUNIT_CASE_PARAM(test_never_stopped_when_empty, size_gen_params),
	KUNIT_CASE_PARAM(test_dry_reader_kicks, size_gen_params),
	KUNIT_CASE_PARAM(test_polling_reader_kicks, size_gen_params),
	KUNIT_CASE(test_kicks_at_three_quarters),
	KUNIT_CASE(test_small_ring_kicks_when_dry),
	KUNIT_CASE(test_kicks_for_no_empty_qdisc),
	KUNIT_CASE(test_leaves_a_device_that_is_down),
	KUNIT_CASE(test_sender_that_goes_on),
	KUNIT_CASE(test_stop_that_comes_too_late),
	{}
};

static struct kunit_suite wake_suite = {
	.name = "nodrop_wake",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = wake_cases,
};

kunit_test_suite(wake_suite);
