// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shared by the core's tests, whose module includes the core.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>

#include "fixture.h"

/* This copy exports nothing. */
#undef EXPORT_SYMBOL_GPL
#define EXPORT_SYMBOL_GPL(symbol)
#include "../queue.c"
#include "../ring.c"
#include "../limit.c"
#include "../produce.c"
#include "../consume.c"
#include "../kick.c"
/* Tests take the samples themselves. */
#define NODROP_GUARD_LONG_MS ((unsigned int)GUARD_MS)
#include "../guard.c"

#define CREATE_TRACE_POINTS
#include "../trace.h"

unsigned int flow_unit;
unsigned int flow_destroyed;
int flow_ran_on;
unsigned int flow_patience_ms = 60000;
struct flow *flow_sends;

unsigned int packet_bytes(const void *packet)
{
	unsigned long n = (unsigned long)packet;

	return n & 1 ? 0 : flow_unit * (1 + n / 8 % 7);
}

static void destroy_packet(void *packet)
{
	might_sleep();
	flow_destroyed++;
}

static struct sk_buff *qdisc_dequeue(struct Qdisc *qdisc)
{
	struct flow *f = flow_sends;
	int err;

	WRITE_ONCE(flow_ran_on, raw_smp_processor_id());
	flow_sends = NULL;
	if (f) {
		qdisc->q.qlen = 0;
		transmit(f, FLOW_SENT, &err);
	}
	return NULL;
}

int flow_ran(struct flow *f)
{
	unsigned int i;

	for (i = 0; i < flow_patience_ms && READ_ONCE(flow_ran_on) < 0; i += 20)
		msleep(20);
	if (READ_ONCE(flow_ran_on) < 0)
		flow_patience_ms = FLOW_IMPATIENT_MS;
	while (test_and_set_bit(__QDISC_STATE_SCHED, &f->qdisc->state))
		msleep(20);
	return READ_ONCE(flow_ran_on);
}

static void flow_create(struct kunit *test, struct flow *f, int size)
{
	KUNIT_ASSERT_EQ(test, ptr_ring_init(&f->ring, 0, GFP_KERNEL), 0);
	f->q = nodrop_queue_create(&f->ring, f, destroy_packet);
	KUNIT_ASSERT_NOT_NULL(test, f->q);
	f->q->floor = INT_MAX;
	KUNIT_ASSERT_EQ(test, flow_resize(f, size), 0);
	flow_bind(f, f->txq);
}

struct flow *flow_new(struct kunit *test, int size)
{
	flow_create(test, test->priv, size);
	return test->priv;
}

struct flow *flow_second(struct kunit *test, struct flow *f, int size)
{
	struct flow *second = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, second);
	second->dev = f->dev;
	second->qdisc = f->qdisc;
	second->txq = other_txq(f);
	flow_create(test, second, size);
	return second;
}

void flow_free(struct flow *f)
{
	rtnl_lock();
	nodrop_queue_detach(f->q, NULL);
	rtnl_unlock();
	nodrop_queue_destroy(f->q);
	ptr_ring_cleanup(&f->ring, NULL);
	f->q = NULL;
}

struct Qdisc *flow_qdisc(struct kunit *test)
{
	struct Qdisc *qdisc = kunit_kzalloc(test, sizeof(*qdisc), GFP_KERNEL);

	if (!qdisc)
		return NULL;
	*qdisc = noop_qdisc;
	qdisc->dequeue = qdisc_dequeue;
	__skb_queue_head_init(&qdisc->gso_skb);
	__skb_queue_head_init(&qdisc->skb_bad_txq);
	spin_lock_init(&qdisc->q.lock);
	set_bit(__QDISC_STATE_SCHED, &qdisc->state);
	return qdisc;
}

int flow_init(struct kunit *test)
{
	struct flow *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	f->dev = alloc_etherdev_mq(sizeof(f), 2);
	if (!f->dev)
		return -ENOMEM;
	*(struct flow **)netdev_priv(f->dev) = f;
	test->priv = f;

	f->qdisc = flow_qdisc(test);
	if (!f->qdisc)
		return -ENOMEM;

	f->txq = netdev_get_tx_queue(f->dev, 0);
	rcu_assign_pointer(f->txq->qdisc, f->qdisc);
	rcu_assign_pointer(f->txq->qdisc_sleeping, f->qdisc);
	rcu_assign_pointer(other_txq(f)->qdisc, f->qdisc);
	rcu_assign_pointer(other_txq(f)->qdisc_sleeping, f->qdisc);
	set_bit(__LINK_STATE_START, &f->dev->state);
	flow_unit = 0;
	flow_destroyed = 0;
	flow_ran_on = -1;
	flow_sends = NULL;
	return 0;
}

void flow_exit(struct kunit *test)
{
	struct flow *f = test->priv;

	if (!f)
		return;
	if (f->q)
		flow_free(f);
	free_netdev(f->dev);
}

int flow_suite_init(struct kunit_suite *suite)
{
	nodrop_guard_ms = GUARD_MS;
	return 0;
}

void flow_bind(struct flow *f, struct netdev_queue *txq)
{
	rtnl_lock();
	nodrop_queue_bind(f->q, txq, false);
	rtnl_unlock();
}

const int guard_samples_to_trip = NODROP_GUARD_SAMPLES;

void guard_samples(struct flow *f, int n)
{
	local_bh_disable();
	while (n-- && timer_delete(&f->q->guard))
		f->q->guard.function(&f->q->guard);
	local_bh_enable();
}

int flow_resize(struct flow *f, int size)
{
	int err;

	rtnl_lock();
	err = nodrop_grow(f->q, size);
	if (!err)
		nodrop_resize(f->q, size);
	rtnl_unlock();
	return err;
}

void flow_adapt(struct flow *f, unsigned int pace_ns)
{
	spin_lock(&f->ring.consumer_lock);
	nodrop_adapt(f->q, pace_ns);
	spin_unlock(&f->ring.consumer_lock);
}

u64 counted(struct flow *f, enum nodrop_stat stat)
{
	u64 stats[NODROP_STATS];

	nodrop_queue_stats(f->q, stats);
	return stats[stat];
}

int reserve_past(struct flow *f, struct netdev_queue *txq, bool on, bool keeps)
{
	int err = 0;

	rcu_read_lock_bh();
	if (!nodrop_reserved(f->q, txq))
		err = nodrop_reserve(f->q, txq, on, keeps);
	rcu_read_unlock_bh();
	return err;
}

int reserve_by(struct flow *f, struct netdev_queue *txq, bool on)
{
	struct Qdisc *qdisc = rcu_access_pointer(txq->qdisc);
	bool runs = qdisc_run_begin(qdisc);
	int err = reserve_past(f, txq, on, false);

	if (runs)
		qdisc_run_end(qdisc);
	return err;
}

int produce(struct flow *f, void *packet)
{
	int err;

	rcu_read_lock();
	spin_lock_bh(&f->ring.producer_lock);
	err = nodrop_produce(f->q, packet, packet_bytes(packet));
	spin_unlock_bh(&f->ring.producer_lock);
	rcu_read_unlock();
	return err;
}

int produce_xdp(struct flow *f, void *frame)
{
	int err;

	rcu_read_lock();
	spin_lock_bh(&f->ring.producer_lock);
	err = nodrop_produce_xdp(f->q, frame);
	spin_unlock_bh(&f->ring.producer_lock);
	rcu_read_unlock();
	return err;
}

static void *consume_one(struct flow *f)
{
	void *taken;

	spin_lock(&f->ring.consumer_lock);
	taken = nodrop_consume(f->q);
	spin_unlock(&f->ring.consumer_lock);
	return taken;
}

void *consume(struct flow *f)
{
	void *taken = consume_one(f);

	if (nodrop_act(f->q) && !taken)
		taken = consume_one(f);
	return taken;
}

int consume_batched(struct flow *f, void **packets, int n)
{
	spin_lock(&f->ring.consumer_lock);
	n = nodrop_consume_batched(f->q, packets, n);
	spin_unlock(&f->ring.consumer_lock);
	nodrop_act(f->q);
	return n;
}

bool empty(struct flow *f)
{
	bool nothing;

	spin_lock(&f->ring.consumer_lock);
	nothing = !nodrop_peek(f->q);
	spin_unlock(&f->ring.consumer_lock);
	return !nodrop_act(f->q) && nothing;
}

void produce_last_seen_twice(struct kunit *test, struct flow *f)
{
	int i;

	for (i = 0; i < 4; i++) {
		KUNIT_ASSERT_TRUE(test, reserve(f));
		KUNIT_ASSERT_EQ(test, produce(f, packet(i)), 0);
	}
	KUNIT_ASSERT_TRUE(test, reserve(f));
	KUNIT_ASSERT_TRUE(test, reserve(f));
	KUNIT_ASSERT_EQ(test, produce(f, packet(4)), 0);
}

void fill(struct kunit *test, struct flow *f)
{
	int err, i;

	for (i = 0; i < f->q->max; i++) {
		KUNIT_ASSERT_FALSE(test, stopped(f));
		KUNIT_ASSERT_TRUE(test, transmit(f, i, &err));
		KUNIT_ASSERT_EQ(test, err, 0);
	}
}

const int flow_sizes[FLOW_SIZES] = { 1, 2, 3, 5, 31, 32, 33, 500 };

void size_desc(const int *size, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "ring of %d", *size);
}

int param_size(struct kunit *test)
{
	return *(const int *)test->param_value;
}

MODULE_DESCRIPTION("KUnit tests of nodrop's flow control");
MODULE_LICENSE("GPL");
