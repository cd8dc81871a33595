/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the core's tests: a ring, a txq with a qdisc, and no driver.
 *
 * The qdisc holds no packet; tests set its qlen. It counts as scheduled unless
 * a test clears that, so that a wake leaves nothing in a CPU's output queue.
 * Time stands still: tests advance the clock and let the guard's timer expire.
 */
#ifndef NODROP_TEST_FIXTURE_H
#define NODROP_TEST_FIXTURE_H

#include <kunit/test.h>

#include "../internal.h"

struct flow {
	struct net_device *dev;
	struct netdev_queue *txq;
	struct ptr_ring ring;
	struct nodrop_queue *q;
	struct Qdisc *qdisc;
	bool on;
};

/* Packets that the core has destroyed since the test began. */
extern unsigned int flow_destroyed;

/* Times that the core has notified the consumer since the test began. */
extern unsigned int flow_notified;

/* The CPU on which the qdisc ran last, -1: it did not run. */
extern int flow_ran_on;

/* Wait until it has run, and keep it from running again. Return flow_ran_on. */
int flow_ran(struct flow *f);

/* How long to wait for what must happen; shorter after the first timeout. */
#define FLOW_IMPATIENT_MS 2000
extern unsigned int flow_patience_ms;

/* The flow to which the qdisc's next run sends packet(FLOW_SENT), or NULL. */
#define FLOW_SENT 1000
extern struct flow *flow_sends;

/*
 * The flow whose consumer takes @flow_reads_most packets when a sender is about
 * to stop the txq, or NULL.
 */
extern struct flow *flow_reads;
extern unsigned int flow_reads_most;

/* The clock of the limit, ns; and its target_us, TARGET_US in a test. */
extern u64 flow_now;
#define TARGET_US 500
void target_set(unsigned int us);

/* What becomes of IPIs: sent; kept in flow_kept; to a CPU that went offline. */
enum flow_ipis { FLOW_SEND, FLOW_KEEP, FLOW_OFFLINE };
extern enum flow_ipis flow_ipis;
extern call_single_data_t *flow_kept;

/* Create a qdisc that runs like a flow's own. Return NULL without memory. */
struct Qdisc *flow_qdisc(struct kunit *test);

int flow_init(struct kunit *test);
void flow_exit(struct kunit *test);

/* Create the test's queue: @size slots, and a limit of all. */
struct flow *flow_new(struct kunit *test, int size);
void flow_limit(struct flow *f, unsigned int limit);

void flow_bind(struct flow *f, struct netdev_queue *txq);
int flow_resize(struct flow *f, int size);
void flow_up(struct flow *f, bool up);

/*
 * Let the guard's timer expire, as long as it is armed: @n times, or until it
 * has waited for @ms in all; return for how long it did. Its window in a test
 * is GUARD_MS. A sample comes no more than GUARD_SLIP_MS late.
 */
#define GUARD_MS 1000
#define GUARD_SLIP_MS 125
void guard_set(unsigned int ms);
void guard_samples(struct flow *f, int n);
unsigned int guard_wait(struct flow *f, unsigned int ms);

/*
 * Packets differ by their address alone, and there are more than a test's ring
 * holds. All come from one txq, and from one CPU (-1: not known).
 */
#define FLOW_PACKETS 1024
struct sk_buff *packet(unsigned int n);
void packets_of(struct flow *f, struct netdev_queue *txq, int cpu);

/* XDP frames have odd addresses. */
static inline void *frame(unsigned int n)
{
	return (void *)packet(n) + 1;
}

/*
 * Send packet @n: from the qdisc, from a program past the qdisc, from a kernel
 * thread past the qdisc, and from netpoll.
 */
int transmit(struct flow *f, unsigned int n);
int transmit_past(struct flow *f, unsigned int n);
int transmit_kthread(struct flow *f, unsigned int n);
int transmit_polled(struct flow *f, unsigned int n);
int produce_xdp(struct flow *f, void *frame);

/* Send packets 0, 1... from the qdisc until it is stopped. Return how many. */
unsigned int fill(struct kunit *test, struct flow *f);

void *consume(struct flow *f);
int consume_batched(struct flow *f, void **packets, int n);
bool empty(struct flow *f);

/* Take @n packets; take all; take packets until the txq is woken. */
void take(struct kunit *test, struct flow *f, unsigned int n);
unsigned int drain(struct flow *f);
unsigned int take_to_wake(struct kunit *test, struct flow *f);

u64 counted(struct flow *f, enum nodrop_stat stat);

/* Drops of all causes, but not of XDP frames. */
u64 drops(struct flow *f);

static inline u64 kicks(struct flow *f)
{
	return counted(f, NODROP_KICKS) + counted(f, NODROP_KICKS_HERE);
}

static inline bool stopped(const struct flow *f)
{
	return READ_ONCE(f->txq->state) & QUEUE_STATE_ANY_XOFF;
}

static inline struct netdev_queue *other_txq(const struct flow *f)
{
	return netdev_get_tx_queue(f->dev, 1);
}

/* Sizes of rings, for KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc). */
#define FLOW_SIZES 8
extern const int flow_sizes[FLOW_SIZES];
void size_desc(const int *size, char *desc);
int param_size(struct kunit *test);

#endif
