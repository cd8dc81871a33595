// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit: as many packets as the consumer takes in half a millisecond.
 */
#include "fixture.h"

#define US 1000U

/* As in use: the limit is what the consumer makes of it. */
static struct flow *limited(struct kunit *test, int size)
{
	struct flow *f = flow_new(test, size);

	flow_limit(f, min(NODROP_LEAST, size));
	return f;
}

/* Take @n packets, each in @pace ns. */
static void take_in(struct kunit *test, struct flow *f, unsigned int n,
		    unsigned int pace)
{
	while (n--) {
		take(test, f, 1);
		flow_now += pace;
	}
}

/* The consumer takes @rounds full rings and never finds an empty one. */
static void take_rings(struct kunit *test, struct flow *f, unsigned int pace,
		       int rounds)
{
	while (rounds--) {
		fill(test, f);
		take_in(test, f, counted(f, NODROP_RING), pace);
	}
}

/* It has done so at this pace for long. */
static void paced(struct flow *f, unsigned int pace)
{
	f->q->rate = (NODROP_MEAN_NS << NODROP_RATE_SHIFT) / pace;
}

/* Up to rounding */
static void expect_limit(struct kunit *test, struct flow *f, unsigned int limit)
{
	KUNIT_EXPECT_LE(test, f->q->limit, limit);
	KUNIT_EXPECT_GE(test, f->q->limit, limit - 1);
}

static void read_at(struct kunit *test, struct flow *f, unsigned int pace,
		    int rounds)
{
	/* The sample that is under way began at another one. */
	take_rings(test, f, pace, NODROP_BATCH);
	paced(f, pace);
	take_rings(test, f, pace, rounds);
}

static void read_batched_at(struct kunit *test, struct flow *f,
			    unsigned int pace, int rounds)
{
	void *packets[64];

	paced(f, pace);
	while (rounds--) {
		fill(test, f);
		while (counted(f, NODROP_RING))
			flow_now += pace * consume_batched(f, packets, 64);
	}
}

static void test_starts_small(struct kunit *test)
{
	struct nodrop_queue *q;
	struct ptr_ring ring;

	KUNIT_ASSERT_EQ(test, ptr_ring_init(&ring, 500, GFP_KERNEL), 0);
	q = nodrop_queue_create(&ring, &ring, NULL);
	KUNIT_ASSERT_NOT_NULL(test, q);
	KUNIT_EXPECT_EQ(test, q->limit, NODROP_LEAST);
	nodrop_queue_destroy(q);
	ptr_ring_cleanup(&ring, NULL);
}

static void test_limit_follows_the_pace(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	read_at(test, f, 1 * US, 50);
	expect_limit(test, f, 500);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_PACE), 1000ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_LIMIT), 0ULL + f->q->limit);
	read_at(test, f, 2 * US, 50);
	expect_limit(test, f, 250);
	/* No more than txqueuelen. */
	read_at(test, f, 1, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 1000U);
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* A mean over time, whether that brings many packets or few. */
static void test_pace_is_a_mean(struct kunit *test)
{
	static const unsigned int paces[] = { 20, 100, 400, 50000, 100, 20 };
	struct flow *f = limited(test, 500);
	unsigned int pace, start, i;
	u64 end;

	for (i = 0; i < ARRAY_SIZE(paces); i++) {
		pace = paces[i] * US;
		start = f->q->taken;
		end = flow_now + 128000 * US;
		/* An eighth of a second counts for more than half. */
		while (flow_now < end ||
		       f->q->taken - start <= 2 * NODROP_BATCH)
			take_rings(test, f, pace, 1);
		if (!i)
			KUNIT_EXPECT_LT(test, counted(f, NODROP_PACE),
					2ULL * pace);
		else if (pace < paces[i - 1] * US)
			KUNIT_EXPECT_LT(test, counted(f, NODROP_PACE),
					2ULL * pace);
		else
			KUNIT_EXPECT_GT(test, counted(f, NODROP_PACE),
					paces[i - 1] * US + 1ULL);
		for (end = flow_now + 3000000ULL * US; flow_now < end;)
			take_rings(test, f, pace, 1);
		KUNIT_EXPECT_LE(test, counted(f, NODROP_PACE),
				pace + pace / 20 + 0ULL);
		KUNIT_EXPECT_GE(test, counted(f, NODROP_PACE),
				pace - pace / 20 + 0ULL);
	}
}

/* One that does not run for a moment is not slow. */
static void test_pause_is_no_pace(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	read_at(test, f, 1 * US, 50);
	expect_limit(test, f, 500);
	flow_now += 20000 * US;
	take_rings(test, f, 1 * US, 1);
	KUNIT_EXPECT_GT(test, f->q->limit, 400U);
}

/* Nor is one fast that fills a buffer of its own, whether known or not. */
static void test_buffer_is_no_pace(struct kunit *test)
{
	struct flow *f = limited(test, 1000);
	int round, n;

	for (round = 0; round < 3; round++) {
		for (n = 0; n < 400; n += counted(f, NODROP_RING)) {
			fill(test, f);
			take_in(test, f, counted(f, NODROP_RING), 1 * US);
			n += f->q->limit;
		}
		/* 20 packets a second: less than guard_ms. */
		KUNIT_EXPECT_LE(test, f->q->limit, 16U);
		take_rings(test, f, 50000 * US, 10);
		KUNIT_EXPECT_EQ(test, f->q->limit, NODROP_LEAST);
	}
}

/* A lower bound, as far as the consumer takes that in 5 ms, and 4 packets. */
static void test_floor_is_a_time(struct kunit *test)
{
	static const struct {
		unsigned int pace, limit;
	} cases[] = {
		{ 10 * US, 50 },
		{ 11 * US, NODROP_FLOOR },
		{ 104 * US, NODROP_FLOOR },
		{ 125 * US, 40 },
		{ 1000 * US, 5 },
		{ 1250 * US, NODROP_LEAST },
		{ 100000 * US, NODROP_LEAST },
		{ 500 * US, 10 },
		{ 20 * US, NODROP_FLOOR },
	};
	struct flow *f = limited(test, 500);
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		read_at(test, f, cases[i].pace, 100);
		expect_limit(test, f, cases[i].limit);
	}
}

static void test_floor_of_a_short_ring(struct kunit *test)
{
	struct flow *f = limited(test, 3);

	read_at(test, f, 100 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 3U);
	read_at(test, f, 100000 * US, 50);
	KUNIT_EXPECT_EQ(test, f->q->limit, 3U);
}

/* Its limit cannot grow, so a sample need not be short: each reads a clock. */
static void test_short_ring_has_long_samples(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	take_rings(test, f, 1 * US, NODROP_BATCH / 5);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_PACE), 0ULL);
	take_rings(test, f, 1 * US, 1);
	KUNIT_EXPECT_GT(test, counted(f, NODROP_PACE), 0ULL);
}

/* One that often empties the ring is not fast for that. */
static void test_empty_ring_of_a_slow_reader(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, f->q->limit, NODROP_LEAST);
	read_at(test, f, 2000 * US, 50);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, f->q->limit, NODROP_LEAST);
}

/* One that empties it and then works on what it took is slow. */
static void test_work_after_an_empty_ring(struct kunit *test)
{
	static const unsigned int limits[] = { NODROP_LEAST, 500 };
	struct flow *f = limited(test, 1000);
	unsigned int round, n, i;

	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		flow_limit(f, limits[i]);
		for (round = 0; round < 200; round++) {
			n = fill(test, f);
			flow_now += n * 1000 * US;
			take_in(test, f, n, 1 * US);
			KUNIT_EXPECT_NULL(test, consume(f));
		}
		KUNIT_EXPECT_LE(test, f->q->limit, 6U);
	}
}

/* A consumer that found the ring empty was not slow. */
static void test_waiting_is_no_pace(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int round, i;

	paced(f, 1 * US);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < NODROP_BATCH + 4; i++)
			KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
		take_in(test, f, NODROP_BATCH + 4, 1 * US);
		KUNIT_EXPECT_NULL(test, consume(f));
		flow_now += 1000000 * US;
	}
	KUNIT_EXPECT_LE(test, counted(f, NODROP_PACE), 1ULL * US);
	expect_limit(test, f, 500);
}

/*
 * With a small limit, a sample begins with the first packet after an empty
 * ring: there may be few until it is empty again.
 */
static void test_small_limit_is_measured(struct kunit *test)
{
	struct flow *f = limited(test, 500);
	int round;

	KUNIT_EXPECT_NULL(test, consume(f));
	for (round = 0; round < 100; round++) {
		KUNIT_EXPECT_EQ(test, !counted(f, NODROP_PACE), !round);
		/* Waiting is not counted. */
		flow_now += 1000000 * US;
		KUNIT_EXPECT_GE(test, fill(test, f), NODROP_LEAST);
		take_in(test, f, counted(f, NODROP_RING), 1 * US);
		KUNIT_EXPECT_NULL(test, consume(f));
	}
	KUNIT_EXPECT_LT(test, counted(f, NODROP_PACE), 1000ULL * US);
}

static void test_batches_get_more(struct kunit *test)
{
	struct flow *f = limited(test, 500);

	read_batched_at(test, f, 15 * US, 100);
	expect_limit(test, f, 256);
	/* No more than 5 ms of them. */
	read_batched_at(test, f, 50 * US, 100);
	expect_limit(test, f, 100);
	/* And no more when they are over. */
	read_at(test, f, 50 * US, 100);
	expect_limit(test, f, NODROP_FLOOR);
}

static void test_target_us(struct kunit *test)
{
	struct flow *f = limited(test, 1000);

	target_set(2000);
	read_at(test, f, 5 * US, 50);
	expect_limit(test, f, 400);
	target_set(300);
	read_at(test, f, 5 * US, 50);
	expect_limit(test, f, 60);
}

/* The limit stops the txq below txqueuelen, and its half wakes it. */
static void test_stops_at_the_limit(struct kunit *test)
{
	struct flow *f = flow_new(test, 1000);

	flow_limit(f, 48);
	KUNIT_EXPECT_EQ(test, fill(test, f), 48U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 1ULL);
	KUNIT_EXPECT_EQ(test, take_to_wake(test, f), 24U);
}

static struct kunit_case limit_cases[] = {
	KUNIT_CASE(test_starts_small),
	KUNIT_CASE(test_limit_follows_the_pace),
	KUNIT_CASE(test_pace_is_a_mean),
	KUNIT_CASE(test_pause_is_no_pace),
	KUNIT_CASE(test_buffer_is_no_pace),
	KUNIT_CASE(test_floor_is_a_time),
	KUNIT_CASE(test_floor_of_a_short_ring),
	KUNIT_CASE(test_short_ring_has_long_samples),
	KUNIT_CASE(test_empty_ring_of_a_slow_reader),
	KUNIT_CASE(test_work_after_an_empty_ring),
	KUNIT_CASE(test_waiting_is_no_pace),
	KUNIT_CASE(test_small_limit_is_measured),
	KUNIT_CASE(test_batches_get_more),
	KUNIT_CASE(test_target_us),
	KUNIT_CASE(test_stops_at_the_limit),
	{}
};

static struct kunit_suite limit_suite = {
	.name = "nodrop_limit",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = limit_cases,
};

kunit_test_suite(limit_suite);
