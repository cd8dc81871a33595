// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kicks: which CPU runs the qdisc, and none after the queue is detached.
 */
#include <linux/delay.h>

#include "fixture.h"

#define SENDER 1
#define READER 0

static void move_to(struct kunit *test, unsigned int cpu)
{
	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current, cpumask_of(cpu)),
			0);
}

static void kick_exit(struct kunit *test)
{
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	/* A qdisc run may be about to end. */
	synchronize_net();
	flow_exit(test);
}

/* The qdisc has a packet, and runs when it is scheduled. */
static void hold_one(struct flow *f)
{
	f->qdisc->q.qlen = 1;
	clear_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
}

static void read_dry(struct flow *f)
{
	while (consume(f))
		;
}

static void test_kicks_the_sender(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	move_to(test, SENDER);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, f->q->cpu, SENDER);
	move_to(test, READER);
	hold_one(f);
	read_dry(f);
	KUNIT_EXPECT_EQ(test, f->q->consumer_cpu, READER);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 0ULL);
	KUNIT_EXPECT_EQ(test, flow_ran(f), SENDER);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(f->q->kicking));
}

/* A small ring's consumer runs the qdisc, and takes its packet at once. */
static void test_small_ring_serves_itself(struct kunit *test)
{
	struct flow *f = flow_new(test, 31);
	unsigned int n = 0;

	move_to(test, SENDER);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, f->q->cpu, SENDER);
	move_to(test, READER);
	hold_one(f);
	flow_sends = f;
	while (consume(f))
		n++;
	KUNIT_EXPECT_EQ(test, n, 32U);
	KUNIT_EXPECT_PTR_EQ(test, flow_sends, NULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 1ULL);
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

static void test_small_ring_is_not_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int i;

	move_to(test, READER);
	fill(test, f);
	hold_one(f);
	for (i = 0; i < 5; i++)
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	flow_sends = f;
	KUNIT_EXPECT_FALSE(test, empty(f));
	KUNIT_EXPECT_PTR_EQ(test, consume(f), packet(FLOW_SENT));
}

/* The batch that is short runs the qdisc, and the next one has its packet. */
static void test_small_ring_ends_a_batch(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[64];

	move_to(test, READER);
	fill(test, f);
	hold_one(f);
	flow_sends = f;
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 5);
	KUNIT_EXPECT_PTR_EQ(test, flow_sends, NULL);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 1);
	KUNIT_EXPECT_PTR_EQ(test, taken[0], packet(FLOW_SENT));
}

static void test_small_ring_begins_a_batch(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[64];

	move_to(test, READER);
	fill(test, f);
	hold_one(f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 5), 5);
	flow_sends = f;
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 0);
	KUNIT_EXPECT_PTR_EQ(test, flow_sends, NULL);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 1);
	KUNIT_EXPECT_PTR_EQ(test, taken[0], packet(FLOW_SENT));
}

static void test_never_kicks_the_reader(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	move_to(test, READER);
	fill(test, f);
	hold_one(f);
	read_dry(f);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 1ULL);
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* Sending on the consumer's CPU does not make that the CPU to kick. */
static void test_remembers_the_sender(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	move_to(test, SENDER);
	fill(test, f);
	move_to(test, READER);
	read_dry(f);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, f->q->cpu, SENDER);
}

/* The sender that is kicked need not have stopped the txq. */
static void test_remembers_who_sent(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);
	int i, err;

	move_to(test, SENDER);
	for (i = 0; i < 32; i++)
		transmit(f, i, &err);
	move_to(test, READER);
	read_dry(f);
	fill(test, f);
	hold_one(f);
	read_dry(f);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 1ULL);
	KUNIT_EXPECT_EQ(test, flow_ran(f), SENDER);
}

static void test_no_such_cpu(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	move_to(test, READER);
	fill(test, f);
	f->q->cpu = nr_cpu_ids;
	hold_one(f);
	read_dry(f);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 1ULL);
	KUNIT_EXPECT_FALSE(test, f->q->kicking);
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* A kick that is on its way serves this consumer, too. */
static void test_one_kick_at_a_time(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	move_to(test, SENDER);
	fill(test, f);
	move_to(test, READER);
	hold_one(f);
	f->q->kicking = true;
	read_dry(f);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 1ULL);
	msleep(50);
	KUNIT_EXPECT_EQ(test, flow_ran_on, -1);
	f->q->kicking = false;
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
}

static void wake_with_packets_left(struct kunit *test, struct flow *f)
{
	fill(test, f);
	hold_one(f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_ASSERT_EQ(test, kicks(f), 0ULL);
}

/* The first sender past the qdisc after a wake schedules it. */
static void test_sender_past_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	wake_with_packets_left(test, f);
	KUNIT_EXPECT_EQ(test, reserve_past(f, f->txq, true, false), 0);
	KUNIT_EXPECT_EQ(test, produce(f, packet(500)), 0);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

static void test_xdp_past_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	wake_with_packets_left(test, f);
	KUNIT_EXPECT_EQ(test, produce_xdp(f, frame(0)), 0);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

/*
 * Only the qdisc of txq 1, which is stale, has packets. The txq 0 that has just
 * been woken has a qdisc that does not run.
 */
static struct Qdisc *wake_stale(struct kunit *test, struct flow *f)
{
	struct Qdisc *own = f->qdisc;

	wake_with_packets_left(test, f);
	own->q.qlen = 0;
	set_bit(__QDISC_STATE_SCHED, &own->state);
	f->qdisc = flow_qdisc(test);
	KUNIT_ASSERT_NOT_NULL(test, f->qdisc);
	rcu_assign_pointer(other_txq(f)->qdisc, f->qdisc);
	hold_one(f);
	f->q->stale = true;
	return own;
}

static void test_stale_qdisc_runs_after_a_wake(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int err;

	wake_stale(test, f);
	KUNIT_EXPECT_TRUE(test, transmit(f, 500, &err));
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

static void test_stale_qdisc_is_kicked(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	wake_stale(test, f);
	read_dry(f);
	KUNIT_EXPECT_GE(test, kicks(f), 1ULL);
	KUNIT_EXPECT_GE(test, flow_ran(f), 0);
}

/* Neither a sender nor the consumer kicks, or runs one of the two qdiscs. */
static void expect_no_run(struct kunit *test, struct flow *f, struct Qdisc *own)
{
	int err;

	clear_bit(__QDISC_STATE_SCHED, &own->state);
	KUNIT_EXPECT_TRUE(test, transmit(f, 500, &err));
	read_dry(f);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	KUNIT_EXPECT_EQ(test, flow_ran_on, -1);
	set_bit(__QDISC_STATE_SCHED, &own->state);
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
}

/* Packets behind a stopped txq wait for their own ring. */
static void test_stopped_txq_is_not_stale(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct Qdisc *own = wake_stale(test, f);

	netif_tx_stop_queue(other_txq(f));
	expect_no_run(test, f, own);
}

/* No qdisc has packets: stale txqs cause no kick and no run. */
static void test_stale_and_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct Qdisc *own = wake_stale(test, f);

	f->qdisc->q.qlen = 0;
	expect_no_run(test, f, own);
}

/* The qdisc that runs already, and transmits, is not scheduled once more. */
static void test_sender_in_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	bool sent, scheduled;
	int err;

	wake_with_packets_left(test, f);
	KUNIT_ASSERT_TRUE(test, qdisc_run_begin(f->qdisc));
	/* With softirqs on, a needless run would be over at once. */
	local_bh_disable();
	sent = transmit(f, 500, &err);
	scheduled = test_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	local_bh_enable();
	KUNIT_EXPECT_TRUE(test, sent);
	KUNIT_EXPECT_FALSE(test, scheduled);
	qdisc_run_end(f->qdisc);
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
}

/* The consumer of a detached queue kicks no CPU. */
static void test_no_kick_without_a_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	f->qdisc->q.qlen = 1;
	flow_bind(f, NULL);
	read_dry(f);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
}

/* After nodrop_queue_bind(q, NULL) no kick is on its way. */
static void test_bind_waits_for_a_kick(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);
	unsigned int late = 0;
	int i;

	f->qdisc->q.qlen = 1;
	for (i = 0; i < 200; i++) {
		move_to(test, SENDER);
		fill(test, f);
		move_to(test, READER);
		read_dry(f);
		flow_bind(f, NULL);
		late += READ_ONCE(f->q->kicking);
		flow_bind(f, f->txq);
	}
	KUNIT_EXPECT_EQ(test, late, 0U);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 200ULL);
}

static struct kunit_case kick_cases[] = {
	KUNIT_CASE(test_kicks_the_sender),
	KUNIT_CASE(test_small_ring_serves_itself),
	KUNIT_CASE(test_small_ring_is_not_empty),
	KUNIT_CASE(test_small_ring_ends_a_batch),
	KUNIT_CASE(test_small_ring_begins_a_batch),
	KUNIT_CASE(test_never_kicks_the_reader),
	KUNIT_CASE(test_remembers_the_sender),
	KUNIT_CASE(test_remembers_who_sent),
	KUNIT_CASE(test_no_such_cpu),
	KUNIT_CASE(test_one_kick_at_a_time),
	KUNIT_CASE(test_sender_past_the_qdisc),
	KUNIT_CASE(test_xdp_past_the_qdisc),
	KUNIT_CASE(test_stale_qdisc_runs_after_a_wake),
	KUNIT_CASE(test_stale_qdisc_is_kicked),
	KUNIT_CASE(test_stopped_txq_is_not_stale),
	KUNIT_CASE(test_stale_and_empty),
	KUNIT_CASE(test_sender_in_the_qdisc),
	KUNIT_CASE(test_no_kick_without_a_txq),
	KUNIT_CASE(test_bind_waits_for_a_kick),
	{}
};

static struct kunit_suite kick_suite = {
	.name = "nodrop_kick",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = kick_exit,
	.test_cases = kick_cases,
};

kunit_test_suite(kick_suite);
