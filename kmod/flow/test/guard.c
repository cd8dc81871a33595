// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stall guard: a consumer that takes nothing.
 */
#include "fixture.h"

/* The guard runs the qdisc if the consumer woke the txq and did not kick. */
static void test_guard_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	guard_samples(f, 1);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* Nothing else runs the qdiscs of stale txqs then. */
static void test_guard_trip_runs_stale_qdiscs(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	f->qdisc = flow_qdisc(test);
	KUNIT_ASSERT_NOT_NULL(test, f->qdisc);
	rcu_assign_pointer(other_txq(f)->qdisc, f->qdisc);
	f->q->stale = true;
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	guard_samples(f, guard_samples_to_trip);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

/* A consumer that takes a packet now and then is not stalled. */
static void test_guard_counts_single_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int i;

	fill(test, f);
	for (i = 0; i < 10; i++) {
		guard_samples(f, guard_samples_to_trip - 1);
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

static void test_guard_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	guard_samples(f, guard_samples_to_trip);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	set_bit(__LINK_STATE_START, &f->dev->state);
}

static void test_guard(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err;

	fill(test, f);
	guard_samples(f, guard_samples_to_trip - 1);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
	KUNIT_EXPECT_TRUE(test, transmit(f, 9, &err));
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);

	/* The consumer resumes, and so does flow control. */
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_TRUE(test, transmit(f, 9, &err));
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* All samples together take no longer than guard_ms. */
static void test_guard_samples_often(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	for (i = 0; i < guard_samples_to_trip; i++) {
		unsigned long left = f->q->guard.expires - jiffies;

		KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
		KUNIT_EXPECT_LE(test, left * guard_samples_to_trip,
				msecs_to_jiffies(GUARD_MS));
		guard_samples(f, 1);
	}
}

/* Its period is bounded: a guard_ms that is lowered takes effect soon. */
static void test_guard_waits_for_long(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	nodrop_guard_ms = 10 * GUARD_MS;
	fill(test, f);
	KUNIT_EXPECT_LE(test, f->q->guard.expires - jiffies,
			msecs_to_jiffies(GUARD_MS / guard_samples_to_trip));
	guard_samples(f, 10 * guard_samples_to_trip - 1);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	guard_samples(f, 1);
	nodrop_guard_ms = GUARD_MS;
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

static void test_guard_ends_with_the_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
}

/* guard_ms is set to 0 and back while a txq is stopped. */
static void test_guard_is_switched(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	nodrop_guard_ms = 0;
	guard_samples(f, 2 * guard_samples_to_trip);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	nodrop_guard_ms = GUARD_MS;
	guard_samples(f, guard_samples_to_trip - 1);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

static struct kunit_case guard_cases[] = {
	KUNIT_CASE(test_guard_kicks),
	KUNIT_CASE(test_guard_trip_runs_stale_qdiscs),
	KUNIT_CASE(test_guard_counts_single_packets),
	KUNIT_CASE(test_guard_leaves_a_device_that_is_down),
	KUNIT_CASE(test_guard),
	KUNIT_CASE(test_guard_samples_often),
	KUNIT_CASE(test_guard_ends_with_the_txq),
	KUNIT_CASE(test_guard_is_switched),
	KUNIT_CASE(test_guard_waits_for_long),
	{}
};

static struct kunit_suite guard_suite = {
	.name = "nodrop_guard",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = guard_cases,
};

kunit_test_suite(guard_suite);
