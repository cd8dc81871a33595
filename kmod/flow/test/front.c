// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packets in front of the ring: none is lost, and their order is kept.
 */
#include "fixture.h"

static void test_resize_keeps_order(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);
	int from, to, i;

	for (from = 0; from < FLOW_SIZES; from++)
		for (to = 0; to < FLOW_SIZES; to++) {
			flow_resize(f, flow_sizes[from]);
			fill(test, f);
			KUNIT_EXPECT_TRUE(test, stopped(f));
			KUNIT_EXPECT_EQ(test, flow_resize(f, flow_sizes[to]),
					0);
			KUNIT_EXPECT_EQ(test, f->ring.size, flow_sizes[to]);
			KUNIT_EXPECT_FALSE(test, stopped(f));
			for (i = 0; i < flow_sizes[from]; i++)
				KUNIT_ASSERT_PTR_EQ(test, consume(f),
						    packet(i));
			KUNIT_ASSERT_NULL(test, consume(f));
			KUNIT_ASSERT_EQ(test, nodrop_held(f->q), 0U);
		}
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
}

static void test_resize_to_nothing(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	KUNIT_EXPECT_EQ(test, flow_resize(f, 0), 0);
	KUNIT_EXPECT_EQ(test, f->ring.size, 1);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_CLAIMED);
	KUNIT_EXPECT_EQ(test, produce(f, packet(0)), 0);
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
}

/* What no memory could hold is refused, and changes nothing. */
static void test_resize_to_too_much(struct kunit *test)
{
	static const int sizes[] = { INT_MAX, INT_MIN, -1 };
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		KUNIT_EXPECT_EQ(test, flow_resize(f, sizes[i]), -ENOMEM);
		KUNIT_EXPECT_EQ(test, f->ring.size, 5);
		KUNIT_EXPECT_TRUE(test, stopped(f));
	}
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 5U);
}

/* A sender that was promised a slot has one, however small the ring gets. */
static void test_claim_stands(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int size, i, err;

	for (size = 4; size > 0; size--) {
		flow_resize(f, 500);
		for (i = 0; i < 10; i++)
			transmit(f, i, &err);
		KUNIT_ASSERT_EQ(test, claim(f), NODROP_CLAIMED);
		flow_resize(f, size);
		/* XDP does not take it either. */
		KUNIT_EXPECT_NE(test, produce_aside(f, frame(0)), 0);
		KUNIT_EXPECT_EQ(test, produce(f, packet(10)), 0);
		KUNIT_EXPECT_TRUE(test, stopped(f));
		for (i = 0; i <= 10; i++)
			KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(i));
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
	for (i = 1; i < 5; i++) {
		spin_lock(&f->ring.consumer_lock);
		KUNIT_EXPECT_PTR_EQ(test, nodrop_peek(f->q), packet(i));
		spin_unlock(&f->ring.consumer_lock);
		KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(i));
	}
	spin_lock(&f->ring.consumer_lock);
	KUNIT_EXPECT_NULL(test, nodrop_peek(f->q));
	spin_unlock(&f->ring.consumer_lock);
	KUNIT_EXPECT_TRUE(test, empty(f));
}

/* A stranger sees the ring alone: the first that fit stay. */
static void test_resize_of_a_foreign_ring(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	fill(test, f);
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_EQ(test, flow_resize(f, 3), 0);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 2U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_FOREIGN), 2ULL);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_PTR_EQ(test, ptr_ring_consume(&f->ring),
				    packet(i));
	KUNIT_EXPECT_NULL(test, ptr_ring_consume(&f->ring));
}

/* What the queue must hold, in a window of a large array. */
#define MODEL_SIZE 40000
#define MODEL_STEPS 30000

struct model {
	struct flow *f;
	void **packets;
	unsigned int first;
	unsigned int end;
	unsigned int sent;
	unsigned int seen;
	u32 state;
};

static unsigned int random_below(struct model *m, unsigned int n)
{
	m->state = m->state * 1664525 + 1013904223;
	return (m->state >> 8) % n;
}

/* Charged are those that are neither completed nor without a charge. */
static void model_check(struct kunit *test, struct model *m)
{
	struct nodrop_queue *q = m->f->q;
	unsigned int bytes = q->bytes, i;

	KUNIT_ASSERT_EQ(test, nodrop_held(q), m->end - m->first);
	KUNIT_ASSERT_LE(test, q->uncharged, m->end - m->first);
	if (!q->limited)
		return;
	for (i = m->first + q->uncharged; i < m->end; i++)
		bytes += packet_bytes(m->packets[i]);
	KUNIT_ASSERT_EQ(test, inflight(q->txq), bytes);
}

static void model_send(struct kunit *test, struct model *m, bool resize)
{
	void *sent = packet(m->sent);

	if (claim(m->f) != NODROP_CLAIMED)
		return;
	if (resize)
		flow_resize(m->f, random_below(m, 3));
	KUNIT_ASSERT_EQ(test, produce(m->f, sent), 0);
	m->packets[m->end++] = sent;
	m->sent++;
}

static void model_aside(struct model *m)
{
	void *sent = frame(m->sent);

	if (produce_aside(m->f, sent))
		return;
	m->packets[m->end++] = sent;
	m->sent++;
}

static void model_take(struct kunit *test, struct model *m)
{
	int n = 1 + random_below(m, 20), got, kept, i;
	void *taken[20];

	got = consume_batched(m->f, taken, n);
	KUNIT_ASSERT_LE(test, (unsigned int)got, m->end - m->first);
	for (i = 0; i < got; i++)
		KUNIT_ASSERT_PTR_EQ(test, taken[i], m->packets[m->first + i]);
	if (got < n) {
		KUNIT_ASSERT_EQ(test, (unsigned int)got, m->end - m->first);
		if (m->f->q->txq == m->f->txq)
			KUNIT_ASSERT_FALSE(test, stopped(m->f));
	}
	kept = random_below(m, 3) ? got : random_below(m, got + 1);
	if (kept < got && !random_below(m, 4)) {
		/* Another txq while packets are in the reader's hand. */
		flow_bind(m->f, other_txq(m->f));
		flow_bind(m->f, m->f->txq);
	}
	nodrop_unconsume(m->f->q, taken + kept, got - kept);
	m->first += kept;
	m->seen += kept;
}

static void model_step(struct kunit *test, struct model *m, bool sending)
{
	static const int rings[] = { 0, 1, 2, 3, 5, 31, 32, 33, 64, 500 };
	unsigned int dice = random_below(m, 200);

	if (dice < 2)
		flow_resize(m->f, rings[random_below(m, ARRAY_SIZE(rings))]);
	else if (dice == 2)
		flow_bind(m->f, random_below(m, 2) ? other_txq(m->f) : NULL);
	else if (dice == 3)
		model_send(test, m, m->f->q->txq == m->f->txq);
	else if (dice < 10 || m->f->q->txq != m->f->txq)
		flow_bind(m->f, m->f->txq);
	else if (dice < 20)
		model_aside(m);
	else if (sending ? dice < 190 : dice < 60)
		model_send(test, m, false);
	else
		model_take(test, m);
}

/* Whatever happens in whatever order, each packet comes once and in turn. */
static void test_random(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct model m = { .f = f, .state = 1 };
	int step;

	m.packets = kunit_kcalloc(test, MODEL_SIZE, sizeof(void *), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, m.packets);
	flow_unit = 100;
	for (step = 0; step < MODEL_STEPS; step++) {
		model_step(test, &m, step >> 9 & 1);
		if (step % 8 == 0)
			model_check(test, &m);
	}
	KUNIT_EXPECT_GT(test, m.seen, 1000U);

	flow_bind(f, f->txq);
	while (m.first < m.end)
		KUNIT_ASSERT_PTR_EQ(test, consume(f), m.packets[m.first++]);
	KUNIT_EXPECT_NULL(test, consume(f));
	model_check(test, &m);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_EQ(test, inflight(other_txq(f)), 0U);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 0ULL);
}

static struct kunit_case front_cases[] = {
	KUNIT_CASE(test_resize_keeps_order),
	KUNIT_CASE(test_resize_to_nothing),
	KUNIT_CASE(test_resize_to_too_much),
	KUNIT_CASE(test_claim_stands),
	KUNIT_CASE(test_unconsume),
	KUNIT_CASE(test_resize_of_a_foreign_ring),
	KUNIT_CASE(test_random),
	{}
};

static struct kunit_suite front_suite = {
	.name = "nodrop_front",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = front_cases,
};

kunit_test_suite(front_suite);
