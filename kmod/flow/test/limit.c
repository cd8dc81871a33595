// SPDX-License-Identifier: GPL-2.0-only
/*
 * Byte queue limits: what is charged is completed, once.
 *
 * A completion too many is a BUG of the kernel's.
 */
#include <linux/rtnetlink.h>

#include "fixture.h"

static unsigned int bytes_of(unsigned int from, unsigned int to)
{
	unsigned int bytes = 0;

	while (from < to)
		bytes += packet_bytes(packet(from++));
	return bytes;
}

static void transmit_some(struct flow *f, unsigned int from, unsigned int to)
{
	int err;

	while (from < to)
		transmit(f, from++, &err);
}

static void drain(struct flow *f)
{
	while (consume(f))
		;
}

/* The limit cannot move from here. */
static void limit_to(struct flow *f, unsigned int bytes)
{
	f->txq->dql.min_limit = bytes;
	f->txq->dql.max_limit = bytes;
	nodrop_dql_reset(f->txq);
}

static void test_short_rings_have_no_limit(struct kunit *test)
{
	struct flow *f = flow_new(test, 31);

	flow_unit = 100;
	KUNIT_EXPECT_FALSE(test, f->q->limited);
	transmit_some(f, 0, 5);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	flow_resize(f, 32);
	KUNIT_EXPECT_TRUE(test, f->q->limited);
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 5U);
	transmit_some(f, 5, 8);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), bytes_of(5, 8));
	flow_resize(f, 31);
	KUNIT_EXPECT_FALSE(test, f->q->limited);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	drain(f);
}

/* So many packets are never too many; of GSO packets, more. */
static void test_floor(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	flow_unit = 40;
	transmit_some(f, 0, NODROP_FLOOR - 1);
	KUNIT_EXPECT_LT(test, dql_avail(&f->txq->dql), 0);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	transmit_some(f, NODROP_FLOOR - 1, NODROP_FLOOR);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 1ULL);
	drain(f);
}

static void test_floor_of_gso(struct kunit *test)
{
	struct flow *f = flow_new(test, 600);

	flow_unit = 10000;
	transmit_some(f, 0, NODROP_FLOOR_GSO - 1);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	transmit_some(f, NODROP_FLOOR_GSO - 1, NODROP_FLOOR_GSO);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	drain(f);
}

/* Frames that come past the txq all the time do not keep it stopped. */
static void test_aside_does_not_hold_senders(struct kunit *test)
{
	struct flow *f = flow_new(test, 256);
	int i;

	flow_unit = 40;
	transmit_some(f, 0, NODROP_FLOOR);
	KUNIT_ASSERT_TRUE(test, stopped(f));
	for (i = 0; i < NODROP_FLOOR; i++) {
		KUNIT_EXPECT_EQ(test, produce_aside(f, frame(1000 + i)), 0);
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
	}
	KUNIT_EXPECT_FALSE(test, stopped(f));
	drain(f);
}

/* What the administrator says stays, whatever happens to queues. */
static void test_administrators_floor(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	f->txq->dql.min_limit = 5000;
	flow_bind(f, NULL);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_EQ(test, dql_avail(&f->txq->dql), 5000);
}

/* The packet that goes over the limit is the last one, and it is in. */
static void test_stops_over_the_limit(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int n = 0;
	int err;

	flow_unit = 30;
	limit_to(f, 16 * 1514);
	while (!stopped(f)) {
		KUNIT_ASSERT_LT(test, n, 500U);
		KUNIT_ASSERT_EQ(test, transmit(f, n++, &err), NODROP_CLAIMED);
		KUNIT_ASSERT_EQ(test, err, 0);
	}
	KUNIT_EXPECT_GT(test, bytes_of(0, n), 16U * 1514);
	KUNIT_EXPECT_LE(test, bytes_of(0, n - 1), 16U * 1514);
	KUNIT_EXPECT_EQ(test, f->q->full, n);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 1ULL);
	/* Who comes all the same finds room: the limit drops nothing. */
	KUNIT_EXPECT_EQ(test, transmit(f, n, &err), NODROP_CLAIMED);
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_BUSY_RETURNS), 0ULL);
	drain(f);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
}

static void test_full_ring_is_not_the_limit(struct kunit *test)
{
	struct flow *f = flow_new(test, 64);

	flow_unit = 1;
	limit_to(f, 64 * 7);
	fill(test, f);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STOPS_LIMIT), 0ULL);
	drain(f);
}

/* One completion for each batch of slots, and of what was taken alone. */
static void test_release_completes(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int i;

	flow_unit = 10;
	transmit_some(f, 0, 40);
	for (i = 1; i < f->ring.batch; i++)
		consume(f);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), bytes_of(0, 40));
	consume(f);
	KUNIT_EXPECT_EQ(test, inflight(f->txq),
			bytes_of(f->ring.batch, 40));
	KUNIT_EXPECT_EQ(test, f->q->bytes, 0U);
	drain(f);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
}

/* A reader that goes to sleep completes what it has. */
static void test_dry_reader_completes(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	void *taken[4];

	flow_unit = 10;
	transmit_some(f, 0, 3);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 3), 3);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), bytes_of(0, 3));
	KUNIT_EXPECT_TRUE(test, empty(f));
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	transmit_some(f, 3, 6);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 4), 3);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* Half of the packets are read, and the rest is still too much. */
static void test_over_the_limit_nobody_is_asked(struct kunit *test)
{
	struct flow *f = flow_new(test, 256);
	int i;

	flow_unit = 1;
	limit_to(f, 256 * 7);
	fill(test, f);
	f->txq->dql.min_limit = 0;
	f->txq->dql.max_limit = 0;
	for (i = 0; i < 176; i++)
		consume(f);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 0ULL);
	drain(f);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
}

/* What another txq was charged with is not completed on this one. */
static void test_bind_leaves_packets_uncharged(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	void *taken[4];

	flow_unit = 10;
	transmit_some(f, 0, 20);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 4), 4);
	flow_bind(f, other_txq(f));
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_EQ(test, f->q->bytes, 0U);
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 16U);
	claim_by(f, other_txq(f), true);
	produce(f, packet(20));
	KUNIT_EXPECT_EQ(test, inflight(other_txq(f)), bytes_of(20, 21));
	drain(f);
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 0U);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_EQ(test, inflight(other_txq(f)), 0U);
}

static void test_bind_again_changes_nothing(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	flow_unit = 10;
	transmit_some(f, 0, 20);
	flow_bind(f, f->txq);
	flow_resize(f, 400);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), bytes_of(0, 20));
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 0U);
	drain(f);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
}

/* What was taken once is completed once, however often it is read. */
static void test_unconsume_leaves_packets_uncharged(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	void *taken[20];

	flow_unit = 10;
	transmit_some(f, 0, 30);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 20), 20);
	nodrop_unconsume(f->q, taken + 5, 15);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 20), 20);
	nodrop_unconsume(f->q, taken + 10, 10);
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 10U);
	drain(f);
	KUNIT_EXPECT_EQ(test, f->q->uncharged, 0U);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
}

static void test_heir_is_not_charged(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct flow *heir = flow_second(test, f, 500);

	flow_unit = 10;
	transmit_some(f, 0, 20);
	transmit_some(heir, 20, 30);
	rtnl_lock();
	nodrop_queue_leave(f->q, heir->q);
	rtnl_unlock();
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_EQ(test, heir->q->uncharged, 20U);
	KUNIT_EXPECT_EQ(test, inflight(heir->txq), bytes_of(20, 30));
	drain(heir);
	KUNIT_EXPECT_EQ(test, inflight(heir->txq), 0U);
	flow_free(heir);
}

static void test_foreign_is_not_limited(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	flow_unit = 10;
	transmit_some(f, 0, 20);
	nodrop_queue_foreign(f->q);
	KUNIT_EXPECT_FALSE(test, f->q->limited);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	transmit_some(f, 20, 30);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	flow_resize(f, 600);
	KUNIT_EXPECT_FALSE(test, f->q->limited);
}

/*
 * A ring that drops holds as many bytes as its slots can, and dql counts with
 * 32 bits. What is more is dropped; completing it would be a BUG.
 */
static void test_bytes_beyond_counting(struct kunit *test)
{
	const unsigned int packets = 100, most = 7 << 25;
	struct flow *f = flow_new(test, 500);
	unsigned int n, came = 0;

	flow_unit = most / 7;
	for (n = 0; n < packets; n++) {
		KUNIT_ASSERT_EQ(test, claim_by(f, f->txq, false), NODROP_PASS);
		if (!produce(f, packet(n)))
			came++;
	}
	KUNIT_EXPECT_GT(test, inflight(f->txq), (unsigned int)DQL_MAX_LIMIT);
	KUNIT_EXPECT_LE(test, inflight(f->txq), DQL_MAX_LIMIT + most);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_OFF),
			packets - came + 0ULL);
	/* Who is held is held, then, as by a full ring. */
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	drain(f);
	KUNIT_EXPECT_EQ(test, inflight(f->txq), 0U);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_CLAIMED);
}

static struct kunit_case limit_cases[] = {
	KUNIT_CASE(test_short_rings_have_no_limit),
	KUNIT_CASE(test_floor),
	KUNIT_CASE(test_floor_of_gso),
	KUNIT_CASE(test_administrators_floor),
	KUNIT_CASE(test_aside_does_not_hold_senders),
	KUNIT_CASE(test_stops_over_the_limit),
	KUNIT_CASE(test_full_ring_is_not_the_limit),
	KUNIT_CASE(test_release_completes),
	KUNIT_CASE(test_dry_reader_completes),
	KUNIT_CASE(test_over_the_limit_nobody_is_asked),
	KUNIT_CASE(test_bind_leaves_packets_uncharged),
	KUNIT_CASE(test_bind_again_changes_nothing),
	KUNIT_CASE(test_unconsume_leaves_packets_uncharged),
	KUNIT_CASE(test_heir_is_not_charged),
	KUNIT_CASE(test_foreign_is_not_limited),
	KUNIT_CASE(test_bytes_beyond_counting),
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
