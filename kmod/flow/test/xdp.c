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

/* XDP frames have slack, and leave slots to a sender from the qdisc. */
static void test_xdp_leaves_a_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int i, n = flood(f);

	KUNIT_EXPECT_EQ(test, n, f->q->max + NODROP_XDP_SLACK);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_XDP), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, n), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), frame(i));
	KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(n));
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* Frames use the budget of a sender, who drops nothing and stops early. */
static void test_xdp_uses_the_budget(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int n;

	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	for (n = 0; n < 300; n++)
		KUNIT_EXPECT_EQ(test, produce_xdp(f, frame(n)), 0);
	KUNIT_EXPECT_EQ(test, fill(test, f), 199U);
	drain(f);
	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	flood(f);
	KUNIT_EXPECT_EQ(test, fill(test, f), 1U);
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
}

/* Frames that fill the ring after each packet that is taken. */
static void test_xdp_shares_with_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int rounds = 20 * f->q->max + 200;
	unsigned int i, sent = 0, frames = 0;

	fill(test, f);
	flood(f);
	f->qdisc->q.qlen = 1;
	for (i = 0; i < rounds; i++) {
		take(test, f, 1);
		frames += flood(f);
		for (; !stopped(f); sent++)
			KUNIT_ASSERT_EQ(test, transmit(f, i), 0);
	}
	/* With a small limit one packet follows a batch of frames. */
	KUNIT_EXPECT_GE(test, sent, rounds / 16);
	KUNIT_EXPECT_LE(test, counted(f, NODROP_RING), (u64)f->q->max + 1);
	if (f->q->max > 2)
		KUNIT_EXPECT_GE(test, frames, rounds / 4);

	/* Nothing waits in the qdisc. */
	f->qdisc->q.qlen = 0;
	flood(f);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING),
			(u64)f->q->max + NODROP_XDP_SLACK);
}

/* Without flow control frames and packets have the same slots. */
static void test_xdp_has_no_slack_while_off(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	f->on = false;
	KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
	KUNIT_EXPECT_EQ(test, flood(f), 4U);
	KUNIT_EXPECT_EQ(test, transmit(f, 0), -ENOSPC);
	for (i = 0; i < 9; i++) {
		take(test, f, 1);
		KUNIT_EXPECT_EQ(test, transmit(f, 0), 0);
		KUNIT_EXPECT_EQ(test, produce_xdp(f, frame(i)), -ENOSPC);
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
	KUNIT_CASE_PARAM(test_xdp_leaves_a_slot, size_gen_params),
	KUNIT_CASE(test_xdp_uses_the_budget),
	KUNIT_CASE_PARAM(test_xdp_shares_with_the_qdisc, size_gen_params),
	KUNIT_CASE(test_xdp_has_no_slack_while_off),
	KUNIT_CASE(test_xdp_has_no_slack_with_an_unaware_consumer),
	{}
};

static struct kunit_suite xdp_suite = {
	.name = "nodrop_xdp",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = xdp_cases,
};

kunit_test_suite(xdp_suite);
