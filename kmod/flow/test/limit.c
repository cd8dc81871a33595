// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: as many packets as the consumer takes in half a millisecond.
 */
#include "fixture.h"

#define US 1000

static struct flow *limited(struct kunit *test, int size)
{
	struct flow *f = flow_new(test, size);

	f->q->floor = NODROP_FLOOR;
	f->q->limit = min(size, NODROP_FLOOR);
	f->q->mean = 400;
	flow_unit = 100;
	return f;
}

static void adapt(struct flow *f, unsigned int pace_ns, int times)
{
	while (times--)
		flow_adapt(f, pace_ns);
}

static void test_limit_follows_the_pace(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	adapt(f, 1 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 500U);
	adapt(f, 2 * US, 200);
	KUNIT_EXPECT_EQ(test, f->q->limit, 250U);
	/* No more than txqueuelen, and no less than the lower bound. */
	adapt(f, 1, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 1000U);
	adapt(f, 100 * US, 400);
	KUNIT_EXPECT_EQ(test, f->q->limit, (unsigned int)NODROP_FLOOR);
	adapt(f, 0, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 1000U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_LIMIT), 1000ULL);
}

/* One sample changes little, and doubles the limit at most. */
static void test_limit_changes_slowly(struct kunit *test)
{
	struct flow *f = limited(test, 5000);

	adapt(f, 1, 1);
	KUNIT_EXPECT_EQ(test, f->q->limit, 2U * NODROP_FLOOR);
	f->q->limit = 1600;
	adapt(f, 100 * US, 1);
	KUNIT_EXPECT_EQ(test, f->q->limit, 1600U - (1600 - NODROP_FLOOR) / 16);
}

static void test_large_packets_get_more(struct kunit *test)
{
	struct flow *f = limited(test, 5000);

	f->q->mean = NODROP_GSO_BYTES + 1;
	adapt(f, 100 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, (unsigned int)NODROP_FLOOR_GSO);
	flow_resize(f, 100);
	adapt(f, 100 * US, 1);
	KUNIT_EXPECT_EQ(test, f->q->limit, 100U);
}

/* With too few of them, TCP senders would wait for a window. */
static void test_acks_get_more(struct kunit *test)
{
	struct flow *f = limited(test, 5000);

	f->q->mean = 66;
	adapt(f, 100 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, (unsigned int)NODROP_FLOOR_ACK);
}

static void test_batches_get_more(struct kunit *test)
{
	struct flow *f = limited(test, 5000);
	void *packets[64];

	spin_lock(&f->ring.consumer_lock);
	KUNIT_EXPECT_EQ(test, nodrop_consume_batched(f->q, packets, 64), 0);
	spin_unlock(&f->ring.consumer_lock);
	adapt(f, 100 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 256U);
}

static void test_mean_of_sizes(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int i, err;

	flow_unit = 8000;
	for (i = 0; i < 100; i++)
		transmit(f, 7 * i, &err);
	KUNIT_EXPECT_GT(test, f->q->mean, (unsigned int)NODROP_GSO_BYTES);
}

/* The limit stops the txq below txqueuelen, and its half wakes it. */
static void test_stops_at_the_limit(struct kunit *test)
{
	struct flow *f = limited(test, 1000);
	unsigned int n = 0, taken = 0;
	int err;

	while (!stopped(f)) {
		KUNIT_ASSERT_TRUE(test, transmit(f, n++, &err));
		KUNIT_ASSERT_EQ(test, err, 0);
	}
	KUNIT_EXPECT_EQ(test, n, (unsigned int)NODROP_FLOOR);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 1ULL);
	while (stopped(f) && consume(f))
		taken++;
	KUNIT_EXPECT_EQ(test, taken, NODROP_FLOOR / 2U);
}

/* A consumer that found the ring empty was not slow. */
static void test_waiting_is_no_pace(struct kunit *test)
{
	struct flow *f = limited(test, 500);
	int i, round, err;

	for (round = 0; round < 5; round++) {
		for (i = 0; i < 20; i++)
			transmit(f, i, &err);
		for (i = 0; i < 20; i++)
			KUNIT_ASSERT_NOT_NULL(test, consume(f));
		KUNIT_EXPECT_NULL(test, consume(f));
		KUNIT_EXPECT_EQ(test, f->q->pace_at, 0ULL);
		KUNIT_EXPECT_EQ(test, f->q->pace_taken, f->q->taken);
	}
}

/* The lower bound needs no pace. */
static void test_large_packets_without_a_pace(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	f->q->mean = NODROP_GSO_BYTES + 1;
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, f->q->limit, (unsigned int)NODROP_FLOOR_GSO);
}

static struct kunit_case limit_cases[] = {
	KUNIT_CASE(test_limit_follows_the_pace),
	KUNIT_CASE(test_limit_changes_slowly),
	KUNIT_CASE(test_large_packets_get_more),
	KUNIT_CASE(test_acks_get_more),
	KUNIT_CASE(test_batches_get_more),
	KUNIT_CASE(test_mean_of_sizes),
	KUNIT_CASE(test_stops_at_the_limit),
	KUNIT_CASE(test_waiting_is_no_pace),
	KUNIT_CASE(test_large_packets_without_a_pace),
	{}
};

static struct kunit_suite limit_suite = {
	.name = "nodrop_limit",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = limit_cases,
};

kunit_test_suite(limit_suite);
