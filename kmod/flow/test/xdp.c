// SPDX-License-Identifier: GPL-2.0-only
/*
 * XDP frames: the slots that they may use beside a sender's.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

/* Return how many frames fit. */
static unsigned int flood(struct flow *f)
{
	unsigned int n = 0;

	while (!produce_xdp(f, frame(n)))
		n++;
	return n;
}

/* XDP frames have slack, and leave a sender a batch of the reserved slots. */
static void test_xdp_leaves_the_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int batch = nodrop_batch(f->q->limit);
	int i, err, n;

	KUNIT_ASSERT_TRUE(test, reserve(f));
	n = flood(f);
	KUNIT_EXPECT_EQ(test, n, f->q->max + NODROP_XDP_SLACK - batch);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_XDP), 1ULL);
	for (i = 0; i < batch; i++) {
		KUNIT_EXPECT_TRUE(test, transmit(f, i, &err));
		KUNIT_EXPECT_EQ(test, err, 0);
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), frame(i));
	for (i = 0; i < batch; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(i));
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, transmit(f, 1, &err));
	KUNIT_EXPECT_EQ(test, err, 0);
}

/* A flood of frames while a whole ring is reserved for a sender. */
static void test_xdp_takes_what_nobody_relies_on(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int err = 0, n = 0;

	transmit(f, n++, &err);
	flood(f);
	while (transmit(f, n++, &err))
		KUNIT_ASSERT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 0ULL);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* Frames that fill the ring after each packet that is taken. */
static void test_xdp_shares_with_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int rounds = 20 * f->q->max + 200;
	int err = 0, i, sent = 0, frames = 0;

	fill(test, f);
	flood(f);
	f->qdisc->q.qlen = 1;
	for (i = 0; i < rounds; i++) {
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
		frames += flood(f);
		while (!stopped(f) && transmit(f, i, &err) && !err)
			sent++;
		KUNIT_ASSERT_EQ(test, err, 0);
	}
	KUNIT_EXPECT_GE(test, sent, rounds / 4);
	KUNIT_EXPECT_LE(test, nodrop_held(f->q), f->q->max);
	if (f->q->max > 2)
		KUNIT_EXPECT_GE(test, frames, rounds / 4);

	/* Nothing waits in the qdisc. */
	f->qdisc->q.qlen = 0;
	flood(f);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), f->q->max + NODROP_XDP_SLACK);
}

/* The run has dequeued the only packet; it looks for a slot after a flood. */
static void test_xdp_leaves_slots_to_a_run(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int err;

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_ASSERT_TRUE(test, qdisc_run_begin(f->qdisc));
	flood(f);
	KUNIT_EXPECT_TRUE(test, transmit(f, 0, &err));
	KUNIT_EXPECT_EQ(test, err, 0);
	qdisc_run_end(f->qdisc);
}

/* Without flow control frames and packets have the same slots. */
static void test_xdp_has_no_slack_while_off(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	KUNIT_ASSERT_EQ(test, reserve_by(f, f->txq, false), 0);
	KUNIT_EXPECT_EQ(test, produce(f, packet(0)), 0);
	KUNIT_EXPECT_EQ(test, flood(f), 4U);
	KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), -ENOSPC);
	for (i = 0; i < 9; i++) {
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
		KUNIT_EXPECT_EQ(test, reserve_by(f, f->txq, false), 0);
		KUNIT_EXPECT_EQ(test, produce(f, packet(i)), 0);
		KUNIT_EXPECT_NE(test, produce_xdp(f, frame(i)), 0);
	}
}

/* nodrop_shrink() relies on this. */
static void test_xdp_has_no_slack_with_an_unaware_consumer(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	nodrop_queue_unaware(f->q);
	KUNIT_EXPECT_EQ(test, flood(f), 5U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_XDP), 1ULL);
}

static struct kunit_case xdp_cases[] = {
	KUNIT_CASE_PARAM(test_xdp_leaves_the_slot, size_gen_params),
	KUNIT_CASE(test_xdp_takes_what_nobody_relies_on),
	KUNIT_CASE_PARAM(test_xdp_shares_with_the_qdisc, size_gen_params),
	KUNIT_CASE_PARAM(test_xdp_leaves_slots_to_a_run, size_gen_params),
	KUNIT_CASE(test_xdp_has_no_slack_while_off),
	KUNIT_CASE(test_xdp_has_no_slack_with_an_unaware_consumer),
	{}
};

static struct kunit_suite xdp_suite = {
	.name = "nodrop_xdp",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = xdp_cases,
};

kunit_test_suite(xdp_suite);
