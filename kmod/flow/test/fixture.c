// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shared by the core's tests, whose module includes the core.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>

#include "fixture.h"

unsigned int flow_destroyed;
unsigned int flow_notified;
int flow_ran_on;
unsigned int flow_patience_ms = 60000;
struct flow *flow_sends;
u64 flow_now;
enum flow_ipis flow_ipis;
call_single_data_t *flow_kept;
struct flow *flow_reads;
unsigned int flow_reads_most;

/* For how long the guard waits, ms. */
static unsigned int guard_period;

static unsigned long guard_waits(unsigned int ms)
{
	WRITE_ONCE(guard_period, ms);
	/* Tests let the timer expire. */
	return MAX_JIFFY_OFFSET;
}

static unsigned int guard_waited(unsigned long n)
{
	return n == MAX_JIFFY_OFFSET ? guard_period : jiffies_to_msecs(n);
}

/* A sender asks this when it is about to stop the txq. */
static bool xmit_more(void)
{
	if (flow_reads) {
		while (flow_reads_most--)
			nodrop_consume(flow_reads->q);
		flow_reads = NULL;
	}
	return netdev_xmit_more();
}

static int send_ipi(int cpu, call_single_data_t *ipi)
{
	if (flow_ipis == FLOW_OFFLINE)
		return -ENXIO;
	if (flow_ipis == FLOW_SEND)
		return smp_call_function_single_async(cpu, ipi);
	flow_kept = ipi;
	return 0;
}

/* This copy exports nothing. */
#undef EXPORT_SYMBOL_GPL
#define EXPORT_SYMBOL_GPL(symbol)
#define ktime_get_mono_fast_ns() flow_now
#include "../queue.c"
#include "../ring.c"
#include "../limit.c"
#define netdev_xmit_more xmit_more
#include "../produce.c"
#undef netdev_xmit_more
#include "../consume.c"
#define smp_call_function_single_async send_ipi
#include "../kick.c"
#undef smp_call_function_single_async
#define msecs_to_jiffies guard_waits
#define jiffies_to_msecs(n) guard_waited(n)
#include "../guard.c"
#undef msecs_to_jiffies
#undef jiffies_to_msecs

#define CREATE_TRACE_POINTS
#include "../trace.h"

static struct sk_buff flow_packets[FLOW_PACKETS];

struct sk_buff *packet(unsigned int n)
{
	return &flow_packets[n % FLOW_PACKETS];
}

void packets_of(struct flow *f, struct netdev_queue *txq, int cpu)
{
	int i;

	for (i = 0; i < FLOW_PACKETS; i++) {
		struct sk_buff *skb = packet(i);

		skb->dev = f->dev;
		skb_set_queue_mapping(skb, txq - f->dev->_tx);
#if defined(CONFIG_XPS)
		skb->sender_cpu = cpu + 1;
#endif
	}
}

static void destroy_packet(void *packet)
{
	might_sleep();
	flow_destroyed++;
}

static void notify_consumer(const void *key)
{
	const struct flow *f = key;

	lockdep_assert_not_held(&f->ring.producer_lock);
	flow_notified++;
}

static const struct nodrop_ops flow_ops = {
	.destroy = destroy_packet,
	.notify = notify_consumer,
};

static struct sk_buff *qdisc_dequeue(struct Qdisc *qdisc)
{
	struct flow *f = flow_sends;

	WRITE_ONCE(flow_ran_on, raw_smp_processor_id());
	flow_sends = NULL;
	if (f) {
		qdisc->q.qlen = 0;
		transmit(f, FLOW_SENT);
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
	for (; i < flow_patience_ms; i += 20) {
		if (!test_and_set_bit(__QDISC_STATE_SCHED, &f->qdisc->state))
			break;
		msleep(20);
	}
	return READ_ONCE(flow_ran_on);
}

struct flow *flow_new(struct kunit *test, int size)
{
	struct flow *f = test->priv;

	KUNIT_ASSERT_EQ(test, ptr_ring_init(&f->ring, 0, GFP_KERNEL), 0);
	f->q = nodrop_queue_create(&f->ring, f, &flow_ops);
	KUNIT_ASSERT_NOT_NULL(test, f->q);
	KUNIT_ASSERT_EQ(test, flow_resize(f, size), 0);
	flow_limit(f, size);
	flow_bind(f, f->txq);
	return f;
}

void flow_limit(struct flow *f, unsigned int limit)
{
	nodrop_lock(f->q);
	WRITE_ONCE(f->q->limit, limit);
	nodrop_unlock(f->q);
}

struct Qdisc *flow_qdisc(struct kunit *test)
{
	struct Qdisc *qdisc = kunit_kzalloc(test, sizeof(*qdisc), GFP_KERNEL);

	if (!qdisc)
		return NULL;
	*qdisc = noop_qdisc;
	qdisc->flags = TCQ_F_CAN_BYPASS;
	qdisc->dequeue = qdisc_dequeue;
	__skb_queue_head_init(&qdisc->gso_skb);
	__skb_queue_head_init(&qdisc->skb_bad_txq);
	spin_lock_init(&qdisc->q.lock);
	spin_lock_init(&qdisc->seqlock);
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
	f->on = true;
	packets_of(f, f->txq, -1);
	guard_set(GUARD_MS);
	target_set(TARGET_US);
	flow_destroyed = 0;
	flow_notified = 0;
	flow_ran_on = -1;
	flow_sends = NULL;
	flow_reads = NULL;
	flow_now = 1;
	flow_ipis = FLOW_SEND;
	flow_kept = NULL;
	nodrop_kick_init();
	return 0;
}

void flow_exit(struct kunit *test)
{
	struct flow *f = test->priv;

	if (!f)
		return;
	if (f->q) {
		rtnl_lock();
		nodrop_queue_detach(f->q);
		rtnl_unlock();
		nodrop_queue_destroy(f->q);
		ptr_ring_cleanup(&f->ring, NULL);
	}
	free_netdev(f->dev);
}

void flow_bind(struct flow *f, struct netdev_queue *txq)
{
	rtnl_lock();
	nodrop_queue_bind(f->q, txq, &f->on);
	rtnl_unlock();
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

/* As "down" and "up" do: the driver stops the txqs, and starts them. */
void flow_up(struct flow *f, bool up)
{
	if (up) {
		set_bit(__LINK_STATE_START, &f->dev->state);
		netif_tx_start_queue(f->txq);
		flow_bind(f, f->txq);
	} else {
		clear_bit(__LINK_STATE_START, &f->dev->state);
		netif_tx_stop_queue(f->txq);
	}
}

void target_set(unsigned int us)
{
	nodrop_target_us = us;
}

void guard_set(unsigned int ms)
{
	nodrop_guard_ms = ms;
}

void guard_samples(struct flow *f, int n)
{
	local_bh_disable();
	while (n-- && timer_delete(&f->q->guard))
		f->q->guard.function(&f->q->guard);
	local_bh_enable();
}

unsigned int guard_wait(struct flow *f, unsigned int ms)
{
	unsigned int waited = 0;

	while (waited < ms && timer_pending(&f->q->guard)) {
		waited += guard_period;
		guard_samples(f, 1);
	}
	return waited;
}

u64 counted(struct flow *f, enum nodrop_stat stat)
{
	u64 stats[NODROP_STATS];

	nodrop_queue_stats(f->q, stats);
	return stats[stat];
}

u64 drops(struct flow *f)
{
	u64 stats[NODROP_STATS], sum = 0;
	int i;

	nodrop_queue_stats(f->q, stats);
	for (i = NODROP_DROP_NOQUEUE; i <= NODROP_DROP_BYPASS; i++)
		sum += stats[i];
	return sum;
}

/* Context: softirqs off. */
static int produce(struct flow *f, unsigned int n)
{
	int err;

	rcu_read_lock();
	spin_lock(&f->ring.producer_lock);
	err = nodrop_produce(f->q, packet(n));
	spin_unlock(&f->ring.producer_lock);
	rcu_read_unlock();
	return err;
}

/* Let the qdisc run, if it does not, while @send sends. */
static int in_qdisc_run(struct flow *f, unsigned int n,
			int (*send)(struct flow *f, unsigned int n))
{
	struct netdev_queue *txq = skb_get_tx_queue(f->dev, packet(n));
	struct Qdisc *qdisc = rcu_access_pointer(txq->qdisc);
	bool runs;
	int err;

	local_bh_disable();
	runs = qdisc_run_begin(qdisc);
	err = send(f, n);
	if (runs)
		qdisc_run_end(qdisc);
	local_bh_enable();
	return err;
}

int transmit(struct flow *f, unsigned int n)
{
	return in_qdisc_run(f, n, produce);
}

int transmit_kthread(struct flow *f, unsigned int n)
{
	int err;

	local_bh_disable();
	err = produce(f, n);
	local_bh_enable();
	return err;
}

int transmit_past(struct flow *f, unsigned int n)
{
	int err;

	/* Tests run in a kernel thread. */
	current->flags &= ~PF_KTHREAD;
	err = transmit_kthread(f, n);
	current->flags |= PF_KTHREAD;
	return err;
}

static int produce_polled(struct flow *f, unsigned int n)
{
	unsigned long flags;
	int err;

	local_irq_save(flags);
	err = produce(f, n);
	local_irq_restore(flags);
	return err;
}

/* Its packet is past the qdisc even while that runs. */
int transmit_polled(struct flow *f, unsigned int n)
{
	return in_qdisc_run(f, n, produce_polled);
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

unsigned int fill(struct kunit *test, struct flow *f)
{
	unsigned int n;

	for (n = 0; !stopped(f); n++) {
		KUNIT_ASSERT_LT(test, n, f->q->max);
		KUNIT_ASSERT_EQ(test, transmit(f, n), 0);
	}
	return n;
}

static void *consume_one(struct flow *f)
{
	void *taken;

	spin_lock_bh(&f->ring.consumer_lock);
	taken = nodrop_consume(f->q);
	spin_unlock_bh(&f->ring.consumer_lock);
	return taken;
}

void *consume(struct flow *f)
{
	void *taken = consume_one(f);

	if (!taken && nodrop_has_packets(f->q))
		taken = consume_one(f);
	return taken;
}

int consume_batched(struct flow *f, void **packets, int n)
{
	spin_lock_bh(&f->ring.consumer_lock);
	n = nodrop_consume_batched(f->q, packets, n);
	spin_unlock_bh(&f->ring.consumer_lock);
	return n;
}

bool empty(struct flow *f)
{
	bool nothing;

	spin_lock_bh(&f->ring.consumer_lock);
	nothing = !nodrop_peek(f->q);
	spin_unlock_bh(&f->ring.consumer_lock);
	return nothing && !nodrop_has_packets(f->q);
}

void take(struct kunit *test, struct flow *f, unsigned int n)
{
	while (n--)
		KUNIT_ASSERT_NOT_NULL(test, consume(f));
}

unsigned int drain(struct flow *f)
{
	unsigned int n = 0;

	while (consume(f))
		n++;
	return n;
}

unsigned int take_to_wake(struct kunit *test, struct flow *f)
{
	unsigned int n;

	for (n = 0; stopped(f); n++)
		take(test, f, 1);
	return n;
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
