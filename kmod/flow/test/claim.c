// SPDX-License-Identifier: GPL-2.0-only
/*
 * The senders' side: room first, stop early, and why a full ring drops.
 */
#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

static void test_stops_with_the_last_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));

	fill(test, f);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 0ULL);
}

static void test_busy_leaves_the_ring_alone(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	fill(test, f);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 1ULL);
	for (i = 0; i < f->ring.size; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(i));
	KUNIT_EXPECT_NULL(test, consume(f));
}

/* A wake that comes late opens a full ring: the next packet must not drop. */
static void test_stale_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int err;

	fill(test, f);
	netif_tx_wake_queue(f->txq);
	KUNIT_EXPECT_EQ(test, transmit(f, 9999, &err), NODROP_BUSY);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* Packets that a filter drops after the claim take no slot. */
static void test_claim_without_produce(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	for (i = 0; i < 2 * f->ring.size + 2; i++)
		KUNIT_EXPECT_EQ(test, claim(f), NODROP_CLAIMED);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
}

/* The ring is about to move to another txq, whose packets come already. */
static void test_claim_by_another_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct netdev_queue *other = other_txq(f);

	rcu_assign_pointer(other->qdisc, f->qdisc);
	rcu_assign_pointer(other->qdisc_sleeping, f->qdisc);
	KUNIT_EXPECT_EQ(test, claim_by(f, other, true), NODROP_BUSY);
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(other));
	flow_bind(f, other);
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(other));
	KUNIT_EXPECT_EQ(test, claim_by(f, other, true), NODROP_CLAIMED);
}

/* Two txqs lead to one ring for a moment; one of them has made its claim. */
static void test_another_txq_leaves_the_claim(struct kunit *test)
{
	struct flow *f = flow_new(test, 32);
	struct netdev_queue *other = other_txq(f);
	int i;

	for (i = 1; i < f->ring.size; i++)
		KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), 0);
	KUNIT_ASSERT_EQ(test, claim(f), NODROP_CLAIMED);
	KUNIT_EXPECT_EQ(test, claim_by(f, other, true), NODROP_BUSY);
	KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), -ENOSPC);
	KUNIT_EXPECT_EQ(test, produce(f, packet(0)), 0);

	KUNIT_ASSERT_EQ(test, claim_by(f, f->txq, false), NODROP_PASS);
	KUNIT_EXPECT_EQ(test, claim_by(f, other, true), NODROP_BUSY);
	KUNIT_EXPECT_NE(test, produce(f, packet(1)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);

	f->q->gone = true;
	KUNIT_ASSERT_EQ(test, claim(f), NODROP_PASS);
	KUNIT_EXPECT_EQ(test, claim_by(f, other, true), NODROP_BUSY);
	/* The reader is back, and has not given the slot back yet. */
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_NE(test, produce(f, packet(2)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 0ULL);
}

static void test_aside_leaves_the_claimed_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	KUNIT_ASSERT_EQ(test, claim(f), NODROP_CLAIMED);
	for (i = 1; i < f->ring.size; i++)
		KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), 0);
	KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_ASIDE), 1ULL);
	KUNIT_EXPECT_EQ(test, produce(f, packet(0)), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

static void test_no_qdisc_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err, i;

	f->qdisc->enqueue = NULL;
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_EQ(test, transmit(f, i, &err), NODROP_PASS);
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
}

/* As for a moment when txqueuelen changes: who is under way finds no qdisc. */
static void test_deactivated_is_not_stopped(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err, i;

	f->qdisc->enqueue = NULL;
	rcu_assign_pointer(f->txq->qdisc, &noop_qdisc);
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_EQ(test, transmit(f, i, &err), NODROP_PASS);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
}

/* The queue has left its device, and packets come still. */
static void test_claim_without_a_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	flow_bind(f, NULL);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 0ULL);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_CLAIMED);
}

/* Switched off, a ring drops; switched on again, it does not. */
static void test_claim_while_off(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	KUNIT_EXPECT_EQ(test, claim_by(f, f->txq, false), NODROP_PASS);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_CLAIMED);
	KUNIT_EXPECT_EQ(test, claim_by(f, f->txq, false), NODROP_PASS);
	/* The slot that was claimed is nobody's now. */
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), 0);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
}

static void test_aside_takes_an_unclaimed_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	for (i = 0; i < f->ring.size; i++)
		KUNIT_EXPECT_EQ(test, produce_aside(f, frame(i)), 0);
	KUNIT_EXPECT_NE(test, produce_aside(f, frame(i)), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	for (i = 0; i < f->ring.size; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), frame(i));
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* Each drop has its counter, and each counter its name. */
static void test_drop_causes(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);
	u64 stats[NODROP_STATS];
	int i;

	fill(test, f);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 1ULL);
	flow_bind(f, NULL);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF), 1ULL);
	flow_bind(f, f->txq);
	f->q->gone = true;
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);
	f->qdisc->enqueue = NULL;
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 1ULL);

	nodrop_queue_stats(f->q, stats);
	KUNIT_EXPECT_EQ(test, stats[NODROP_DROP_UNCLAIMED], 1ULL);
	KUNIT_EXPECT_EQ(test, stats[NODROP_RING], 1ULL);
	for (i = 0; i < NODROP_STATS; i++)
		KUNIT_EXPECT_NOT_NULL(test, nodrop_stat_names[i]);
}

/* What let a packet through is over when the packet is dropped. */
static void test_drop_cause_is_that_of_the_claim(struct kunit *test)
{
	struct flow *f = flow_new(test, 32);
	typeof(f->qdisc->enqueue) enqueue = f->qdisc->enqueue;

	fill(test, f);
	f->q->gone = true;
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_PASS);
	/* The reader is back, and has not given the slot back yet. */
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_FALSE(test, f->q->gone);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);

	f->qdisc->enqueue = NULL;
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_PASS);
	f->qdisc->enqueue = enqueue;
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_NOQUEUE), 1ULL);

	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	KUNIT_EXPECT_NE(test, produce(f, packet(9)), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 1ULL);
}

/* A flood of frames leaves a slot to a txq that was stopped. */
static void test_aside_leaves_a_slot_to_who_waits(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err, n = 0;

	fill(test, f);
	while (stopped(f)) {
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
		while (!produce_aside(f, frame(n)))
			n++;
	}
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_CLAIMED);
	KUNIT_EXPECT_EQ(test, err, 0);
}

static struct kunit_case claim_cases[] = {
	KUNIT_CASE_PARAM(test_stops_with_the_last_slot, size_gen_params),
	KUNIT_CASE_PARAM(test_busy_leaves_the_ring_alone, size_gen_params),
	KUNIT_CASE_PARAM(test_stale_wake, size_gen_params),
	KUNIT_CASE_PARAM(test_claim_without_produce, size_gen_params),
	KUNIT_CASE(test_claim_by_another_txq),
	KUNIT_CASE(test_another_txq_leaves_the_claim),
	KUNIT_CASE(test_claim_without_a_txq),
	KUNIT_CASE(test_claim_while_off),
	KUNIT_CASE_PARAM(test_aside_leaves_the_claimed_slot, size_gen_params),
	KUNIT_CASE_PARAM(test_aside_takes_an_unclaimed_slot, size_gen_params),
	KUNIT_CASE(test_no_qdisc_drops),
	KUNIT_CASE(test_deactivated_is_not_stopped),
	KUNIT_CASE(test_drop_causes),
	KUNIT_CASE(test_drop_cause_is_that_of_the_claim),
	KUNIT_CASE(test_aside_leaves_a_slot_to_who_waits),
	{}
};

static struct kunit_suite claim_suite = {
	.name = "nodrop_claim",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = claim_cases,
};

kunit_test_suite(claim_suite);
