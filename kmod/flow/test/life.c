// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue's life: create, find, bind, an unaware consumer, detach.
 */
#include <linux/rtnetlink.h>

#include "fixture.h"

static void test_unaware_consumer_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err;

	fill(test, f);
	KUNIT_ASSERT_TRUE(test, stopped(f));
	nodrop_queue_unaware(f->q);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, transmit(f, 9, &err));
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 1ULL);
}

static void test_bind_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, reserve(f));
}

static void test_bind_wakes_the_txq_before(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, reserve(f));
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* Another txq may be bound before it has a qdisc: nothing to kick there. */
static void test_bind_forgets_a_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct Qdisc *qdisc = rcu_access_pointer(f->txq->qdisc);

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	flow_bind(f, NULL);
	rcu_assign_pointer(f->txq->qdisc, NULL);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	flow_bind(f, f->txq);
	while (consume(f))
		;
	set_bit(__LINK_STATE_START, &f->dev->state);
	rcu_assign_pointer(f->txq->qdisc, qdisc);
}

#define QUEUES 6000

static void test_find(struct kunit *test)
{
	struct nodrop_queue **queues;
	struct ptr_ring ring;
	int i;

	KUNIT_ASSERT_EQ(test, ptr_ring_init(&ring, 1, GFP_KERNEL), 0);
	queues = kunit_kcalloc(test, QUEUES, sizeof(*queues), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, queues);
	KUNIT_EXPECT_NULL(test, nodrop_queue_find(&queues[0]));
	/* More queues than the table has rows: some share one. */
	for (i = 0; i < QUEUES; i++)
		queues[i] = nodrop_queue_create(&ring, &queues[i], NULL);
	for (i = 0; i < QUEUES; i++)
		KUNIT_EXPECT_PTR_EQ(test, nodrop_queue_find(&queues[i]),
				    queues[i]);
	KUNIT_EXPECT_NULL(test, nodrop_queue_find(&ring));
	for (i = 0; i < QUEUES; i += 2)
		nodrop_queue_destroy(queues[i]);
	for (i = 0; i < QUEUES; i++)
		KUNIT_EXPECT_PTR_EQ(test, nodrop_queue_find(&queues[i]),
				    i % 2 ? queues[i] : NULL);
	for (i = 1; i < QUEUES; i += 2)
		nodrop_queue_destroy(queues[i]);
	ptr_ring_cleanup(&ring, NULL);
}

/* An unprivileged user may have as many queues as open files. */
static void test_size(struct kunit *test)
{
	KUNIT_EXPECT_LE(test, sizeof(struct nodrop_queue), 1024UL);
}

static int detach(struct flow *f, struct flow *target)
{
	int lost;

	rtnl_lock();
	lost = nodrop_queue_detach(f->q, target ? target->q : NULL);
	rtnl_unlock();
	return lost;
}

static void test_no_target(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[2];

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 2), 2);
	nodrop_unconsume(f->q, taken, 2);
	KUNIT_EXPECT_EQ(test, detach(f, NULL), 5);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 5U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), 5ULL);
	KUNIT_EXPECT_EQ(test, detach(f, NULL), 0);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 0U);
}

static void test_unaware_is_no_target(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct flow *target = flow_second(test, f, 5);

	fill(test, f);
	nodrop_queue_unaware(target->q);
	KUNIT_EXPECT_EQ(test, detach(f, target), 5);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 5U);
	KUNIT_EXPECT_EQ(test, counted(target, NODROP_DROP_PURGED), 5ULL);
	KUNIT_EXPECT_TRUE(test, __ptr_ring_empty(&target->ring));
	flow_free(target);
}

/* As the livepatch creates queues for a running driver's rings. */
static void test_create_in_use(struct kunit *test)
{
	const int size = 40;
	unsigned int before, wanted, held, i;
	struct nodrop_queue *q;
	struct ptr_ring ring;

	for (before = 0; before < 2 * size; before += 3) {
		for (wanted = 0; wanted <= size; wanted++) {
			KUNIT_ASSERT_EQ(test,
					ptr_ring_init(&ring, size, GFP_KERNEL),
					0);
			for (i = 0; i < before; i++) {
				ptr_ring_produce(&ring, packet(i));
				ptr_ring_consume(&ring);
			}
			held = 0;
			while (held < wanted &&
			       !ptr_ring_produce(&ring, packet(held)))
				held++;
			q = nodrop_queue_create(&ring, &ring, NULL);
			KUNIT_ASSERT_NOT_NULL(test, q);
			KUNIT_EXPECT_EQ(test, nodrop_held(q), held);
			nodrop_queue_destroy(q);
			ptr_ring_cleanup(&ring, NULL);
		}
	}
}

/* Packets migrate behind the target's own, as far as its array has slots. */
static void test_target_gets_what_it_can(struct kunit *test)
{
	struct flow *f = flow_new(test, 2000);
	struct flow *target = flow_second(test, f, 4);
	int i, err, lost, room = 512;

	fill(test, f);
	transmit(target, 8, &err);
	transmit(target, 9, &err);
	KUNIT_ASSERT_TRUE(test, reserve(target));
	lost = detach(f, target);
	KUNIT_EXPECT_EQ(test, lost, 2000 - (room - 2));
	KUNIT_EXPECT_EQ(test, flow_destroyed, (unsigned int)lost);
	KUNIT_EXPECT_EQ(test, counted(target, NODROP_DROP_PURGED), (u64)lost);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_NULL(test, consume(f));
	/* The target's reserved slot is still there. */
	KUNIT_EXPECT_EQ(test, produce(target, packet(10)), 0);
	for (i = 8; i < 10; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(target), packet(i));
	for (i = 0; i < room - 2; i++)
		KUNIT_ASSERT_PTR_EQ(test, consume(target), packet(i));
	KUNIT_EXPECT_PTR_EQ(test, consume(target), packet(10));
	KUNIT_EXPECT_NULL(test, consume(target));
	KUNIT_EXPECT_EQ(test, nodrop_held(target->q), 0U);
	flow_free(target);
}

/* Migrated packets take reserved slots, except for one. */
static void test_target_drops_nothing_after_that(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct flow *target = flow_second(test, f, 500);
	int err = 0, n = 0;

	fill(test, f);
	transmit(target, n++, &err);
	KUNIT_EXPECT_EQ(test, detach(f, target), 0);
	while (transmit(target, n++, &err))
		KUNIT_ASSERT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(target, NODROP_DROP_UNCLAIMED), 0ULL);
	flow_free(target);
}

/* The queue was detached while its consumer had a batch in hand. */
static void test_unconsume_after_detaching(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct flow *second = flow_second(test, f, 5);
	void *taken[3];
	int i;

	fill(test, second);
	KUNIT_ASSERT_EQ(test, consume_batched(second, taken, 3), 3);
	KUNIT_EXPECT_EQ(test, detach(second, f), 0);
	nodrop_unconsume(second->q, taken, 3);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(second), packet(i));
	flow_free(second);
}

static struct kunit_case life_cases[] = {
	KUNIT_CASE(test_unaware_consumer_drops),
	KUNIT_CASE(test_bind_wakes),
	KUNIT_CASE(test_bind_wakes_the_txq_before),
	KUNIT_CASE(test_bind_forgets_a_wake),
	KUNIT_CASE(test_find),
	KUNIT_CASE(test_create_in_use),
	KUNIT_CASE(test_size),
	KUNIT_CASE(test_no_target),
	KUNIT_CASE(test_unaware_is_no_target),
	KUNIT_CASE(test_target_gets_what_it_can),
	KUNIT_CASE(test_target_drops_nothing_after_that),
	KUNIT_CASE(test_unconsume_after_detaching),
	{}
};

static struct kunit_suite life_suite = {
	.name = "nodrop_life",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = life_cases,
};

kunit_test_suite(life_suite);
