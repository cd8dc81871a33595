// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue's life: create, find, bind, an unaware consumer, detach.
 */
#include <linux/rtnetlink.h>

#include "fixture.h"

static void test_unaware_consumer_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	KUNIT_ASSERT_TRUE(test, stopped(f));
	nodrop_queue_unaware(f->q);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, transmit(f, 9), -ENOSPC);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 1ULL);
}

/* The consumer of a device that was down has woken nothing. */
static void test_bind_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_up(f, false);
	take(test, f, 1);
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	flow_up(f, true);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
	KUNIT_EXPECT_EQ(test, fill(test, f), 1U);
}

/* Else each of them would admit a packet to a ring that nobody reads. */
static void test_reopening_a_full_ring(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	guard_samples(f, 3);
	timer_delete(&f->q->guard);
	for (i = 0; i < 100; i++) {
		flow_bind(f, f->txq);
		flow_resize(f, 6 + i % 2);
		flow_up(f, false);
		flow_up(f, true);
		if (!stopped(f))
			transmit(f, i);
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 5ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, drops(f), 0ULL);
	/* The guard sees to it. */
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

static void test_bind_wakes_the_txq_before(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_EQ(test, fill(test, f), 1U);
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* Another txq may be bound before it has a qdisc: nothing to kick there. */
static void test_bind_forgets_a_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct Qdisc *qdisc = rcu_access_pointer(f->txq->qdisc);

	fill(test, f);
	take_to_wake(test, f);
	flow_bind(f, NULL);
	rcu_assign_pointer(f->txq->qdisc, NULL);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	flow_bind(f, f->txq);
	drain(f);
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

static int detach(struct flow *f)
{
	int lost;

	rtnl_lock();
	lost = nodrop_queue_detach(f->q);
	rtnl_unlock();
	return lost;
}

static void test_detach_purges(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[2];

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 2), 2);
	nodrop_unconsume(f->q, taken, 2);
	KUNIT_EXPECT_EQ(test, detach(f), 5);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 5U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), 5ULL);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, detach(f), 0);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 0U);
}

/* The queue was detached while its consumer had a batch in hand. */
static void test_unconsume_after_detaching(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[3];
	int i;

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 3), 3);
	KUNIT_EXPECT_EQ(test, detach(f), 2);
	nodrop_unconsume(f->q, taken, 3);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(i));
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

static struct kunit_case life_cases[] = {
	KUNIT_CASE(test_unaware_consumer_drops),
	KUNIT_CASE(test_bind_wakes),
	KUNIT_CASE(test_reopening_a_full_ring),
	KUNIT_CASE(test_bind_wakes_the_txq_before),
	KUNIT_CASE(test_bind_forgets_a_wake),
	KUNIT_CASE(test_find),
	KUNIT_CASE(test_create_in_use),
	KUNIT_CASE(test_size),
	KUNIT_CASE(test_detach_purges),
	KUNIT_CASE(test_unconsume_after_detaching),
	{}
};

static struct kunit_suite life_suite = {
	.name = "nodrop_life",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = life_cases,
};

kunit_test_suite(life_suite);
