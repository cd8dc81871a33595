/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the core's tests: a ring, a txq with a qdisc, and no driver.
 *
 * The qdisc holds no packet; tests set its qlen. It counts as scheduled unless
 * a test clears that, so that a wake leaves nothing in a CPU's output queue.
 */
#ifndef NODROP_TEST_FIXTURE_H
#define NODROP_TEST_FIXTURE_H

#include <kunit/test.h>

#include "../internal.h"

/* Longer than any test: those in guard.c expire the timer themselves. */
#define GUARD_MS 6000000

struct flow {
	struct net_device *dev;
	struct netdev_queue *txq;
	struct ptr_ring ring;
	struct nodrop_queue *q;
	struct Qdisc *qdisc;
};

/* The bytes of a packet are 1 to 7 times this; 0 when a test begins. */
extern unsigned int flow_unit;

/* Packets that the core has destroyed since the test began. */
extern unsigned int flow_destroyed;

/* The CPU on which the qdisc ran last, -1: it did not run. */
extern int flow_ran_on;

/* Wait until it has run, and keep it from running again. Return flow_ran_on. */
int flow_ran(struct flow *f);

/* How long to wait for what must happen; shorter after the first timeout. */
#define FLOW_IMPATIENT_MS 2000
extern unsigned int flow_patience_ms;

/* The flow to which the qdisc's next run sends packet(FLOW_SENT), or NULL. */
#define FLOW_SENT 12345
extern struct flow *flow_sends;

/* Create a qdisc that runs like a flow's own. Return NULL without memory. */
struct Qdisc *flow_qdisc(struct kunit *test);

int flow_init(struct kunit *test);
void flow_exit(struct kunit *test);
int flow_suite_init(struct kunit_suite *suite);

/* Create the test's queue: @size slots, and a limit of all at any pace. */
struct flow *flow_new(struct kunit *test, int size);

/* Another queue of @f's device, for txq 1; flow_free() before the test ends. */
struct flow *flow_second(struct kunit *test, struct flow *f, int size);
void flow_free(struct flow *f);

void flow_bind(struct flow *f, struct netdev_queue *txq);

/* Let the guard's timer expire @n times, as long as it is armed. */
void guard_samples(struct flow *f, int n);
extern const int guard_samples_to_trip;
int flow_resize(struct flow *f, int size);
void flow_adapt(struct flow *f, unsigned int pace_ns);

/* A sender past the qdisc, and one that the qdisc runs. */
int reserve_past(struct flow *f, struct netdev_queue *txq, bool on, bool keeps);
int reserve_by(struct flow *f, struct netdev_queue *txq, bool on);
int produce(struct flow *f, void *packet);
int produce_xdp(struct flow *f, void *frame);
void *consume(struct flow *f);
int consume_batched(struct flow *f, void **packets, int n);
bool empty(struct flow *f);
void fill(struct kunit *test, struct flow *f);

u64 counted(struct flow *f, enum nodrop_stat stat);

/* Sizes of rings, for KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc). */
#define FLOW_SIZES 8
extern const int flow_sizes[FLOW_SIZES];
void size_desc(const int *size, char *desc);
int param_size(struct kunit *test);

/* Packets differ by their address alone; XDP frames are odd. */
static inline void *packet(unsigned int n)
{
	return (void *)(unsigned long)(0x1000 + n * 8);
}

static inline void *frame(unsigned int n)
{
	return packet(n) + 1;
}

unsigned int packet_bytes(const void *packet);

static inline bool stopped(const struct flow *f)
{
	return netif_xmit_stopped(f->txq);
}

static inline struct netdev_queue *other_txq(const struct flow *f)
{
	return netdev_get_tx_queue(f->dev, 1);
}

static inline u64 kicks(struct flow *f)
{
	return counted(f, NODROP_KICKS) + counted(f, NODROP_KICKS_HERE);
}

static inline bool reserve(struct flow *f)
{
	return !reserve_by(f, f->txq, true);
}

/* Produce packets 0 to 4; another sender has seen the slot of the last one. */
void produce_last_seen_twice(struct kunit *test, struct flow *f);

/* As a driver's transmit function. Return false if it returns BUSY. */
static inline bool transmit(struct flow *f, unsigned int n, int *err)
{
	int slot = reserve_by(f, f->txq, true);

	*err = 0;
	if (slot == -EBUSY)
		return false;
	*err = slot ?: produce(f, packet(n));
	return true;
}

#endif
