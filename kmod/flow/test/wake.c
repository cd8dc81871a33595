// SPDX-License-Identifier: GPL-2.0-only
/*
 * The consumer: wake the txq, and kick if no sender comes.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

static void test_reader_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int round;

	for (round = 1; round < 4; round++) {
		fill(test, f);
		take_to_wake(test, f);
		KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING),
				(u64)f->q->max / 2);
		KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), (u64)round);
	}
}

/* In any order of events, an empty ring's txq is not stopped. */
static void test_never_stopped_when_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int sent = 0, seen = 0, step;
	u32 state = 1;

	for (step = 0; step < 20000; step++) {
		state = state * 1664525 + 1013904223;
		/* Long runs of either side fill the ring and empty it. */
		if (state >> 31 ^ (step >> 10 & 1)) {
			if (!stopped(f))
				KUNIT_ASSERT_EQ(test, transmit(f, sent++), 0);
			KUNIT_ASSERT_LE(test, sent - seen, f->q->max);
		} else {
			void *taken = consume(f);

			if (taken)
				KUNIT_ASSERT_PTR_EQ(test, taken,
						    (void *)packet(seen++));
			else
				KUNIT_ASSERT_FALSE(test, stopped(f));
		}
	}
	KUNIT_EXPECT_GT(test, seen, 1000U);
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* A consumer that woke the txq and then finds the ring empty kicks. */
static void test_dry_reader_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));

	fill(test, f);
	f->qdisc->q.qlen = 1;
	drain(f);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_GE(test, kicks(f), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 1), 0);
}

/* So does one that only polls after the last packet. */
static void test_polling_reader_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int n = fill(test, f);

	take(test, f, n);
	f->qdisc->q.qlen = 1;
	KUNIT_EXPECT_TRUE(test, empty(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 1), 0);
}

/* And one whose batch empties the ring. */
static void test_batch_that_is_short_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	void *taken[64];

	fill(test, f);
	f->qdisc->q.qlen = 1;
	while (consume_batched(f, taken, 64) == 64)
		;
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_GE(test, kicks(f), 1ULL);
}

/* A kick is decided a batch after the wake, and once in a batch. */
static void test_kicks_after_a_batch(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);

	fill(test, f);
	f->qdisc->q.qlen = 1;
	take(test, f, 255);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 0ULL);
	take(test, f, 1);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	take(test, f, NODROP_BATCH - 1);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	take(test, f, 1);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	take(test, f, NODROP_BATCH - 1);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	take(test, f, 1);
	KUNIT_EXPECT_EQ(test, kicks(f), 2ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
}

/* The CPU that runs the qdisc transmits its packets. */
static void test_no_kick_while_the_qdisc_runs(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);

	fill(test, f);
	f->qdisc->q.qlen = 1;
	take_to_wake(test, f);
	KUNIT_ASSERT_TRUE(test, qdisc_run_begin(f->qdisc));
	take(test, f, 256);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	qdisc_run_end(f->qdisc);
	/* There was no packet for it. */
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* With an empty qdisc the next sender needs no kick. */
static void test_kicks_for_no_empty_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 512);

	fill(test, f);
	KUNIT_EXPECT_EQ(test, drain(f), 512U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	/* Unless it may do more than dequeue, as teql. */
	f->qdisc->flags &= ~TCQ_F_CAN_BYPASS;
	fill(test, f);
	drain(f);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* The length of a lockless qdisc may be outdated: it runs in any case. */
static void test_lockless_qdisc_runs_when_dry(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int n;

	f->qdisc->flags |= TCQ_F_NOLOCK;
	n = fill(test, f);
	take(test, f, n);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
	/* Only after a wake. */
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* While it is down, its driver keeps the txqs stopped. */
static void test_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_up(f, false);
	KUNIT_EXPECT_EQ(test, drain(f), 5U);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 0ULL);
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	KUNIT_EXPECT_FALSE(test, nodrop_is_stopped(f->txq));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(f->txq));
	flow_up(f, true);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

static struct kunit_case wake_cases[] = {
	KUNIT_CASE_PARAM(test_reader_wakes, size_gen_params),
	KUNIT_CASE_PARAM(test_never_stopped_when_empty, size_gen_params),
	KUNIT_CASE_PARAM(test_dry_reader_kicks, size_gen_params),
	KUNIT_CASE_PARAM(test_polling_reader_kicks, size_gen_params),
	KUNIT_CASE_PARAM(test_batch_that_is_short_kicks, size_gen_params),
	KUNIT_CASE(test_kicks_after_a_batch),
	KUNIT_CASE(test_no_kick_while_the_qdisc_runs),
	KUNIT_CASE(test_kicks_for_no_empty_qdisc),
	KUNIT_CASE_PARAM(test_lockless_qdisc_runs_when_dry, size_gen_params),
	KUNIT_CASE(test_leaves_a_device_that_is_down),
	{}
};

static struct kunit_suite wake_suite = {
	.name = "nodrop_wake",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = wake_cases,
};

kunit_test_suite(wake_suite);
