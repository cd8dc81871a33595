// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ring's length: neither a resize nor packets that are put back drop one,
 * and the order is kept.
 */
#include "fixture.h"

static void test_resize_keeps_all(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);
	int from, to, i;

	for (from = 0; from < FLOW_SIZES; from++)
		for (to = 0; to < FLOW_SIZES; to++) {
			flow_resize(f, flow_sizes[from]);
			flow_limit(f, flow_sizes[from]);
			fill(test, f);
			KUNIT_EXPECT_EQ(test, flow_resize(f, flow_sizes[to]),
					0);
			KUNIT_EXPECT_EQ(test, (int)f->q->max, flow_sizes[to]);
			KUNIT_EXPECT_EQ(test, (int)f->q->limit,
					min(flow_sizes[from], flow_sizes[to]));
			KUNIT_EXPECT_TRUE(test, stopped(f));
			for (i = 0; i < flow_sizes[from]; i++)
				KUNIT_ASSERT_PTR_EQ(test, consume(f),
						    (void *)packet(i));
			KUNIT_ASSERT_NULL(test, consume(f));
			KUNIT_ASSERT_FALSE(test, stopped(f));
			KUNIT_ASSERT_EQ(test, nodrop_held(f->q), 0U);
		}
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
}

/* The array grows if it must, and keeps its packets. */
static void test_resize_beyond_the_array(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i, size = f->ring.size;

	fill(test, f);
	KUNIT_EXPECT_EQ(test, flow_resize(f, 10 * size), 0);
	KUNIT_EXPECT_GT(test, f->ring.size, 10 * size);
	size = f->ring.size;
	KUNIT_EXPECT_EQ(test, flow_resize(f, 1), 0);
	KUNIT_EXPECT_EQ(test, f->ring.size, size);
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
}

/* nodrop_grow() leaves txqueuelen as it is. */
static void test_grow(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int size = f->ring.size;

	rtnl_lock();
	KUNIT_EXPECT_EQ(test, nodrop_grow(f->q, 5), 0);
	KUNIT_EXPECT_EQ(test, f->ring.size, size);
	KUNIT_EXPECT_EQ(test, nodrop_grow(f->q, INT_MAX - 200), -ENOMEM);
	KUNIT_EXPECT_EQ(test, nodrop_grow(f->q, 1000), 0);
	KUNIT_EXPECT_GE(test, f->ring.size, 1000);
	KUNIT_EXPECT_EQ(test, f->q->max, 5U);
	rtnl_unlock();
}

static void test_resize_to_nothing(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	KUNIT_EXPECT_EQ(test, flow_resize(f, 0), 0);
	KUNIT_EXPECT_EQ(test, f->q->max, 1U);
	KUNIT_EXPECT_EQ(test, fill(test, f), 1U);
}

/* A size that overflows is refused, and changes nothing. */
static void test_resize_to_too_much(struct kunit *test)
{
	static const int sizes[] = { INT_MAX, INT_MIN, -1 };
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		KUNIT_EXPECT_EQ(test, flow_resize(f, sizes[i]), -ENOMEM);
		KUNIT_EXPECT_EQ(test, f->q->max, 5U);
		KUNIT_EXPECT_TRUE(test, stopped(f));
	}
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 5U);
}

/* The consumer's next check may lie beyond the shorter ring. */
static void test_resize_lets_the_consumer_check(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	take(test, f, fill(test, f));
	flow_resize(f, 1);
	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	take(test, f, 1);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* The budget of the longer ring is void. */
static void test_resize_voids_the_budget(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int size, i;

	for (size = 4; size > 0; size--) {
		flow_resize(f, 500);
		flow_limit(f, 500);
		for (i = 0; i < 10; i++)
			KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
		flow_resize(f, size);
		KUNIT_EXPECT_EQ(test, transmit(f, 10), 0);
		KUNIT_EXPECT_TRUE(test, stopped(f));
		for (i = 0; i <= 10; i++)
			KUNIT_EXPECT_PTR_EQ(test, consume(f),
					    (void *)packet(i));
		KUNIT_EXPECT_NULL(test, consume(f));
	}
}

static void test_unconsume(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[5];
	int i;

	nodrop_unconsume(f->q, taken, 0);
	KUNIT_EXPECT_TRUE(test, empty(f));
	fill(test, f);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 5), 5);
	nodrop_unconsume(f->q, taken + 3, 2);
	nodrop_unconsume(f->q, taken + 1, 2);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 4U);
	KUNIT_EXPECT_FALSE(test, empty(f));
	for (i = 1; i < 5; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
	KUNIT_EXPECT_TRUE(test, empty(f));
}

/*
 * The array takes a full queue, a flood of XDP, a batch that is put back, and
 * senders' packets that follow a stop.
 */
static void test_slack(struct kunit *test)
{
	struct flow *f = flow_new(test, 900);
	unsigned int i, n;
	void *taken[64];

	n = fill(test, f);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 64);
	for (i = 0; i < 64; i++)
		KUNIT_EXPECT_EQ(test, transmit(f, n++), 0);
	for (i = 0; !produce_xdp(f, frame(i)); i++)
		;
	KUNIT_EXPECT_EQ(test, i, NODROP_XDP_SLACK);
	for (i = 0; i < 2 * nr_cpu_ids; i++)
		KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
	nodrop_unconsume(f->q, taken, 64);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING),
			(u64)900 + NODROP_XDP_SLACK + 2 * nr_cpu_ids + 64);
	for (i = 0; i < 900; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
}

/* Packets that are put back while the txq runs leave its next one a slot. */
static void test_put_back_without_a_stop(struct kunit *test)
{
	struct flow *f = flow_new(test, 900);
	void *taken[64];
	unsigned int i;

	for (i = 0; i < 64; i++)
		KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 64), 64);
	flow_limit(f, 900);
	for (i = 64; i < 64 + 899; i++)
		KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	nodrop_unconsume(f->q, taken, 64);
	KUNIT_EXPECT_EQ(test, transmit(f, i), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 900ULL + 64);
}

/* Packets that do not fit are freed with no lock of the ring held. */
static void test_put_back_too_much(struct kunit *test)
{
	struct flow *f = flow_new(test, 900);
	const unsigned int batches = 2 + NODROP_SLACK / 64;
	unsigned int i, lost;
	void *taken[64];

	fill(test, f);
	/* As several consumers that have each taken the same batch. */
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 64), 64);
	for (i = 0; i < batches; i++)
		nodrop_unconsume(f->q, taken, 64);
	lost = counted(f, NODROP_DROP_PURGED);
	KUNIT_EXPECT_GT(test, lost, 0U);
	KUNIT_EXPECT_EQ(test, flow_destroyed, lost);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), nodrop_ring_count(&f->ring));
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q),
			900 - 64 + 64 * batches - lost);
}

/* With an unaware consumer the ring still drops at txqueuelen. */
static void test_unaware_ring_is_no_longer(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int round, i;

	nodrop_queue_unaware(f->q);
	for (round = 0; round < 300; round++) {
		for (i = 0; i < 5; i++)
			KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
		KUNIT_ASSERT_EQ(test, transmit(f, 5), -ENOSPC);
		for (i = 0; i < 5; i++)
			KUNIT_ASSERT_PTR_EQ(test, ptr_ring_consume(&f->ring),
					    (void *)packet(i));
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 300ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 0ULL);
}

static void unbind_and_shrink(struct flow *f)
{
	nodrop_queue_unaware(f->q);
	flow_bind(f, NULL);
	rtnl_lock();
	nodrop_shrink(f->q);
	rtnl_unlock();
}

/* Flow control ends for good: the array shrinks. */
static void test_shrink(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	unsigned int i, n = fill(test, f);

	unbind_and_shrink(f);
	KUNIT_EXPECT_EQ(test, f->ring.size, 5);
	KUNIT_EXPECT_EQ(test, transmit(f, n), -ENOSPC);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_PTR_EQ(test, ptr_ring_consume(&f->ring),
				    (void *)packet(i));
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
}

/* Not if it holds more than its new length. */
static void test_shrink_drops_nothing(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	unsigned int n = fill(test, f);

	nodrop_queue_poll(f->q);
	KUNIT_EXPECT_EQ(test, transmit(f, n), 0);
	unbind_and_shrink(f);
	KUNIT_EXPECT_GE(test, f->ring.size, 6);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 6ULL);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
}

static struct kunit_case ring_cases[] = {
	KUNIT_CASE(test_resize_keeps_all),
	KUNIT_CASE(test_resize_beyond_the_array),
	KUNIT_CASE(test_grow),
	KUNIT_CASE(test_resize_to_nothing),
	KUNIT_CASE(test_resize_to_too_much),
	KUNIT_CASE(test_resize_lets_the_consumer_check),
	KUNIT_CASE(test_resize_voids_the_budget),
	KUNIT_CASE(test_unconsume),
	KUNIT_CASE(test_slack),
	KUNIT_CASE(test_put_back_without_a_stop),
	KUNIT_CASE(test_put_back_too_much),
	KUNIT_CASE(test_unaware_ring_is_no_longer),
	KUNIT_CASE(test_shrink),
	KUNIT_CASE(test_shrink_drops_nothing),
	{}
};

static struct kunit_suite ring_suite = {
	.name = "nodrop_ring",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = ring_cases,
};

kunit_test_suite(ring_suite);
