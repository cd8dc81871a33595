/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Redirects tun.c's accesses to its ring. Included before tun.c by the files
 * that define these functions.
 */
#ifndef NODROP_TUN_RING_H
#define NODROP_TUN_RING_H

#include <linux/ptr_ring.h>

/*
 * Produce and consume, with and without tun.c holding the ring's lock. The name
 * of produce's argument tells an skb from an XDP frame.
 */
static int nodrop_tun_produce_skb(struct ptr_ring *ring, void *skb);
static int nodrop_tun_produce_frame(struct ptr_ring *ring, void *frame);
static void *nodrop_tun_consume(struct ptr_ring *ring);
static bool nodrop_tun_has_packets(struct ptr_ring *ring);

#define __ptr_ring_produce(ring, what) nodrop_tun_produce_##what(ring, what)
#define ptr_ring_produce(ring, what) ({				\
	struct ptr_ring *__ring = (ring);			\
	int __err;						\
								\
	spin_lock(&__ring->producer_lock);			\
	__err = nodrop_tun_produce_##what(__ring, what);	\
	spin_unlock(&__ring->producer_lock);			\
	__err;							\
})

/*
 * Softirqs are off under the lock. A run of the qdisc that follows may bring
 * packets: then try again.
 */
#define nodrop_tun_retry(ring, take) ({				\
	struct ptr_ring *__again = (ring);			\
	void *__packet = NULL;					\
	int __times;						\
								\
	for (__times = 0; __times < 2; __times++) {		\
		__packet = (take);				\
		if (__packet || !nodrop_tun_has_packets(__again)) \
			break;					\
	}							\
	__packet;						\
})

#define __ptr_ring_consume(ring) nodrop_tun_consume(ring)
#define ptr_ring_consume(ring) ({				\
	struct ptr_ring *__ring = (ring);			\
								\
	nodrop_tun_retry(__ring, ({				\
		void *__taken;					\
								\
		spin_lock_bh(&__ring->consumer_lock);		\
		__taken = nodrop_tun_consume(__ring);		\
		spin_unlock_bh(&__ring->consumer_lock);		\
		__taken;					\
	}));							\
})

/*
 * Where tun.c takes the lock in a function of its own. The first word tells its
 * definition, which becomes stock_NAME, from its calls.
 */
#define tun_ring_consume(arg, tfile)	nodrop_recv_##arg, tfile)
#define nodrop_recv_struct		stock_tun_ring_consume(struct
#define nodrop_recv_tun			nodrop_tun_recv(tun
#define nodrop_tun_recv(tun, tfile) ({				\
	struct tun_file *__tfile = (tfile);			\
								\
	nodrop_tun_retry(&__tfile->tx_ring, ({			\
		void *__taken;					\
								\
		local_bh_disable();				\
		__taken = stock_tun_ring_consume(tun, __tfile);	\
		local_bh_enable();				\
		__taken;					\
	}));							\
})

/* How poll() tests the ring, and how vhost_net reads a packet's length. */
static bool nodrop_tun_empty(struct ptr_ring *ring);
static int nodrop_tun_peek(struct ptr_ring *ring, int (*length)(void *packet));

#undef PTR_RING_PEEK_CALL
#define ptr_ring_empty(ring) nodrop_tun_empty(ring)
#define PTR_RING_PEEK_CALL(ring, length) nodrop_tun_peek(ring, length)

/* Resize, when a queue is attached and when txqueuelen changes. */
static int nodrop_tun_resize_all(struct ptr_ring **rings, int n, int size);

/* Not inline: the compiler warns if tun.c does not call it. */
static int nodrop_tun_resize(struct ptr_ring *ring, int size)
{
	return nodrop_tun_resize_all(&ring, 1, size);
}

#undef ptr_ring_resize
#undef ptr_ring_resize_multiple
#undef ptr_ring_resize_multiple_bh
#define ptr_ring_resize(ring, size, ...) nodrop_tun_resize(ring, size)
#define ptr_ring_resize_multiple(rings, n, size, ...) \
	nodrop_tun_resize_all(rings, n, size)
#define ptr_ring_resize_multiple_bh ptr_ring_resize_multiple

#endif
