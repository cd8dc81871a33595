// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue's life: made, found, bound, handed to a stranger, inherited.
 */
#include <linux/rtnetlink.h>

#include "fixture.h"

static void test_foreign_reader_drops(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err;

	fill(test, f);
	KUNIT_ASSERT_TRUE(test, stopped(f));
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_PASS);
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
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
}

static void test_bind_wakes_the_txq_before(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, stopped(f));
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
	/* More than the table has rows: some share one. */
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

/* An ordinary user has one for each tun file that he may open. */
static void test_size(struct kunit *test)
{
	KUNIT_EXPECT_LE(test, sizeof(struct nodrop_queue), 1024UL);
}

static int leave(struct flow *f, struct flow *heir)
{
	int lost;

	rtnl_lock();
	lost = nodrop_queue_leave(f->q, heir ? heir->q : NULL);
	rtnl_unlock();
	return lost;
}

/* What is in front and what is in the ring, before what the heir has. */
static void test_heir_gets_all(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct flow *heir = flow_second(test, f, 2);
	void *taken[2];
	int i, err;

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 2), 2);
	nodrop_unconsume(f->q, taken, 2);
	transmit(heir, 8, &err);
	transmit(heir, 9, &err);
	KUNIT_EXPECT_EQ(test, leave(f, heir), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_NULL(test, consume(f));
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_PTR_EQ(test, consume(heir), packet(i));
	KUNIT_EXPECT_PTR_EQ(test, consume(heir), packet(8));
	KUNIT_EXPECT_PTR_EQ(test, consume(heir), packet(9));
	KUNIT_EXPECT_NULL(test, consume(heir));
	KUNIT_EXPECT_FALSE(test, stopped(heir));
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), 0ULL);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 0U);
	KUNIT_EXPECT_EQ(test, nodrop_held(heir->q), 0U);
	flow_free(heir);
}

/* Whoever leaves and comes back, full, again and again does not fill memory. */
static void test_heir_is_not_flooded(struct kunit *test)
{
	const unsigned int rounds = 900, most = 2 * 1000;
	struct flow *f = flow_new(test, 5);
	struct flow *heir = flow_second(test, f, 5);
	struct flow *next = flow_second(test, f, 5);
	unsigned int lost = 0, came = 0, i;

	for (i = 0; i < rounds; i++) {
		flow_bind(f, f->txq);
		fill(test, f);
		lost += leave(f, heir);
	}
	KUNIT_EXPECT_EQ(test, nodrop_held(heir->q), most);
	KUNIT_EXPECT_EQ(test, lost, 5 * rounds - most);

	/* Nor does another heir of the same device. */
	flow_bind(f, f->txq);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, leave(f, next), 5);
	KUNIT_EXPECT_EQ(test, nodrop_held(next->q), 0U);
	lost += 5;

	KUNIT_EXPECT_EQ(test, flow_destroyed, lost);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), lost + 0ULL);
	while (consume(heir))
		came++;
	KUNIT_EXPECT_EQ(test, came, most);
	KUNIT_EXPECT_EQ(test, nodrop_held(heir->q), 0U);
	flow_bind(f, f->txq);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, leave(f, next), 0);
	KUNIT_EXPECT_EQ(test, nodrop_held(next->q), 5U);
	flow_free(next);
	flow_free(heir);
}

static void test_no_heir(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[2];

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 2), 2);
	nodrop_unconsume(f->q, taken, 2);
	KUNIT_EXPECT_EQ(test, leave(f, NULL), 5);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 5U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), 5ULL);
	KUNIT_EXPECT_EQ(test, leave(f, NULL), 0);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 0U);
}

/* The queue left its device while its reader had packets in hand. */
static void test_unconsume_after_leaving(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct flow *second = flow_second(test, f, 5);
	void *taken[3];

	fill(test, second);
	KUNIT_ASSERT_EQ(test, consume_batched(second, taken, 3), 3);
	KUNIT_EXPECT_EQ(test, leave(second, f), 0);
	nodrop_unconsume(second->q, taken, 3);
	KUNIT_EXPECT_PTR_EQ(test, consume(second), packet(0));
	nodrop_queue_destroy(second->q);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 2U);
	ptr_ring_cleanup(&second->ring, NULL);
}

static void test_foreign_is_no_heir(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct flow *heir = flow_second(test, f, 5);

	fill(test, f);
	nodrop_queue_foreign(heir->q);
	KUNIT_EXPECT_EQ(test, leave(f, heir), 5);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 5U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_PURGED), 5ULL);
	KUNIT_EXPECT_TRUE(test, __ptr_ring_empty(&heir->ring));
	flow_free(heir);
}

/* A stranger finds in the ring what waited in front of it. */
static void test_foreign_with_packets_in_front(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[5];
	int i;

	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 4), 4);
	nodrop_unconsume(f->q, taken, 4);
	KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(0));
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_EQ(test, f->q->in_front, 0U);
	for (i = 1; i < 5; i++)
		KUNIT_EXPECT_PTR_EQ(test, ptr_ring_consume(&f->ring),
				    packet(i));
	KUNIT_EXPECT_NULL(test, ptr_ring_consume(&f->ring));
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
}

static void test_foreign_without_room_for_the_front(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	KUNIT_EXPECT_EQ(test, flow_resize(f, 2), 0);
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 2U);
	/* The last that came, as a full ring drops. */
	for (i = 1; i < 3; i++)
		KUNIT_EXPECT_PTR_EQ(test, ptr_ring_consume(&f->ring),
				    packet(i));
	KUNIT_EXPECT_NULL(test, ptr_ring_consume(&f->ring));
}

/* As when a running driver's ring gets a queue. */
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
	KUNIT_CASE(test_foreign_reader_drops),
	KUNIT_CASE(test_bind_wakes),
	KUNIT_CASE(test_bind_wakes_the_txq_before),
	KUNIT_CASE(test_find),
	KUNIT_CASE(test_create_in_use),
	KUNIT_CASE(test_size),
	KUNIT_CASE(test_heir_gets_all),
	KUNIT_CASE(test_heir_is_not_flooded),
	KUNIT_CASE(test_no_heir),
	KUNIT_CASE(test_unconsume_after_leaving),
	KUNIT_CASE(test_foreign_is_no_heir),
	KUNIT_CASE(test_foreign_with_packets_in_front),
	KUNIT_CASE(test_foreign_without_room_for_the_front),
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
