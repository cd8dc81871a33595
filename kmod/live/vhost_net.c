// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replacements for the functions of a running stock vhost_net.ko that consume
 * from a ring and put back. Rings without a nodrop_queue (macvtap's, and tun's
 * while there are none) are treated as the stock driver does.
 */
#include "stock.h"
#include "live.h"

#include <linux/vhost.h>
#include <net/sock.h>

#include "../flow/nodrop_flow.h"
#include "../vhost_net/stock/vhost.h"

/* Consume, with and without net.c holding the lock, and put back. */
static int nodrop_live_consume(struct ptr_ring *ring, void **packets, int n);
static void nodrop_live_unconsume(struct ptr_ring *ring, void **packets, int n,
				  void (*destroy)(void *packet));

#define __ptr_ring_consume_batched(ring, packets, n) \
	nodrop_live_consume(ring, packets, n)
#define ptr_ring_consume_batched(ring, packets, n) ({		\
	struct ptr_ring *__ring = (ring);			\
	int __times, __n = 0;					\
								\
	for (__times = 0; __times < 2 && !__n; __times++) {	\
		spin_lock_bh(&__ring->consumer_lock);		\
		__n = nodrop_live_consume(__ring, packets, n);	\
		spin_unlock_bh(&__ring->consumer_lock);		\
		if (__n || !nodrop_live_has_packets(__ring))	\
			break;					\
	}							\
	__n;							\
})

#define ptr_ring_unconsume(ring, packets, n, destroy) \
	nodrop_live_unconsume(ring, packets, n, destroy)

/* consumer_lock; net.c takes no other lock by these names. */
#define spin_lock(lock) spin_lock_bh(lock)
#define spin_unlock(lock) spin_unlock_bh(lock)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "../vhost_net/stock/net.c"
#pragma GCC diagnostic pop

#undef __ptr_ring_consume_batched
#undef ptr_ring_consume_batched
#undef ptr_ring_unconsume
#undef spin_lock
#undef spin_unlock

static int nodrop_live_consume(struct ptr_ring *ring, void **packets, int n)
{
	struct nodrop_queue *q;

	rcu_read_lock();
	q = nodrop_queue_find(ring);
	if (q)
		n = nodrop_consume_batched(q, packets, n);
	else
		n = __ptr_ring_consume_batched(ring, packets, n);
	rcu_read_unlock();
	return n;
}

/* Sleeps, so RTNL and not RCU keeps the queue from being detached. */
static void nodrop_live_unconsume(struct ptr_ring *ring, void **packets, int n,
				  void (*destroy)(void *packet))
{
	struct nodrop_queue *q;

	rtnl_lock();
	q = nodrop_queue_find(ring);
	if (q)
		nodrop_unconsume(q, packets, n);
	else
		ptr_ring_unconsume(ring, packets, n, destroy);
	rtnl_unlock();
}

struct klp_func nodrop_live_vhost_funcs[] = {
	NODROP_LIVE(vhost_net_buf_peek, vhost_net_buf_peek),
	NODROP_LIVE(vhost_net_buf_unproduce, vhost_net_buf_unproduce),
	{ }
};
