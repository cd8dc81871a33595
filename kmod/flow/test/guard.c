// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guard: a reader that takes nothing.
 */
#include <linux/delay.h>

#include "fixture.h"

/* The guard knocks for a reader that asked and was heard of no more. */
static void test_guard_knocks(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_TRUE(test, f->q->asked);
	msleep(nodrop_guard_ms);
	KUNIT_EXPECT_FALSE(test, f->q->asked);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* A reader that takes a packet now and then is not gone. */
static void test_guard_counts_single_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int i;

	fill(test, f);
	for (i = 0; i < 10; i++) {
		msleep(nodrop_guard_ms / 2);
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

static void test_guard_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	msleep(nodrop_guard_ms + 100);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	set_bit(__LINK_STATE_START, &f->dev->state);
}

static void test_guard(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err;

	fill(test, f);
	msleep(nodrop_guard_ms + 100);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_PASS);
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);

	/* The reader is back: flow control is, too. */
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_CLAIMED);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

static void test_guard_waits_for_a_slow_reader(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned long end;

	fill(test, f);
	end = jiffies + msecs_to_jiffies(2 * nodrop_guard_ms);
	while (time_before(jiffies, end)) {
		f->q->taken++;
		msleep(20);
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* Switched off and on while a txq is stopped. */
static void test_guard_is_switched(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	nodrop_guard_ms = 0;
	msleep(2 * GUARD_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	nodrop_guard_ms = GUARD_MS;
	msleep(2 * GUARD_MS + 200);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

static struct kunit_case guard_cases[] = {
	KUNIT_CASE(test_guard_knocks),
	KUNIT_CASE(test_guard_counts_single_packets),
	KUNIT_CASE(test_guard_leaves_a_device_that_is_down),
	KUNIT_CASE(test_guard),
	KUNIT_CASE(test_guard_waits_for_a_slow_reader),
	KUNIT_CASE(test_guard_is_switched),
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
