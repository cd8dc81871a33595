// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the core, with a ring and a txq and no driver.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/kthread.h>
#include <linux/rtnetlink.h>
#include <net/sch_generic.h>

/* The core itself, built into this module, with nothing exported. */
#undef EXPORT_SYMBOL_GPL
#define EXPORT_SYMBOL_GPL(symbol)
#include "../queue.c"
#include "../inject.c"
#include "../produce.c"
#include "../consume.c"
#include "../kick.c"
#include "../guard.c"

#define CREATE_TRACE_POINTS
#include "../trace.h"

#define GUARD_MS 200

struct flow {
	struct net_device *dev;
	struct netdev_queue *txq;
	struct ptr_ring ring;
	struct nodrop_queue *q;
	struct Qdisc *qdisc;
};

/* Packets are told apart by their address alone; XDP's are odd. */
static void *packet(unsigned int n)
{
	return (void *)(unsigned long)(0x1000 + n * 8);
}

static unsigned int no_bytes(const void *packet)
{
	return 0;
}

static void drop_packet(void *packet)
{
}

static struct flow *flow_new(struct kunit *test, int size)
{
	struct flow *f = test->priv;

	KUNIT_ASSERT_EQ(test, ptr_ring_init(&f->ring, size, GFP_KERNEL), 0);
	f->q = nodrop_queue_create(&f->ring, f, drop_packet);
	KUNIT_ASSERT_NOT_NULL(test, f->q);
	rtnl_lock();
	nodrop_queue_bind(f->q, f->txq);
	rtnl_unlock();
	return f;
}

static int flow_init(struct kunit *test)
{
	struct flow *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	f->dev = alloc_etherdev_mq(0, 2);
	if (!f->dev)
		return -ENOMEM;
	f->txq = netdev_get_tx_queue(f->dev, 0);
	/* A qdisc that holds nothing but is one. */
	f->qdisc = kunit_kzalloc(test, sizeof(*f->qdisc), GFP_KERNEL);
	if (!f->qdisc)
		return -ENOMEM;
	*f->qdisc = noop_qdisc;
	rcu_assign_pointer(f->txq->qdisc, f->qdisc);
	/* Scheduled for ever: a wake leaves nothing in a CPU's output queue. */
	set_bit(__QDISC_STATE_SCHED, &f->qdisc->state);
	set_bit(__LINK_STATE_START, &f->dev->state);
	test->priv = f;
	return 0;
}

static void flow_exit(struct kunit *test)
{
	struct flow *f = test->priv;

	if (!f)
		return;
	if (f->q) {
		rtnl_lock();
		nodrop_queue_leave(f->q, NULL);
		rtnl_unlock();
		nodrop_queue_destroy(f->q);
		ptr_ring_cleanup(&f->ring, NULL);
	}
	free_netdev(f->dev);
}

static bool stopped(const struct flow *f)
{
	return netif_tx_queue_stopped(f->txq);
}

static u64 counted(struct flow *f, enum nodrop_stat stat)
{
	u64 stats[NODROP_STATS];

	nodrop_queue_stats(f->q, stats);
	return stats[stat];
}

static u64 kicks(struct flow *f)
{
	return counted(f, NODROP_KICKS) + counted(f, NODROP_KICKS_HERE);
}

static enum nodrop_verdict claim_by(struct flow *f, struct netdev_queue *txq)
{
	enum nodrop_verdict verdict;

	rcu_read_lock_bh();
	verdict = nodrop_claim(f->q, txq, true);
	rcu_read_unlock_bh();
	return verdict;
}

static enum nodrop_verdict claim(struct flow *f)
{
	return claim_by(f, f->txq);
}

static int produce(struct flow *f, unsigned int n)
{
	int err;

	rcu_read_lock();
	spin_lock_bh(&f->ring.producer_lock);
	err = nodrop_produce(f->q, packet(n), 0);
	spin_unlock_bh(&f->ring.producer_lock);
	rcu_read_unlock();
	return err;
}

static int produce_aside(struct flow *f, unsigned int n)
{
	int err;

	spin_lock_bh(&f->ring.producer_lock);
	err = nodrop_produce_aside(f->q, packet(n));
	spin_unlock_bh(&f->ring.producer_lock);
	return err;
}

static void *consume(struct flow *f)
{
	void *taken;

	spin_lock(&f->ring.consumer_lock);
	taken = nodrop_consume(f->q, no_bytes);
	spin_unlock(&f->ring.consumer_lock);
	return taken;
}

/* What a driver's transmit function does. */
static enum nodrop_verdict transmit(struct flow *f, unsigned int n, int *err)
{
	enum nodrop_verdict verdict = claim(f);

	*err = verdict == NODROP_BUSY ? 0 : produce(f, n);
	return verdict;
}

static void fill(struct kunit *test, struct flow *f)
{
	int err, i;

	for (i = 0; i < f->ring.size; i++) {
		KUNIT_ASSERT_FALSE(test, stopped(f));
		KUNIT_ASSERT_EQ(test, transmit(f, i, &err), NODROP_CLAIMED);
		KUNIT_ASSERT_EQ(test, err, 0);
	}
}

static const int sizes[] = { 1, 2, 3, 5, 31, 32, 33, 500 };

static void size_desc(const int *size, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "ring of %d", *size);
}

KUNIT_ARRAY_PARAM(size, sizes, size_desc);

static int param_size(struct kunit *test)
{
	return *(const int *)test->param_value;
}

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

static void test_reader_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int taken = 0;

	fill(test, f);
	while (stopped(f) && consume(f))
		taken++;
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_LE(test, taken, f->ring.size / 2 + 2 * f->ring.batch);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_WAKES), 1ULL);
}

/* Whatever the order of events, nobody may find a stopped txq and no packet. */
static void test_never_stopped_when_empty(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int sent = 0, seen = 0, step;
	u32 state = 1;
	int err;

	for (step = 0; step < 20000; step++) {
		state = state * 1664525 + 1013904223;
		/* Long runs of either side reach both ends of the ring. */
		if (state >> 31 ^ (step >> 10 & 1)) {
			if (transmit(f, sent, &err) != NODROP_BUSY) {
				KUNIT_ASSERT_EQ(test, err, 0);
				sent++;
			}
		} else {
			void *taken = consume(f);

			if (taken)
				KUNIT_ASSERT_PTR_EQ(test, taken,
						    packet(seen++));
			else
				KUNIT_ASSERT_FALSE(test, stopped(f));
		}
	}
	KUNIT_EXPECT_GT(test, seen, 1000U);
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
	struct netdev_queue *other = netdev_get_tx_queue(f->dev, 1);

	rcu_assign_pointer(other->qdisc, f->qdisc);
	KUNIT_EXPECT_EQ(test, claim_by(f, other), NODROP_BUSY);
	KUNIT_EXPECT_TRUE(test, netif_tx_queue_stopped(other));
	rtnl_lock();
	nodrop_queue_bind(f->q, other);
	rtnl_unlock();
	KUNIT_EXPECT_FALSE(test, netif_tx_queue_stopped(other));
	KUNIT_EXPECT_EQ(test, claim_by(f, other), NODROP_CLAIMED);
}

/* A reader that opened the txq and then finds nothing sees to it itself. */
static void test_dry_reader_knocks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int err;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	while (consume(f))
		;
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_FALSE(test, f->q->asked);
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 1, &err), NODROP_CLAIMED);
}

/* So does one that polls after the last packet and reads no more. */
static void test_polling_reader_knocks(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i, err;

	fill(test, f);
	f->qdisc->q.qlen = 1;
	for (i = 0; i < f->ring.size; i++)
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	spin_lock(&f->ring.consumer_lock);
	KUNIT_EXPECT_TRUE(test, nodrop_empty(f->q));
	spin_unlock(&f->ring.consumer_lock);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 1, &err), NODROP_CLAIMED);
}

/* Only a run of the qdisc sends what the qdisc holds. */
static void test_who_answers(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int err;

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_TRUE(test, f->q->asked);
	KUNIT_EXPECT_EQ(test, transmit(f, 1, &err), NODROP_CLAIMED);
	KUNIT_EXPECT_TRUE(test, f->q->asked);
	qdisc_run_begin(f->qdisc);
	KUNIT_EXPECT_EQ(test, transmit(f, 2, &err), NODROP_CLAIMED);
	qdisc_run_end(f->qdisc);
	KUNIT_EXPECT_FALSE(test, f->q->asked);
}

/* The run of the qdisc that answered ended without sending what it holds. */
static void test_answer_that_came_to_nothing(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int err;

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	qdisc_run_begin(f->qdisc);
	KUNIT_EXPECT_EQ(test, transmit(f, 1, &err), NODROP_CLAIMED);
	qdisc_run_end(f->qdisc);
	f->qdisc->q.qlen = 1;
	while (consume(f))
		;
	KUNIT_EXPECT_EQ(test, kicks(f), 1ULL);
}

/* The guard knocks for a reader that asked and was heard of no more. */
static void test_guard_knocks(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);

	fill(test, f);
	while (stopped(f))
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_TRUE(test, f->q->asked);
	msleep(nodrop_guard_ms);
	KUNIT_EXPECT_FALSE(test, f->q->asked);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

static void test_aside_leaves_the_claimed_slot(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	int i;

	KUNIT_ASSERT_EQ(test, claim(f), NODROP_CLAIMED);
	for (i = 1; i < f->ring.size; i++)
		KUNIT_EXPECT_EQ(test, produce_aside(f, i), 0);
	KUNIT_EXPECT_EQ(test, produce_aside(f, i), -ENOSPC);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_ASIDE), 1ULL);
	KUNIT_EXPECT_EQ(test, produce(f, 0), 0);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

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

static void test_bind_wakes(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	rtnl_lock();
	nodrop_queue_bind(f->q, f->txq);
	rtnl_unlock();
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, claim(f), NODROP_BUSY);
}

/* A reader that takes a packet now and then is not gone. */
static void test_guard_counts_single_packets(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	int i;

	fill(test, f);
	for (i = 0; i < 10; i++) {
		msleep(nodrop_guard_ms / 2);
		KUNIT_EXPECT_NOT_NULL(test, consume(f));
	}
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

static void test_guard_leaves_a_device_that_is_down(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);

	fill(test, f);
	clear_bit(__LINK_STATE_START, &f->dev->state);
	msleep(nodrop_guard_ms + 100);
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
	set_bit(__LINK_STATE_START, &f->dev->state);
}

static void test_guard(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	int err;

	fill(test, f);
	msleep(nodrop_guard_ms + 100);
	KUNIT_EXPECT_FALSE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 1ULL);
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_PASS);
	KUNIT_EXPECT_NE(test, err, 0);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_GUARD), 1ULL);

	/* The reader is back: flow control is, too. */
	KUNIT_EXPECT_NOT_NULL(test, consume(f));
	KUNIT_EXPECT_EQ(test, transmit(f, 9, &err), NODROP_CLAIMED);
	KUNIT_EXPECT_TRUE(test, stopped(f));
}

static void test_guard_waits_for_a_slow_reader(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	unsigned long end;

	fill(test, f);
	end = jiffies + msecs_to_jiffies(2 * nodrop_guard_ms);
	while (time_before(jiffies, end)) {
		f->q->taken++;
		msleep(20);
	}
	KUNIT_EXPECT_TRUE(test, stopped(f));
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_GUARD_TRIPS), 0ULL);
}

/* Two CPUs: a sender that stops and a reader that only wakes. */
#define RACE_MS 700
#define RACE_STALL_MS 2000

struct race {
	struct flow *f;
	unsigned int sent;
	unsigned int lost;
	bool stalled;	/* written by the sender while the reader looks */
};

static int race_send(void *data)
{
	unsigned long patience = jiffies + msecs_to_jiffies(RACE_STALL_MS);
	struct race *race = data;
	int err;

	while (!kthread_should_stop()) {
		if (stopped(race->f)) {
			if (time_after(jiffies, patience)) {
				WRITE_ONCE(race->stalled, true);
				break;
			}
			cond_resched();
			cpu_relax();
			continue;
		}
		patience = jiffies + msecs_to_jiffies(RACE_STALL_MS);
		local_bh_disable();
		if (transmit(race->f, race->sent, &err) != NODROP_BUSY) {
			race->lost += !!err;
			WRITE_ONCE(race->sent, race->sent + 1);
		}
		local_bh_enable();
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void test_race(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	struct race race = { .f = f };
	unsigned int taken = 0, wrong = 0;
	struct task_struct *sender;
	unsigned long end;

	/* The guard would hide a wake that is lost. */
	nodrop_guard_ms = 0;
	sender = kthread_run(race_send, &race, "flow_race");
	KUNIT_ASSERT_FALSE(test, IS_ERR(sender));
	end = jiffies + msecs_to_jiffies(RACE_MS);
	while (time_before(jiffies, end) ||
	       (stopped(f) && !READ_ONCE(race.stalled))) {
		void *got = consume(f);

		if (got)
			wrong += got != packet(taken++);
		else
			cond_resched();
	}
	kthread_stop(sender);
	while (consume(f))
		taken++;
	nodrop_guard_ms = GUARD_MS;

	KUNIT_EXPECT_FALSE(test, race.stalled);
	KUNIT_EXPECT_EQ(test, race.lost, 0U);
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, taken, race.sent);
}

static int flow_suite_init(struct kunit_suite *suite)
{
	nodrop_guard_ms = GUARD_MS;
	return 0;
}

static struct kunit_case flow_cases[] = {
	KUNIT_CASE_PARAM(test_stops_with_the_last_slot, size_gen_params),
	KUNIT_CASE_PARAM(test_busy_leaves_the_ring_alone, size_gen_params),
	KUNIT_CASE_PARAM(test_stale_wake, size_gen_params),
	KUNIT_CASE_PARAM(test_reader_wakes, size_gen_params),
	KUNIT_CASE_PARAM(test_never_stopped_when_empty, size_gen_params),
	KUNIT_CASE_PARAM(test_claim_without_produce, size_gen_params),
	KUNIT_CASE(test_claim_by_another_txq),
	KUNIT_CASE_PARAM(test_dry_reader_knocks, size_gen_params),
	KUNIT_CASE_PARAM(test_polling_reader_knocks, size_gen_params),
	KUNIT_CASE(test_who_answers),
	KUNIT_CASE(test_answer_that_came_to_nothing),
	KUNIT_CASE(test_guard_knocks),
	KUNIT_CASE_PARAM(test_aside_leaves_the_claimed_slot, size_gen_params),
	KUNIT_CASE(test_foreign_reader_drops),
	KUNIT_CASE(test_no_qdisc_drops),
	KUNIT_CASE(test_bind_wakes),
	KUNIT_CASE(test_guard_counts_single_packets),
	KUNIT_CASE(test_guard_leaves_a_device_that_is_down),
	KUNIT_CASE(test_guard),
	KUNIT_CASE(test_guard_waits_for_a_slow_reader),
	KUNIT_CASE_PARAM_ATTR(test_race, size_gen_params,
			      {.speed = KUNIT_SPEED_SLOW}),
	{}
};

static struct kunit_suite flow_suite = {
	.name = "nodrop_flow",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = flow_cases,
};

kunit_test_suite(flow_suite);

MODULE_DESCRIPTION("KUnit tests of nodrop's flow control");
MODULE_LICENSE("GPL");
