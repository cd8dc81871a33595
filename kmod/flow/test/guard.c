// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stall guard: a consumer that does not take what the ring holds in time.
 */
#include "fixture.h"

static bool stalled(struct flow *f)
{
	return READ_ONCE(f->q->stalled);
}

/* The consumer takes nothing for guard_ms. */
static void stall(struct kunit *test, struct flow *f)
{
	fill(test, f);
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	KUNIT_ASSERT_TRUE(test, stalled(f));
}

static void test_guard(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STALLED), 0ULL);
	guard_wait(f, 2 * GUARD_SLIP_MS);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
	KUNIT_EXPECT_GT(test, counted(f, NODROP_STALLED), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_TAKEN), 0ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 9), -ENOSPC);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);

	/* The consumer resumes, and so does flow control. */
	KUNIT_EXPECT_EQ(test, drain(f), 5U);
	KUNIT_EXPECT_FALSE(test, stalled(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_STALLED), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_TAKEN), 5ULL);
	KUNIT_EXPECT_EQ(test, fill(test, f), NODROP_LEAST);
	KUNIT_EXPECT_EQ(test, drops(f), 1ULL);
}

/* With a short ring, too. */
static void test_guard_of_one_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, 1);

	stall(test, f);
	KUNIT_EXPECT_EQ(test, f->q->limit, 1U);
	KUNIT_EXPECT_EQ(test, transmit(f, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, drain(f), 1U);
	KUNIT_EXPECT_EQ(test, fill(test, f), 1U);
}

/* One packet now and then is not enough. */
static void test_guard_trips_for_a_slow_reader(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int n = 0;

	fill(test, f);
	while (stopped(f)) {
		take(test, f, 1);
		guard_samples(f, 1);
		KUNIT_ASSERT_LT(test, n++, 200);
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 0ULL);
	KUNIT_EXPECT_EQ(test, f->q->limit, NODROP_LEAST);
}

/* In each window it must take what the ring held when that window began. */
static void test_guard_begins_windows(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);
	int round;

	fill(test, f);
	for (round = 0; round < 5; round++) {
		guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
		take(test, f, 100);
		fill(test, f);
		guard_samples(f, 1);
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	take(test, f, 99);
	fill(test, f);
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* A window begins with the last stop, not with the sample that renews it. */
static void test_guard_counts_from_the_stop(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);

	fill(test, f);
	guard_wait(f, GUARD_MS / 2);
	take(test, f, 60);
	fill(test, f);
	guard_wait(f, GUARD_MS * 3 / 8);
	take(test, f, 40);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	guard_samples(f, 1);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_LE(test, guard_wait(f, 2 * GUARD_MS),
			GUARD_MS * 5 / 8 + GUARD_SLIP_MS + 0U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* A consumer keeps up although others than the qdisc fill the ring again. */
static void test_guard_of_a_ring_that_is_refilled(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);
	unsigned int n = 200;
	int round, i;

	fill(test, f);
	for (round = 0; round < 60; round++) {
		for (i = 0; i < 120; i++) {
			take(test, f, 1);
			transmit_past(f, n++);
		}
		guard_samples(f, 1);
		KUNIT_ASSERT_TRUE(test, stopped(f));
	}
	guard_wait(f, GUARD_MS / 2);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	guard_wait(f, GUARD_MS / 2 + GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* It has the txq woken in time, and takes no more. */
static void wake_in_time(struct kunit *test, struct flow *f)
{
	fill(test, f);
	guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
	take_to_wake(test, f);
	guard_wait(f, 2 * GUARD_SLIP_MS);
}

/* It still has to take the rest. */
static void test_guard_counts_over_a_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);

	wake_in_time(test, f);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	fill(test, f);
	guard_wait(f, GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* What it has taken it does not owe again, after however many packets. */
static void test_guard_of_an_old_window(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);

	fill(test, f);
	drain(f);
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	f->q->taken += (1U << 31) + 1;
	f->q->produced = f->q->taken;
	f->q->check_at = f->q->taken;
	fill(test, f);
	guard_wait(f, GUARD_MS / 2);
	drain(f);
	fill(test, f);
	guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* Not for another txq. */
static void test_guard_of_another_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 100);

	wake_in_time(test, f);
	flow_bind(f, NULL);
	flow_bind(f, f->txq);
	fill(test, f);
	guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	guard_wait(f, 2 * GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* It empties the ring and stalls again: after more of @periods, after @ms. */
static void stall_again(struct kunit *test, struct flow *f,
			unsigned int periods, unsigned int ms)
{
	u64 trips = counted(f, NODROP_GUARD_TRIPS);

	f->q->tripped = jiffies - msecs_to_jiffies(periods * GUARD_MS);
	drain(f);
	fill(test, f);
	guard_wait(f, ms - GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), trips);
	guard_wait(f, 2 * GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), trips + 1);
}

static void test_guard_of_one_that_stalls_again(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	stall(test, f);
	stall_again(test, f, 0, GUARD_MS / 4);
	stall_again(test, f, 2, GUARD_MS / 4);
	stall_again(test, f, 4, GUARD_MS / 2);
	stall_again(test, f, 8, GUARD_MS);
	stall_again(test, f, 1000, GUARD_MS);
	/* "Off" forgets it. */
	f->on = false;
	flow_bind(f, f->txq);
	f->on = true;
	flow_bind(f, f->txq);
	drain(f);
	fill(test, f);
	guard_wait(f, GUARD_MS - GUARD_SLIP_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* While the txq is not stopped, nobody waits for the consumer. */
static void test_guard_needs_a_stop(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	take_to_wake(test, f);
	guard_wait(f, 2 * GUARD_MS);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* Nor does it wait for one while there is no flow control. */
static void test_guard_needs_flow_control(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	/* As by the module's parameter, which binds nothing. */
	WRITE_ONCE(f->on, false);
	guard_wait(f, 2 * GUARD_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_FALSE(test, stopped(f));
	WRITE_ONCE(f->on, true);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	nodrop_queue_unaware(f->q);
	guard_wait(f, 2 * GUARD_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* "Off" ends a stall. */
static void test_off_ends_a_stall(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	stall(test, f);
	f->on = false;
	flow_bind(f, f->txq);
	f->on = true;
	flow_bind(f, f->txq);
	KUNIT_EXPECT_FALSE(test, stalled(f));
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

/* Senders that follow a stop give the consumer no more time. */
static void test_guard_trips_in_spite_of_senders(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int n = 0;

	fill(test, f);
	for (;;) {
		guard_samples(f, 1);
		if (!stopped(f))
			break;
		nodrop_queue_poll(f->q);
		KUNIT_ASSERT_EQ(test, transmit_polled(f, 5), -ENOSPC);
		KUNIT_ASSERT_LT(test, n++, 200);
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* A stalled one that takes a packet after each drop is still stalled. */
static void test_stalled_and_slow(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int i;

	stall(test, f);
	for (i = 1; i <= 100; i++) {
		KUNIT_ASSERT_EQ(test, transmit(f, 9), -ENOSPC);
		take(test, f, 1);
		guard_samples(f, 1);
		KUNIT_ASSERT_TRUE(test, stalled(f));
	}
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 100ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* A drop begins a window, in which the consumer can show that it works. */
static void test_drop_begins_a_window(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	stall(test, f);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_EQ(test, transmit(f, 9), -ENOSPC);
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	take(test, f, 499);
	KUNIT_EXPECT_EQ(test, transmit(f, 9), 0);
	guard_samples(f, 1);
	KUNIT_EXPECT_TRUE(test, stalled(f));
	take(test, f, 1);
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, stalled(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* XDP frames get no more than packets, and have the same window. */
static void test_stalled_with_xdp(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned int n;

	stall(test, f);
	take(test, f, 500 - 1);
	for (n = 0; !produce_xdp(f, frame(n)); n++)
		KUNIT_ASSERT_LT(test, n, NODROP_LEAST);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_RING), 0ULL + NODROP_LEAST);
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	take(test, f, 1);
	KUNIT_EXPECT_EQ(test, transmit(f, 9), 0);
	take(test, f, NODROP_LEAST);
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, stalled(f));
}

/* That window is half as long; the next drop begins another. */
static void test_window_of_a_stalled_one(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int round;

	stall(test, f);
	for (round = 0; round < 3; round++) {
		KUNIT_EXPECT_EQ(test, transmit(f, 9), -ENOSPC);
		guard_wait(f, GUARD_MS / 2 - GUARD_SLIP_MS);
		KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
		guard_wait(f, 2 * GUARD_SLIP_MS);
		KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
		KUNIT_EXPECT_TRUE(test, stalled(f));
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* A ring that the consumer empties needs no sample and no drop. */
static void test_empty_ring_ends_a_stall(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	void *taken[64];

	stall(test, f);
	take(test, f, 500);
	KUNIT_EXPECT_TRUE(test, stalled(f));
	KUNIT_EXPECT_TRUE(test, empty(f));
	KUNIT_EXPECT_FALSE(test, stalled(f));

	flow_limit(f, 500);
	stall(test, f);
	while (consume_batched(f, taken, 64) == 64)
		KUNIT_EXPECT_TRUE(test, stalled(f));
	KUNIT_EXPECT_FALSE(test, stalled(f));
}

/* Samples notify a consumer that waits for an edge, if there are packets. */
static void test_guard_notifies(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	KUNIT_EXPECT_EQ(test, flow_notified, 0U);
	guard_samples(f, 3);
	KUNIT_EXPECT_EQ(test, flow_notified, 3U);
	/* Also one that has woken the txq: there may be no packets behind. */
	take_to_wake(test, f);
	guard_samples(f, 1);
	KUNIT_EXPECT_EQ(test, flow_notified, 4U);
	/* The window goes on until it has taken all. */
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	drain(f);
	guard_samples(f, 1);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));

	/* Also one that is stalled. */
	fill(test, f);
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	flow_notified = 0;
	KUNIT_EXPECT_EQ(test, transmit(f, 9), -ENOSPC);
	guard_samples(f, 2);
	KUNIT_EXPECT_EQ(test, flow_notified, 2U);
}

/* Not one that looks at the ring itself: there is nothing. */
static void test_guard_notifies_of_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	take(test, f, 5);
	/* As a sender sets it that has not read @taken yet. */
	set_bit(__QUEUE_STATE_STACK_XOFF, &f->txq->state);
	guard_samples(f, 1);
	KUNIT_EXPECT_EQ(test, flow_notified, 0U);
	/* The consumer may sleep, and never see it. */
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

/* The guard runs the qdisc if the consumer woke the txq and did not kick. */
static void test_guard_kicks(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	take_to_wake(test, f);
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	guard_samples(f, 1);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* A stall runs the qdisc, too, for the packets that wait. */
static void test_guard_trip_runs_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

static void test_guard_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_up(f, false);
	guard_wait(f, 2 * GUARD_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	KUNIT_EXPECT_EQ(test, flow_notified, 0U);
	/* Up again, the ring is still full. */
	flow_up(f, true);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	guard_wait(f, GUARD_MS + GUARD_SLIP_MS);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

/* The first sample comes soon: a consumer may wait for it. */
static void test_first_sample_comes_soon(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	guard_wait(f, 1);
	KUNIT_EXPECT_LE(test, f->q->guard_ms, 2 * 15U);
	KUNIT_EXPECT_EQ(test, flow_notified, 1U);
}

/* A long guard_ms has no long periods: if it is lowered, that has effect. */
static void test_guard_is_lowered(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	guard_set(10 * GUARD_MS);
	fill(test, f);
	guard_wait(f, 9 * GUARD_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	guard_set(GUARD_MS);
	KUNIT_EXPECT_LE(test, guard_wait(f, 1), (unsigned int)GUARD_SLIP_MS);
	KUNIT_EXPECT_FALSE(test, stopped(f));
}

static void test_guard_is_switched(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	guard_set(0);
	fill(test, f);
	guard_wait(f, 20 * GUARD_MS);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_TRUE(test, timer_pending(&f->q->guard));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	/* Often at first, then eight times a second. */
	KUNIT_EXPECT_GE(test, flow_notified, 160U);
	KUNIT_EXPECT_LE(test, flow_notified, 200U);
	guard_set(GUARD_MS);
	guard_wait(f, GUARD_SLIP_MS);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
}

static void test_guard_ends_with_the_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, timer_pending(&f->q->guard));
}

/* Another txq, another chance. */
static void test_bind_ends_a_stall(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	stall(test, f);
	flow_bind(f, f->txq);
	KUNIT_EXPECT_TRUE(test, stalled(f));
	flow_bind(f, NULL);
	KUNIT_EXPECT_FALSE(test, stalled(f));
	flow_bind(f, f->txq);
	KUNIT_EXPECT_EQ(test, transmit(f, 5), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

static struct kunit_case guard_cases[] = {
	KUNIT_CASE(test_guard),
	KUNIT_CASE(test_guard_of_one_slot),
	KUNIT_CASE(test_guard_trips_for_a_slow_reader),
	KUNIT_CASE(test_guard_begins_windows),
	KUNIT_CASE(test_guard_counts_from_the_stop),
	KUNIT_CASE(test_guard_of_a_ring_that_is_refilled),
	KUNIT_CASE(test_guard_counts_over_a_wake),
	KUNIT_CASE(test_guard_of_an_old_window),
	KUNIT_CASE(test_guard_of_another_txq),
	KUNIT_CASE(test_guard_of_one_that_stalls_again),
	KUNIT_CASE(test_guard_needs_a_stop),
	KUNIT_CASE(test_guard_needs_flow_control),
	KUNIT_CASE(test_off_ends_a_stall),
	KUNIT_CASE(test_guard_trips_in_spite_of_senders),
	KUNIT_CASE(test_stalled_and_slow),
	KUNIT_CASE(test_drop_begins_a_window),
	KUNIT_CASE(test_stalled_with_xdp),
	KUNIT_CASE(test_window_of_a_stalled_one),
	KUNIT_CASE(test_empty_ring_ends_a_stall),
	KUNIT_CASE(test_guard_notifies),
	KUNIT_CASE(test_guard_notifies_of_packets),
	KUNIT_CASE(test_guard_kicks),
	KUNIT_CASE(test_guard_trip_runs_the_qdisc),
	KUNIT_CASE(test_guard_leaves_a_device_that_is_down),
	KUNIT_CASE(test_first_sample_comes_soon),
	KUNIT_CASE(test_guard_is_lowered),
	KUNIT_CASE(test_guard_is_switched),
	KUNIT_CASE(test_guard_ends_with_the_txq),
	KUNIT_CASE(test_bind_ends_a_stall),
	{}
};

static struct kunit_suite guard_suite = {
	.name = "nodrop_guard",
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = guard_cases,
};

kunit_test_suite(guard_suite);
