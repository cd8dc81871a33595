// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kicks: which CPU runs the qdisc.
 */
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

/* Fill the ring on @cpu and empty it on READER. */
static void fill_and_take(struct kunit *test, struct flow *f, unsigned int cpu)
{
	unsigned int n;

	move_to(test, cpu);
	n = fill(test, f);
	move_to(test, READER);
	take(test, f, n);
	hold_one(f);
}

/* The reader then finds it empty. Return the CPU that runs the qdisc. */
static int fill_and_read(struct kunit *test, struct flow *f, unsigned int cpu)
{
	fill_and_take(test, f, cpu);
	KUNIT_EXPECT_NULL(test, consume(f));
	return flow_ran(f);
}

static void expect_kick(struct kunit *test, struct flow *f)
{
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 1ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 0ULL);
}

static void expect_run_here(struct kunit *test, struct flow *f)
{
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_KICKS_HERE), 1ULL);
}

/* Without a CPU in the packets: the one that ran the qdisc. */
static void test_kicks_the_cpu_of_the_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	KUNIT_EXPECT_EQ(test, fill_and_read(test, f, SENDER), SENDER);
	expect_kick(test, f);
}

static void test_never_kicks_the_reader(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	KUNIT_EXPECT_EQ(test, fill_and_read(test, f, READER), READER);
	expect_run_here(test, f);
}

/* The one from which the packet was sent, wherever the qdisc ran. */
static void test_kicks_the_sender(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	if (!IS_ENABLED(CONFIG_XPS))
		kunit_skip(test, "packets do not have their sender's CPU");
	packets_of(f, f->txq, SENDER);
	KUNIT_EXPECT_EQ(test, fill_and_read(test, f, READER), SENDER);
	expect_kick(test, f);
}

static void test_never_kicks_a_sender_here(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	if (!IS_ENABLED(CONFIG_XPS))
		kunit_skip(test, "packets do not have their sender's CPU");
	packets_of(f, f->txq, READER);
	KUNIT_EXPECT_EQ(test, fill_and_read(test, f, SENDER), READER);
	expect_run_here(test, f);
}

/* A forwarded packet may have another number there. */
static void test_packet_of_no_such_cpu(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	packets_of(f, f->txq, nr_cpu_ids);
	KUNIT_EXPECT_EQ(test, fill_and_read(test, f, SENDER), SENDER);
	expect_kick(test, f);
}

/* The txq was stopped by "on", and not by a packet. */
static void test_no_cpu_known(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	fill_and_take(test, f, SENDER);
	f->q->cpu = -1;
	KUNIT_EXPECT_NULL(test, consume(f));
	expect_run_here(test, f);
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* It goes offline: the IPI cannot be sent. */
static void test_kick_of_an_offline_cpu(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	fill_and_take(test, f, SENDER);
	flow_ipis = FLOW_OFFLINE;
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* A small ring's consumer runs the qdisc, and takes its packet at once. */
static void test_small_ring_serves_itself(struct kunit *test)
{
	struct flow *f = flow_new(test, NODROP_SMALL - 1);

	move_to(test, SENDER);
	fill(test, f);
	KUNIT_EXPECT_EQ(test, f->q->cpu, SENDER);
	move_to(test, READER);
	hold_one(f);
	flow_sends = f;
	KUNIT_EXPECT_EQ(test, drain(f), (unsigned int)NODROP_SMALL);
	KUNIT_EXPECT_PTR_EQ(test, flow_sends, NULL);
	expect_run_here(test, f);
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* The qdisc holds a packet as soon as the ring is empty. */
static void test_small_ring_is_not_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	move_to(test, READER);
	fill(test, f);
	take(test, f, 5);
	hold_one(f);
	flow_sends = f;
	KUNIT_EXPECT_FALSE(test, empty(f));
	KUNIT_EXPECT_PTR_EQ(test, consume(f), (void *)packet(FLOW_SENT));
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
	KUNIT_EXPECT_PTR_EQ(test, taken[0], (void *)packet(FLOW_SENT));
}

static void test_small_ring_begins_a_batch(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	void *taken[64];

	move_to(test, READER);
	fill(test, f);
	KUNIT_ASSERT_EQ(test, consume_batched(f, taken, 5), 5);
	hold_one(f);
	flow_sends = f;
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 0);
	KUNIT_EXPECT_PTR_EQ(test, flow_sends, NULL);
	KUNIT_EXPECT_EQ(test, consume_batched(f, taken, 64), 1);
	KUNIT_EXPECT_PTR_EQ(test, taken[0], (void *)packet(FLOW_SENT));
}

/* It takes all that is in its ring first: each run costs as much as an IPI. */
static void test_small_ring_runs_dry(struct kunit *test)
{
	struct flow *f = flow_new(test, NODROP_SMALL - 1);

	f->qdisc->q.qlen = 1;
	take(test, f, fill(test, f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_ASSERT_EQ(test, flow_resize(f, NODROP_SMALL), 0);
	flow_limit(f, NODROP_SMALL);
	take(test, f, fill(test, f));
	KUNIT_EXPECT_GT(test, kicks(f), 1ULL);
}

/* The run that it is scheduled for comes after the wake. */
static void test_scheduled_qdisc_needs_no_ipi(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	fill_and_take(test, f, SENDER);
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	flow_ipis = FLOW_KEEP;
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_EXPECT_PTR_EQ(test, flow_kept, NULL);
}

/* One IPI runs all qdiscs of a CPU, also those that come while it is sent. */
static void test_one_ipi_for_several_qdiscs(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);
	struct Qdisc *other = flow_qdisc(test);
	call_single_data_t *first;

	KUNIT_ASSERT_NOT_NULL(test, other);
	clear_bit(__QDISC_STATE_SCHED, &other->state);
	fill_and_take(test, f, SENDER);
	flow_ipis = FLOW_KEEP;
	KUNIT_EXPECT_NULL(test, consume(f));
	first = flow_kept;
	KUNIT_ASSERT_NOT_NULL(test, first);
	flow_kept = NULL;
	local_bh_disable();
	nodrop_kick(other, SENDER);
	KUNIT_EXPECT_PTR_EQ(test, flow_kept, NULL);
	KUNIT_EXPECT_TRUE(test, test_bit(__QDISC_STATE_SCHED, &other->state));
	first->func(first->info);
	/* They run where this softirq does. */
	local_bh_enable();
	KUNIT_EXPECT_FALSE(test, test_bit(__QDISC_STATE_SCHED, &other->state));
	KUNIT_EXPECT_EQ(test, flow_ran(f), READER);
}

/* Its device goes down or is deleted while the IPI is on its way. */
static void test_kick_of_a_deactivated_qdisc(struct kunit *test)
{
	struct flow *f = flow_new(test, 33);

	fill_and_take(test, f, SENDER);
	flow_ipis = FLOW_KEEP;
	KUNIT_EXPECT_NULL(test, consume(f));
	KUNIT_ASSERT_NOT_NULL(test, flow_kept);
	set_bit(__QDISC_STATE_DEACTIVATED, &f->qdisc->state);
	local_bh_disable();
	flow_kept->func(flow_kept->info);
	KUNIT_EXPECT_FALSE(test, test_bit(__QDISC_STATE_SCHED,
					  &f->qdisc->state));
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, flow_ran_on, -1);

	flow_kept = NULL;
	local_bh_disable();
	nodrop_kick(f->qdisc, SENDER);
	local_bh_enable();
	KUNIT_EXPECT_PTR_EQ(test, flow_kept, NULL);
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
}

/* The consumer of a detached queue kicks no CPU. */
static void test_no_kick_without_a_txq(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	take_to_wake(test, f);
	f->qdisc->q.qlen = 1;
	flow_bind(f, NULL);
	drain(f);
	KUNIT_EXPECT_EQ(test, kicks(f), 0ULL);
}

static struct kunit_case kick_cases[] = {
	KUNIT_CASE(test_kicks_the_cpu_of_the_qdisc),
	KUNIT_CASE(test_never_kicks_the_reader),
	KUNIT_CASE(test_kicks_the_sender),
	KUNIT_CASE(test_never_kicks_a_sender_here),
	KUNIT_CASE(test_packet_of_no_such_cpu),
	KUNIT_CASE(test_no_cpu_known),
	KUNIT_CASE(test_kick_of_an_offline_cpu),
	KUNIT_CASE(test_small_ring_serves_itself),
	KUNIT_CASE(test_small_ring_is_not_empty),
	KUNIT_CASE(test_small_ring_ends_a_batch),
	KUNIT_CASE(test_small_ring_begins_a_batch),
	KUNIT_CASE(test_small_ring_runs_dry),
	KUNIT_CASE(test_scheduled_qdisc_needs_no_ipi),
	KUNIT_CASE(test_one_ipi_for_several_qdiscs),
	KUNIT_CASE(test_kick_of_a_deactivated_qdisc),
	KUNIT_CASE(test_no_kick_without_a_txq),
	{}
};

static struct kunit_suite kick_suite = {
	.name = "nodrop_kick",
	.init = flow_init,
	.exit = kick_exit,
	.test_cases = kick_cases,
};

kunit_test_suite(kick_suite);
